"""``db.cabling.Cabling`` on every database: what the database counts is what there is in its links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferroscope.contracts.store import CableEnd
from ferroscope.contrib.ui import wiring
from ferroscope.hardware.search_index import IndexRow
from tests.store.conftest import Adapter

ENDS = (
    ("a", "leaf-1", "eth2"), ("a", "leaf-1", "eth2"), ("b", "leaf-1", "eth10"), ("b", "leaf-10", "eth1"),
    ("c", "leaf-1", "eth10"), ("c", "spine_1", None), ("d", "spine_1", None), ("d", "spinex1", "eth1"),
    ("d", None, "x"),
)  # fmt: skip


def fill(adapter: Adapter, ends: tuple[tuple[str, str | None, str | None], ...] = ENDS) -> None:
    for name in sorted({name for name, _, _ in ends}):
        node = adapter.node(name=name, owner="ours" if name == "b" else "theirs")
        mine = [(switch, port) for owner, switch, port in ends if owner == name]
        rows = [
            IndexRow("nic", number, t1=f"nic{number}", t2=None, t6=switch, t7=port)
            for number, (switch, port) in enumerate(mine)
        ]
        disk = IndexRow("disk", 0, t6="leaf-1", t7="eth10")
        store(adapter, node.uuid, [*rows, disk])


def store(adapter: Adapter, node: str, rows: list[IndexRow]) -> None:
    adapter.write(lambda tx: tx.search_index.replace(node, rows, had=False))


def count(adapter: Adapter, wanted: str) -> wiring.Found:
    return adapter.read(lambda tx: wiring.counted(tx, wanted))


def links_of(adapter: Adapter, wanted: str, *, exact: bool = False) -> Sequence[CableEnd]:
    return adapter.read(lambda tx: tx.cabling.links_of([wanted]) if exact else tx.cabling.links(wanted))


def ends_of(links: Iterable[CableEnd]) -> list[tuple[str, str, str]]:
    return [(link.machine, link.switch, link.port) for link in links]


def test_links_are_those_of_nics_with_a_known_switch(adapter: Adapter) -> None:
    fill(adapter)
    links = adapter.read(lambda tx: tx.cabling.links())
    assert sorted(ends_of(links)) == sorted((name, switch, port or "") for name, switch, port in ENDS if switch)
    assert {(link.nic, link.mac) for link in links if link.machine == "b"} == {("nic0", ""), ("nic1", "")}
    assert ends_of(adapter.read(lambda tx: tx.cabling.links(project="ours"))) == [
        ("b", "leaf-1", "eth10"), ("b", "leaf-10", "eth1"),
    ]  # fmt: skip
    ports = {("leaf-1", "eth10"), ("leaf-10", "eth1"), ("leaf-1", "eth99")}
    at = adapter.read(lambda tx: tx.cabling.machines_at(ports))
    assert {port: sorted(machines.values()) for port, machines in at.items()} == {
        ("leaf-1", "eth10"): ["b", "c"],
        ("leaf-10", "eth1"): ["b"],
    }


def test_a_part_of_the_name_or_all_of_it_selects_switches(adapter: Adapter) -> None:
    fill(adapter)
    for wanted, switches in {
        "": {"leaf-1": 4, "leaf-10": 1, "spine_1": 2, "spinex1": 1},
        "leaf-1": {"leaf-1": 4},
        "leaf": {"leaf-1": 4, "leaf-10": 1},
        "e_1": {"spine_1": 2},
        "%": {},
    }.items():
        assert count(adapter, wanted).switches == switches, wanted


def test_what_the_database_counts_is_what_is_in_the_links(adapter: Adapter) -> None:
    fill(adapter)
    for wanted in ("", "leaf", "leaf-1", "spine", "nothing"):
        counted = count(adapter, wanted)
        assert counted == wiring.of_links(links_of(adapter, wanted, exact=wanted == "leaf-1")), wanted
        machines = list(counted.at.get(("leaf-1", "eth10"), {}).values())
        assert machines == (["b", "c"] if wanted in ("", "leaf", "leaf-1") else []), wanted


def test_a_switch_with_many_links_has_a_page_of_its_own(adapter: Adapter) -> None:
    fill(
        adapter, tuple((f"m-{number}", f"leaf-{number % 2}", f"eth{number}") for number in range(2) for _ in range(260))
    )
    for wanted, shown in (("", 0), ("leaf", 0), ("leaf-0", 260)):
        found = count(adapter, wanted)
        assert (sum(found.switches.values()), len(found.links)) == (260 if shown else 520, shown)
        assert found == wiring.of_links(links_of(adapter, wanted))
