"""``db.outbox.Outbox`` on every database."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from ferroscope import transition
from ferroscope.config.options import NotificationSettings
from ferroscope.core.model import Node
from ferroscope.core.notification import ChangeView, EventType, OutboxEvent
from ferroscope.db import Transaction
from tests.store.conftest import Adapter, Open
from tests.support import examples

ALL = '{"name": "all", "url": "http://127.0.0.1:9/"}'
LAB = '{"name": "lab", "url": "http://127.0.0.1:9/", "events": ["node.*"], "nodes": {"owner": "lab-*"}}'


@pytest.fixture
def adapter(open_adapter: Open) -> Adapter:
    return open_adapter(notifications=NotificationSettings(target=(ALL, LAB)))


def due(adapter: Adapter, target: str = "all", limit: int = 100, without: Sequence[str] = ()) -> list[OutboxEvent]:
    return list(adapter.read(lambda tx: tx.outbox.due(target, limit, without)))


def add(adapter: Adapter, node: Node, *kinds: EventType) -> list[OutboxEvent]:
    """Add events of the node and return them as they are stored for ``all``."""
    for kind in kinds:
        adapter.write(lambda tx, kind=kind: tx.outbox.add(kind, node))  # type: ignore[misc]
    return [event for event in due(adapter) if event.node == node.uuid][-len(kinds) :]


def test_an_event_is_there_for_each_target_that_wants_it_and_has_the_same_id(adapter: Adapter) -> None:
    node, other = examples.node(name="räck-1", owner="lab-1"), examples.node()
    for one in (node, other):
        adapter.write(lambda tx, one=one: transition.add_node(tx, one))  # type: ignore[misc]
    first, second = due(adapter)
    (lab,) = due(adapter, "lab")
    assert [first.node, second.node] == [node.uuid, other.uuid]
    assert (lab.event, lab.type, lab.data, lab.at) == (first.event, "node.created", first.data, first.at)
    assert first.event != second.event
    assert first.data["node"]["name"] == "räck-1"
    assert (first.state, first.attempts, first.error, first.settled_at) == ("pending", 0, None, None)


def test_without_targets_nothing_is_written(open_adapter: Open) -> None:
    adapter = open_adapter()
    adapter.write(lambda tx: transition.add_node(tx, examples.node()))
    assert not adapter.read(lambda tx: tx.outbox.wants(EventType.CREATED))
    assert adapter.read(lambda tx: tx.outbox.list(limit=10)) == []


def test_a_change_that_is_rolled_back_leaves_no_event(adapter: Adapter) -> None:
    def work(tx: Transaction) -> None:
        transition.add_node(tx, examples.node())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        adapter.write(work)
    assert due(adapter) == []


def test_due_are_the_oldest_pending_ones_of_other_nodes(adapter: Adapter) -> None:
    one, two = examples.node(), examples.node()
    first = add(adapter, one, EventType.STARTED, EventType.WAITING)
    second = add(adapter, two, EventType.STARTED)
    assert due(adapter) == [*first, *second]
    assert due(adapter, limit=1) == first[:1]
    assert due(adapter, without=[one.uuid]) == second
    adapter.write(lambda tx: tx.outbox.delivered([first[0].id]))
    assert due(adapter) == [first[1], *second]
    (done,) = adapter.read(lambda tx: tx.outbox.list(limit=10, state="delivered"))
    assert (done.id, done.settled_at is not None) == (first[0].id, True)


def test_a_failure_is_counted_and_a_dead_letter_is_due_again_when_it_is_redelivered(adapter: Adapter) -> None:
    (event,) = add(adapter, examples.node(), EventType.FAILED)
    adapter.write(lambda tx: tx.outbox.failed(event.id, "HTTP 500", dead=False))
    (failed,) = due(adapter)
    assert (failed.attempts, failed.error) == (1, "HTTP 500")
    adapter.write(lambda tx: tx.outbox.failed(event.id, "x" * 1000, dead=True))
    (dead,) = adapter.read(lambda tx: tx.outbox.list(limit=10, target="all", state="dead"))
    assert (dead.attempts, due(adapter)) == (2, [])
    adapter.write(lambda tx: tx.outbox.delivered([event.id]))  # too late: it was given up meanwhile
    assert adapter.read(lambda tx: tx.outbox.list(limit=10, state="delivered")) == []
    assert adapter.write(lambda tx: tx.outbox.redeliver([event.id])) == 1
    assert adapter.write(lambda tx: tx.outbox.redeliver([event.id])) == 0
    assert due(adapter) == [event]


def test_events_are_found_by_node_and_by_id_newest_first(adapter: Adapter) -> None:
    node = examples.node()
    first, second = add(adapter, node, EventType.STARTED, EventType.WAITING)
    add(adapter, examples.node(), EventType.STARTED)
    assert adapter.read(lambda tx: tx.outbox.list(limit=10, node=node.uuid)) == [second, first]
    assert adapter.read(lambda tx: tx.outbox.list(limit=10, ids=[first.event])) == [first]
    assert len(adapter.read(lambda tx: tx.outbox.list(limit=2))) == 2


def test_the_oldest_are_given_up_beyond_a_limit_and_old_ones_are_deleted(adapter: Adapter) -> None:
    first, second, third = add(adapter, examples.node(), EventType.STARTED, EventType.WAITING, EventType.FINISHED)
    assert adapter.write(lambda tx: tx.outbox.give_up_oldest("all", 1, "too many")) == 1
    adapter.write(lambda tx: tx.outbox.delivered([second.id]))
    tallies = {one.state: one for one in adapter.read(lambda tx: tx.outbox.tallies())}
    assert {state: one.events for state, one in tallies.items()} == {"dead": 1, "delivered": 1, "pending": 1}
    assert (tallies["pending"].target, tallies["pending"].oldest) == ("all", third.at)

    def remove(delivered: float, dead: float) -> int:
        old = adapter.read(lambda tx: tx.outbox.find_old(tx.now + delivered, tx.now + dead, None, 10))
        return adapter.write(lambda tx: tx.outbox.remove(old.keys))

    assert remove(-60.0, -60.0) == 0
    assert remove(60.0, -60.0) == 1
    assert [event.id for event in adapter.read(lambda tx: tx.outbox.list(limit=10))] == [third.id, first.id]
    assert remove(60.0, 60.0) == 2


def test_data_is_bounded_whatever_a_machine_reports(adapter: Adapter) -> None:
    node = examples.node()
    changes = [
        ChangeView(what="added", kind="nic", where="NIC", text="x" * 5000, after="y" * 5000) for _ in range(1000)
    ]
    adapter.write(lambda tx: tx.outbox.add(EventType.HARDWARE_CHANGED, node, changes=changes))
    (event,) = due(adapter)
    assert (len(event.data["changes"]), event.data["changes_total"]) == (200, 1000)
    assert {len(change["text"]) for change in event.data["changes"]} == {500}


def test_the_ids_of_one_node_are_in_the_order_of_its_changes_however_many_change_it(
    open_adapter: Open, adapter: Adapter
) -> None:
    node = adapter.node()
    processes = [open_adapter(notifications=NotificationSettings(target=(ALL,))) for _ in range(3)]
    order: list[str] = []

    def change(process: Adapter, number: int) -> None:
        for _ in range(5):

            def work(tx: Transaction) -> int:
                found = tx.nodes.get(node.uuid, lock=True)
                found.extra = {"turn": found.extra.get("turn", 0) + 1}
                saved = tx.nodes.update(found)
                saved.name = f"turn-{saved.extra['turn']}"
                tx.outbox.add(EventType.WAITING, saved)
                return number

            order.append(str(process.write(work)))

    threads = [threading.Thread(target=change, args=pair) for pair in zip(processes, range(3), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.data["node"]["name"] for event in due(adapter)] == [f"turn-{turn}" for turn in range(1, 16)]
