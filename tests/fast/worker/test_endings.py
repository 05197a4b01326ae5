"""Whether a start is still wanted: one read for all starts of a process, which hundreds of threads ask for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.model import Request
from ferroscope.core.states import Event
from ferroscope.worker.services import Endings
from tests.support.manual_clock import ManualClock
from tests.support.processes import PATIENCE
from tests.support.stores import open_store

NODES = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(50)]


class Place:
    """A store whose reads are counted."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = open_store(clock=self.clock)
        self.reads, self.before_reads = 0, lambda: None
        read = self.store.read

        def counted(*given: Any, **how: Any) -> Any:
            self.reads += 1
            self.before_reads()
            return read(*given, **how)

        self.store.read = counted  # type: ignore[method-assign]
        self.endings = Endings(self.store, self.clock)

    def put(self, node: str, event: Event) -> None:
        self.store.write(lambda tx: tx.requests.put(Request(node=node, event=event, inspection="an inspection")))

    def events(self, node: str) -> list[str]:
        return [request.event for request in self.endings.of(node)]


@pytest.fixture
def place() -> Place:
    return Place()


def test_all_starts_of_a_process_ask_once_a_second_together(place: Place) -> None:
    for _ in range(3):
        place.clock.now += 1.0
        assert [place.events(node) for node in NODES] == [[]] * len(NODES)
    assert place.reads == 3


def test_each_start_learns_of_the_requests_that_end_its_own_inspection(place: Place) -> None:
    for node, event in zip(NODES, (Event.ABORT, Event.DELETE, Event.TIMEOUT, Event.FAIL), strict=False):
        place.put(node, event)
    place.put(NODES[4], Event.INSPECT)
    place.put(NODES[5], Event.SET_POWER)
    place.put(NODES[6], Event.CONTINUE)
    found = [place.events(node) for node in NODES[:7]]
    assert found == [[Event.ABORT], [Event.DELETE], [Event.TIMEOUT], [Event.FAIL], [], [], []]


def test_a_request_that_came_after_a_read_is_found_by_the_next(place: Place) -> None:
    assert place.events(NODES[0]) == []
    place.put(NODES[0], Event.ABORT)
    place.clock.now += 1.0
    assert place.events(NODES[0]) == [Event.ABORT]


def test_while_a_thread_reads_the_others_go_on_with_what_is_known(place: Place) -> None:
    place.put(NODES[0], Event.ABORT)
    assert place.events(NODES[0]) == [Event.ABORT]
    place.clock.now += 1.0
    reads, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reads.set()
        assert may_go_on.wait(PATIENCE)

    place.before_reads = wait
    thread = threading.Thread(target=place.events, args=(NODES[1],))
    thread.start()
    assert reads.wait(PATIENCE)
    assert place.events(NODES[0]) == [Event.ABORT]
    may_go_on.set()
    thread.join(PATIENCE)
    assert place.reads == 2


def test_a_read_that_failed_is_repeated_by_the_next_that_asks(place: Place) -> None:
    def fail() -> None:
        raise StoreUnavailableError("away")

    place.put(NODES[0], Event.ABORT)
    place.before_reads = fail
    with pytest.raises(StoreUnavailableError):
        place.events(NODES[0])
    place.before_reads = lambda: None
    assert place.events(NODES[0]) == [Event.ABORT]
