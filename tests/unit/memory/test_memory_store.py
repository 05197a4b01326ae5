"""The store in memory can be run step by step: no time of its own, no chance of its own, no second writer."""

from __future__ import annotations

import itertools
import threading

import pytest

from ferroscope.adapters.memory import MemoryQueue, MemoryStore
from ferroscope.domain.model import Claim
from tests.support import examples


class Time:
    """A clock that moves only when somebody waits on the bus, and the bus that moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def publish(self, channel: str) -> None:
        pass

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        self.waits.append(timeout)
        self.now += timeout
        return 0

    def close(self) -> None:
        pass


class World:
    """A store, its queue and one member, all on simulated time."""

    def __init__(self) -> None:
        self.time = Time()
        self.stop = threading.Event()
        numbers = itertools.count(1)
        self.store = MemoryStore(bus=self.time, clock=self.time, identifier=lambda: f"id-{next(numbers)}")
        self.queue = MemoryQueue(self.store, bus=self.time, clock=self.time, poll_interval=0.25)
        self.node = examples.node()
        self.store.write(lambda tx: tx.nodes.add(self.node))
        self.store.write(lambda tx: tx.members.beat(examples.member("worker"), 10_000.0))

    def get(self, timeout: float = 0.0) -> Claim | None:
        return self.queue.get("worker", timeout, self.stop)


def test_an_hour_of_waiting_takes_no_real_time() -> None:
    world = World()
    assert world.get(3600.0) is None
    assert world.time.now == 4_600.0


def test_a_retry_falls_due_by_the_injected_clock() -> None:
    world = World()
    world.store.write(lambda tx: tx.requests.put(examples.request(world.node)))
    claim = world.get()
    assert claim is not None
    world.store.write(lambda tx: tx.requests.retry(claim, 100.0))
    world.time.now += 99.0
    assert world.get() is None
    world.time.now += 1.0
    assert world.get() is not None


def test_a_member_dies_by_the_injected_clock() -> None:
    world = World()
    world.store.write(lambda tx: tx.requests.put(examples.request(world.node)))
    first = world.get()
    world.time.now += 9_999.0
    assert world.get() is None
    world.time.now += 1.0
    second = world.get()
    assert first is not None
    assert second is not None
    assert second.request.attempt == 2


def test_identifiers_come_from_outside() -> None:
    world = World()
    world.store.write(lambda tx: tx.requests.put(examples.request(world.node)))
    claim = world.get()
    assert claim is not None
    assert claim.token == "id-1"


def test_a_transaction_within_a_transaction_is_an_error_and_no_deadlock() -> None:
    world = World()
    with pytest.raises(RuntimeError, match="do not nest"):
        world.store.write(lambda _: world.store.read(lambda _: None))
    assert world.store.read(lambda tx: tx.nodes.get(world.node.uuid)).uuid == world.node.uuid


def test_a_read_that_writes_is_an_error_and_changes_nothing() -> None:
    world = World()
    with pytest.raises(RuntimeError, match=r"only be changed by the work of a Store\.write"):
        world.store.read(lambda tx: tx.nodes.remove(world.node.uuid))
    assert world.store.read(lambda tx: tx.nodes.get(world.node.uuid)).uuid == world.node.uuid


def test_a_transaction_that_is_over_cannot_write_any_more() -> None:
    world = World()
    escaped = world.store.write(lambda tx: tx)
    with pytest.raises(RuntimeError):
        escaped.nodes.add(examples.node())


def test_numbers_of_requests_are_not_given_twice_after_an_undone_write() -> None:
    world = World()

    def fail(tx):  # type: ignore[no-untyped-def]
        tx.requests.put(examples.request(world.node))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        world.store.write(fail)
    world.store.write(lambda tx: tx.requests.put(examples.request(world.node)))
    (pending,) = world.store.read(lambda tx: tx.requests.pending(world.node.uuid))
    assert pending.id == 2
