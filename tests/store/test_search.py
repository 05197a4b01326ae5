"""``Facts.search`` on every database is what ``hardware.expressions.matches`` says, whatever is stored and asked."""

from __future__ import annotations

from unittest import mock

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferroscope.contracts.store import Query, SearchMatch
from ferroscope.core import bmc_access
from ferroscope.db import Transaction, trigrams
from ferroscope.hardware import expressions, search_index
from ferroscope.hardware.query import parse
from ferroscope.hardware.search_index import IndexRow
from ferroscope_client.hardware.search_fields import KINDS
from tests.store.conftest import Adapter
from tests.support import examples

# Few values, so that queries hit; and what databases are known to compare in ways of their own.
TEXTS = (
    "a",
    "b",
    "a b",
    "ab",
    "ä",
    "a_b",
    "a%b",
    "a!b",
    "[ab]",
    "a*b",
    "1",
    "10",
    "ss",
    "ß",
    "\U0001f600",
    "s-1234a%b_c",
    "äöü [x]*?",
)
NUMBERS = (0.0, 1.0, 2.0, 0.1, 2.5e10, 1e29, -1.0)
TEXT_COLUMNS = ("t1", "t3")
NUMBER_COLUMNS = ("n1", "n2")

rows = st.builds(
    IndexRow,
    kind=st.sampled_from(("node", "nic")),
    position=st.just(0),
    t1=st.none() | st.sampled_from(TEXTS),
    t3=st.none() | st.sampled_from(TEXTS),
    n1=st.none() | st.sampled_from(NUMBERS),
    n2=st.none() | st.sampled_from(NUMBERS),
)
machines = st.lists(st.lists(rows, max_size=4), min_size=1, max_size=4)
operators = st.sampled_from(tuple(expressions.COMPARE))
patterns = st.lists(st.sampled_from(("*", "?", "a", "b", " ", "_", "%", "!", "[", "]", "ä")), max_size=5).map("".join)
leaves = st.one_of(
    st.builds(expressions.Number, st.sampled_from(NUMBER_COLUMNS), operators, st.sampled_from(NUMBERS)),
    st.builds(
        expressions.Text,
        st.sampled_from(TEXT_COLUMNS),
        st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(expressions.Glob, st.sampled_from(TEXT_COLUMNS), patterns),
    st.builds(expressions.Known, st.sampled_from((*TEXT_COLUMNS, *NUMBER_COLUMNS))),
)


def joined(inner: st.SearchStrategy[expressions.Query]) -> st.SearchStrategy[expressions.Query]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(expressions.Not, inner) | st.builds(expressions.All, several) | st.builds(expressions.Any, several)


parts = st.recursive(leaves, joined, max_leaves=4)
some = st.builds(expressions.Some, st.sampled_from(("node", "nic")), st.none() | parts)
own = st.one_of(
    st.builds(
        expressions.Number,
        st.sampled_from(("maintenance", "created_at", "deviations")),
        operators,
        st.sampled_from((0.0, 1.0)),
    ),
    st.builds(expressions.Text, st.just("owner"), st.just(("a", "ab")), st.booleans()),
    st.builds(expressions.Glob, st.sampled_from(("name", "owner")), patterns),
    st.builds(expressions.Known, st.sampled_from(("owner", "last_error", "label.rack", "label.example.com/a-b"))),
    st.builds(expressions.Text, st.just("label.rack"), st.just(("r1", "")), st.booleans()),
    st.builds(expressions.Glob, st.sampled_from(("label.rack", "label.example.com/a-b")), patterns | st.just("r*1")),
)
themselves = st.builds(expressions.Own, st.recursive(own, joined, max_leaves=3))
bare = st.builds(
    expressions.Word,
    st.sampled_from(
        ("a", "b", "a_b", "%", "!", "n1", "ä", "192.0.2.1", "234a", "-1234a%", "b_c", "öü [x]*?", "redfish")
    ),
)
queries = st.recursive(
    some | themselves | bare | st.builds(expressions.Count, some, operators, st.sampled_from((0.0, 1.0, 2.0))),
    joined,
    max_leaves=4,
)


OWNERS = (None, "A", "ab", "a_b")
ATTRIBUTES = ({}, {"description": '"deviations":[{'}, {"deviations": [{"condition": "has gpu", "found": "no gpu"}]})
LABELS = ({}, {"Rack": "R1", "spare": ""}, {"example.com/a-b": "b_1.a"}, {"rack": "", "example.com/a-b": "r.1"})


def store(adapter: Adapter, machines: list[list[IndexRow]]) -> dict[str, list[IndexRow]]:
    """Replace all nodes by such with these rows; return the rows by the node's UUID."""

    def work(tx: Transaction) -> dict[str, list[IndexRow]]:
        for node in tx.nodes.list(Query()):
            tx.nodes.remove(node.uuid)
        stored = {}
        for number, listed in enumerate(machines):
            owned = {"owner": OWNERS[number % 4], "maintenance": number % 2 == 0, "labels": LABELS[number % 4]}
            owned |= {"attributes": ATTRIBUTES[number % 3]}
            owned |= {"driver_info": {"redfish_address": f"https://192.0.2.{number}"} if number % 2 else {}}
            node = examples.node(search_digest="digest", name=f"N{number}", created_at=number + 1, **owned)
            numbered = [msgspec.structs.replace(row, position=place) for place, row in enumerate(listed)]
            tx.nodes.add(node)
            tx.addresses.set_bmc(node.uuid, bmc_access.literal_addresses(node.driver_info))
            tx.search_index.replace(node.uuid, numbered, had=False)
            stored[node.uuid] = numbered
        return stored

    return adapter.write(work)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(machines=machines, asked=st.lists(queries, min_size=8, max_size=8), most=st.sampled_from((0, 1, 5000)))
def test_every_adapter_finds_what_the_definition_finds(
    adapter: Adapter, machines: list[list[IndexRow]], asked: list[expressions.Query], most: int
) -> None:
    """``most``: the number of nodes up to which a word is looked up in the index."""
    stored = store(adapter, machines)
    nodes = {node.uuid: node for node in adapter.read(lambda tx: tx.nodes.list(Query()))}
    with mock.patch.object(trigrams, "MAX_NODES", most):
        found = adapter.read(lambda tx: [{node.uuid for node in tx.search_index.search(query, 100)} for query in asked])
    assert found == [
        {uuid for uuid, rows in stored.items() if expressions.matches(query, rows, nodes[uuid])} for query in asked
    ]


def test_the_address_of_a_bmc_finds_its_machine_whether_it_was_inspected_or_not(adapter: Adapter) -> None:
    node = adapter.node(driver_info={"ipmi_address": "192.0.2.77"})
    adapter.node(driver_info={"ipmi_address": "192.0.2.7"})
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, ["192.0.2.77"]))
    found = adapter.read(lambda tx: tx.search_index.search(parse("192.0.2.77"), 10))
    assert [one.uuid for one in found] == [node.uuid]


def test_nodes_that_were_never_inspected_match_nothing(adapter: Adapter) -> None:
    adapter.node()
    assert adapter.read(lambda tx: tx.search_index.search(parse("not has gpu"), 10)) == []
    assert adapter.read(lambda tx: tx.search_index.search(parse("state == enroll and not has gpu"), 10)) == []
    assert len(adapter.read(lambda tx: tx.search_index.search(parse("state == enroll"), 10))) == 1


def test_pages_go_by_uuid(adapter: Adapter) -> None:
    uuids = sorted(store(adapter, [[IndexRow("node", 0)]] * 5))
    query = parse("has node")
    first = adapter.read(lambda tx: tx.search_index.search(query, 2))
    rest = adapter.read(lambda tx: tx.search_index.search(query, 10, after=first[-1].uuid))
    assert [match.uuid for match in (*first, *rest)] == uuids
    assert isinstance(first[0], SearchMatch)
    assert first[0].name is not None


def test_a_real_inventory_is_found_by_what_it_has(adapter: Adapter) -> None:
    inventory = {
        "memory": {"physical_mb": 524288},
        "cpu": {"count": 64, "architecture": "x86_64"},
        "interfaces": [
            {"name": "eth0", "vendor": "0x15b3", "speed_mbps": 25000, "has_carrier": True},
            {"name": "eth1", "vendor": "0x8086", "speed_mbps": 1000, "has_carrier": False},
        ],
        "disks": [{"name": "/dev/nvme0n1", "size": 960 * 10**9, "rotational": False, "serial": "S1"}] * 4,
    }
    node = adapter.node(search_digest="digest")
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, search_index.learn(inventory, {}).rows, had=False))
    for text, expected in {
        "memory_gb >= 512 and nic.speed >= 25G": True,
        "memory_gb > 512": False,
        "nic[speed >= 25G and vendor == Mellanox]": True,
        "nic[speed >= 25G and vendor == intel]": False,
        "nic.speed >= 25G and nic.vendor == intel": True,
        "count(disk[type == nvme and size >= 900G]) >= 4": True,
        "count(nic) != 2": False,
        "disk.serial == s1 and not has gpu": True,
        "disk.serial ~ '?2' or cpu.arch in (aarch64, ppc64le)": False,
        "nic.vendor != intel": True,
        "not nic.vendor == intel": False,
        "vendor == dell": False,
        "vendor != dell": False,
        "nic[link == no] and cpu.count == 64": True,
        "state == enroll and maintenance == no": True,
        "mellanox": True,
        "mellanox nvme0n1": True,
        "mellanox broadcom": False,
    }.items():
        found = adapter.read(lambda tx, text=text: tx.search_index.search(parse(text), 10))
        assert bool(found) is expected, text


def test_rows_of_some_kinds_of_many_nodes(adapter: Adapter) -> None:
    stored = store(adapter, [[IndexRow("node", 0, t1="x"), IndexRow("nic", 0)], [IndexRow("nic", 0)], []])
    found = adapter.read(lambda tx: tx.search_index.some(list(stored), ("node", "cpu")))
    assert list(found.values()) == [[IndexRow("node", 0, t1="x")]]


def test_nodes_are_found_by_the_serial_numbers_of_their_machines(adapter: Adapter) -> None:
    column = KINDS["node"]["serial"].column
    one = [IndexRow("node", 0, **{column: "s-1"}), IndexRow("disk", 0, **{KINDS["disk"]["serial"].column: "s-2"})]
    two = [IndexRow("node", 0, **{column: "s-1"})]
    three = [IndexRow("node", 0, **{column: "s-3"})]
    stored = store(adapter, [one, two, three])
    found = adapter.read(lambda tx: tx.search_index.with_serials(["s-1", "s-2", "other"]))
    assert {serial: set(nodes) for serial, nodes in found.items()} == {"s-1": set(list(stored)[:2])}


def test_two_nodes_of_each_serial_number_of_several_machines_are_found_the_rarest_first(adapter: Adapter) -> None:
    column = KINDS["node"]["serial"].column
    serials = ["often", "often", "often", "twice", "twice", "once", None]
    disk = IndexRow("disk", 0, **{column: "once"})
    stored = list(store(adapter, [[IndexRow("node", 0, **{column: serial}), disk] for serial in serials]))
    often, twice = sorted(stored[:3]), sorted(stored[3:5])
    pairs = [(twice[0], twice[1]), (often[0], often[2])]
    assert adapter.read(lambda tx: tx.search_index.shared_identities()).pairs_with_one_serial == pairs


def test_macs_that_several_machines_have_are_found(adapter: Adapter) -> None:
    def nics(*macs: str | None) -> list[IndexRow]:
        return [IndexRow("nic", number, **{KINDS["nic"]["mac"].column: mac}) for number, mac in enumerate(macs)]

    usb, moved = "52:54:00:00:00:01", "52:54:00:00:00:02"
    own = [f"52:54:00:00:01:0{number}" for number in range(3)]
    bond, placeholder = own[0], "00:00:00:00:00:00"
    disk = IndexRow("disk", 0, **{KINDS["nic"]["mac"].column: own[0]})
    stored = list(
        store(
            adapter,
            [
                nics(own[0], usb, bond, placeholder, None),
                nics(own[1], usb, moved, placeholder, None),
                [*nics(own[2], usb, moved), disk],
            ],
        )
    )
    found = adapter.read(lambda tx: tx.search_index.shared_identities()).macs
    assert [(one.address, one.nics) for one in found] == [(usb, 3), (moved, 2)]
    assert set(found[1].nodes) == set(stored[1:])
    assert found[0].nodes == (min(stored), max(stored))


def test_every_field_has_a_column_of_its_own() -> None:
    for kind, known in KINDS.items():
        columns = [field.column for field in known.values() if field.factor == 1.0]
        assert len(columns) == len(set(columns)), kind
        assert set(columns) <= set(IndexRow.__struct_fields__)
