"""``db.discoveries.Discoveries`` and ``Rejections`` on every database."""

from __future__ import annotations

import pytest

from ferroscope.contracts.errors import ConflictError
from ferroscope.contracts.store import Query, packed
from ferroscope.db import Transaction
from ferroscope.db.nodes import MAX_CALLERS
from ferroscope_client.core.states import Provision, State
from tests.store.conftest import Adapter
from tests.support import examples


def test_machines_are_counted_from_none_in_each_period(adapter: Adapter) -> None:
    def make(tx: Transaction) -> int:
        made = tx.discoveries.created_in(7)
        tx.discoveries.add(examples.uuid(), [examples.mac()])
        return made

    assert [adapter.write(make) for _ in range(3)] == [0, 1, 2]
    assert adapter.write(lambda tx: tx.discoveries.created_in(7)) == 3
    assert adapter.write(lambda tx: tx.discoveries.created_in(8)) == 0
    assert adapter.write(lambda tx: tx.discoveries.created_in(7)) == 0


def test_who_began_in_the_minute_before_does_not_have_all_counted_anew(adapter: Adapter) -> None:
    def make(period: int) -> int:
        def work(tx: Transaction) -> int:
            made = tx.discoveries.created_in(period)
            tx.discoveries.add(examples.uuid(), [examples.mac()])
            return made

        return adapter.write(work)

    assert [make(period) for period in (7, 8, 7, 8, 7)] == [0, 0, 1, 2, 3]
    assert make(2) == 0  # the clock was set back


def test_what_is_rolled_back_was_not_made(adapter: Adapter) -> None:
    mac = examples.mac()

    def fail(tx: Transaction) -> None:
        tx.discoveries.created_in(7)
        tx.discoveries.add(examples.uuid(), [mac])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        adapter.write(fail)
    assert adapter.write(lambda tx: tx.discoveries.created_in(7)) == 0
    adapter.write(lambda tx: tx.discoveries.add(examples.uuid(), [mac]))


def test_a_mac_belongs_to_one_discovered_machine(adapter: Adapter) -> None:
    node, shared = adapter.node(), examples.mac()
    adapter.write(lambda tx: tx.discoveries.add(node.uuid, [shared, shared, examples.mac()]))
    with pytest.raises(ConflictError) as caught:
        adapter.write(lambda tx: tx.discoveries.add(examples.uuid(), [examples.mac(), shared]))
    assert (caught.value.field, caught.value.value) == ("address", shared)
    assert shared in adapter.read(lambda tx: tx.discoveries.macs(node.uuid))
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    adapter.write(lambda tx: tx.discoveries.add(examples.uuid(), [shared]))
    assert list(adapter.read(lambda tx: tx.discoveries.macs(node.uuid))) == []


def test_unclaimed_are_discovered_nodes_in_enroll(adapter: Adapter) -> None:
    adapter.node(auto_discovered=True, inbox=True)
    adapter.node(auto_discovered=True, inbox=False)
    adapter.node(auto_discovered=False)
    adapter.node(auto_discovered=True, provision_state=Provision.MANAGEABLE)
    assert adapter.read(lambda tx: tx.discoveries.unclaimed()) == 2


def test_the_inbox_is_kept_and_filtered_by(adapter: Adapter) -> None:
    waiting = adapter.node(inbox=True)
    adapter.node(inbox=False)
    assert adapter.get(waiting.uuid).inbox is True
    assert list(adapter.read(lambda tx: tx.nodes.list(Query(filters={"inbox": True})))) == [waiting]


def test_rejections_are_found_listed_lifted_and_forgotten(adapter: Adapter) -> None:
    first, second, third = (examples.mac() for _ in range(3))
    adapter.write(lambda tx: tx.rejections.add("one", [first, second]))
    adapter.write(lambda tx: tx.rejections.add("two", iter([second, third])))
    found = adapter.read(lambda tx: tx.rejections.find([second, examples.mac()]))
    assert [(one.address, one.node) for one in found] == [(second, "two")]
    assert list(adapter.read(lambda tx: tx.rejections.find([]))) == []
    assert {one.address for one in adapter.read(lambda tx: tx.rejections.list())} == {first, second, third}
    assert adapter.write(lambda tx: tx.rejections.remove(first)) is True
    assert adapter.write(lambda tx: tx.rejections.remove(first)) is False
    now = adapter.read(lambda tx: tx.now)
    adapter.write(lambda tx: tx.rejections.forget(now - 100.0))
    assert len(adapter.read(lambda tx: tx.rejections.list())) == 2
    adapter.write(lambda tx: tx.rejections.forget(now + 100.0))
    assert list(adapter.read(lambda tx: tx.rejections.list())) == []


def test_the_bytes_of_unclaimed_nodes_are_counted_by_source(adapter: Adapter) -> None:
    contents = {"inventory": b"x" * 1000, "logs": b"y" * 500}
    for source, provision_state in (("a", Provision.ENROLL), ("b", Provision.ENROLL), ("a", Provision.AVAILABLE)):
        node = adapter.node(auto_discovered=True, provision_state=provision_state)
        adapter.write(lambda tx, node=node, source=source: tx.discoveries.add(node.uuid, [examples.mac()], source))
        adapter.write(lambda tx, node=node: tx.data.save(examples.uuid(), node.uuid, packed(contents)))
    total, of_a, of_c = (adapter.read(lambda tx, s=s: tx.discoveries.unclaimed_bytes(s)) for s in (None, "a", "c"))
    assert 0 < of_a < total == 2 * of_a
    assert of_c == 0


def test_of_the_addresses_from_which_a_machine_called_the_latest_are_kept(adapter: Adapter) -> None:
    node = adapter.node(state=State.WAITING)
    sources = [f"192.0.2.{number}" for number in range(100)]
    for source in sources:
        adapter.write(lambda tx, source=source: tx.addresses.called(node.uuid, source))
    kept = [one for one in sources if adapter.read(lambda tx, one=one: tx.addresses.callers(one))]
    assert kept == sources[-MAX_CALLERS:]
    for _ in range(3):
        adapter.write(lambda tx: tx.addresses.called(node.uuid, kept[3]))
    assert [one for one in kept if adapter.read(lambda tx, one=one: tx.addresses.callers(one))] in (kept, kept[1:])
