"""What is deleted when it is old, and how much at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ferroscope.contracts.store import Query
from ferroscope.core.failover_node import FailoverNode
from ferroscope.core.model import ClockStep, Entry, Inspection, Node, Port
from ferroscope.periodic.retention import Retention
from ferroscope_client.core.states import State
from tests.fast.periodic.members import DAY, Members, enrolled
from tests.support import examples


def test_retention_goes_on_until_nothing_old_is_left() -> None:
    members = Members()
    enrolled(members, "n1")

    def fill(tx) -> None:  # type: ignore[no-untyped-def]
        for number in range(450):
            tx.inspections.add(
                Inspection(uuid=f"i{number}", node="n1", state=State.ERROR, started_at=1.0, finished_at=2.0)
            )

    members.store.write(fill)
    members.clock.now = 100_000.0
    assert "removed 450" in Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock).step(
        examples.UNLED
    )
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []


def test_a_run_of_retention_is_bounded_and_the_next_one_goes_on() -> None:
    members = Members()
    enrolled(members, "n1")
    old = [
        Inspection(uuid=f"i{number}", node="n1", state=State.ERROR, started_at=1.0, finished_at=2.0)
        for number in range(4_000)
    ]
    members.store.write(lambda tx: [tx.inspections.add(one) for one in old])
    members.clock.now = 100_000.0

    def a_second_passes() -> None:
        members.clock.now += 1.0

    leadership: Any = SimpleNamespace(fence=lambda _tx: None, keep_alive=a_second_passes)
    task = Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock)
    task.step(leadership)
    left = len(members.store.read(lambda tx: tx.inspections.list(Query())))
    assert 0 < left < 4_000
    for _ in range(5):
        task.step(leadership)
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []


def test_nothing_is_too_old_because_the_clock_was_set() -> None:
    members = Members()
    enrolled(members, "n1")
    members.clock.now = 10 * DAY
    now = members.clock.now
    ended = Inspection(uuid="i", node="n1", state=State.ERROR, started_at=now - 2, finished_at=now - 1)
    members.store.write(lambda tx: tx.inspections.add(ended))
    members.clock.now += 100 * DAY
    task = Retention(members.store, threshold=DAY, period=30.0, clock=members.clock)
    members.store.write(lambda tx: tx.clock_steps.record(ClockStep(id=1, seconds=100 * DAY), 1.0))
    task.step(examples.UNLED)
    assert len(members.store.read(lambda tx: tx.inspections.list(Query()))) == 1
    members.clock.now += 2 * DAY
    task.step(examples.UNLED)
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []


def test_retention_forgets_old_changes_of_macs_even_where_inspections_are_kept_for_ever() -> None:
    members = Members()
    node = Node(uuid="11111111-1111-4111-8111-111111111111", driver="fake")
    members.store.write(lambda tx: tx.nodes.add(node))
    members.store.write(lambda tx: tx.ports.add([Port(uuid="p1", node=node.uuid, address="52:54:00:00:00:01")]))
    task = Retention(members.store, threshold=0.0, period=30.0, clock=members.clock)
    assert "0 old MAC changes" in task.step(examples.UNLED)
    members.clock.now += 3601.0
    assert "1 old MAC change" in task.step(examples.UNLED)
    assert members.store.read(lambda tx: tx.macs.newest()) == 0


def test_retention_keeps_access_tokens_for_90_days_after_their_end() -> None:
    members = Members()
    members.clock.now = 1_000 * DAY
    ends = {"expired": {"expires_at": members.clock.now}, "revoked": {"revoked_at": members.clock.now}, "active": {}}
    for name, fields in ends.items():
        token = examples.access_token(name=name, **fields)
        members.store.write(lambda tx, token=token: tx.access_tokens.add(token))  # type: ignore[misc]

    def left() -> set[str]:
        task = Retention(members.store, threshold=0.0, period=30.0, clock=members.clock)
        task.step(examples.UNLED)
        return {token.name for token in members.store.read(lambda tx: tx.access_tokens.list())}

    members.clock.now += 90 * DAY - 1.0
    assert left() == {"expired", "revoked", "active"}
    members.clock.now += 2.0
    assert left() == {"active"}


def test_retention_keeps_what_is_known_of_a_clusters_nodes_for_three_days() -> None:
    members, clock_set = Members(), 100 * DAY
    members.clock.now = 1_000 * DAY
    members.store.write(lambda tx: tx.failover_nodes.save([FailoverNode(cluster="a", node="a1")]))

    def left() -> int:
        Retention(members.store, threshold=0.0, period=30.0, clock=members.clock).step(examples.UNLED)
        return len(members.store.read(lambda tx: tx.failover_nodes.list("a")))

    members.clock.now += 3 * DAY - 1.0
    assert left() == 1
    members.clock.now += clock_set
    members.store.write(lambda tx: tx.clock_steps.record(ClockStep(id=1, seconds=clock_set), 1.0))
    assert left() == 1
    members.clock.now += 2.0
    assert left() == 0


def test_what_was_kept_is_looked_at_again_after_an_hour() -> None:
    """The only good inspection of a node is kept until there is a newer one."""
    members = Members()
    enrolled(members, "n1")
    members.clock.now = 200_000.0
    task = Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock)

    def left() -> set[str]:
        task.step(examples.UNLED)
        return {one.uuid for one in members.store.read(lambda tx: tx.inspections.list(Query()))}

    def finish(uuid: str, at: float) -> None:
        ended = Inspection(uuid=uuid, node="n1", state=State.FINISHED, started_at=at, finished_at=at)
        members.store.write(lambda tx: tx.inspections.add(ended))

    finish("first", 1.0)
    assert left() == {"first"}
    finish("second", 2.0)
    assert left() == {"first", "second"}
    members.clock.now += 3601.0
    assert left() == {"second"}


def test_deletions_are_under_the_lease_and_searches_are_not() -> None:
    """The lease cannot be renewed while a transaction has its row."""
    members = Members()
    enrolled(members, "n1")
    members.clock.now = 200_000.0
    fenced: list[Any] = []
    leadership: Any = SimpleNamespace(fence=fenced.append, keep_alive=int)
    task = Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock)
    task.step(leadership)
    without = len(fenced)
    old = Inspection(uuid="old", node="n1", state=State.ERROR, started_at=1.0, finished_at=2.0)
    entry = Entry(node="n1", inspection=None, step="power", message="on", process="p", at=1.0)
    members.store.write(lambda tx: (tx.inspections.add(old), tx.journal.append([entry] * 300)))
    task.step(leadership)
    assert len(fenced) == 2 * without + 3, "one for the inspection, two for the entries"
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []
    assert members.store.read(lambda tx: tx.journal.list(Query(sort_key="id"))) == []
