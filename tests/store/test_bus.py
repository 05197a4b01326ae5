"""``contracts.store.Bus``: a hint that is never lost between a look and the wait after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ferroscope.bus.local import LocalBus
from ferroscope.contracts.store import Bus
from tests.support.processes import HOURS, PATIENCE, finished


@pytest.fixture
def bus() -> Iterator[Bus]:
    opened = LocalBus()
    yield opened
    opened.close()


def test_a_message_that_came_before_the_wait_ends_it_at_once(bus: Bus) -> None:
    seen = bus.wait("requests", 0, 0.0)
    bus.publish("requests")
    assert finished(lambda: bus.wait("requests", seen, HOURS)) > seen


def test_a_message_ends_every_wait_for_its_channel(bus: Bus) -> None:
    positions: list[int] = []
    ready = threading.Barrier(4)

    def wait() -> None:
        ready.wait(PATIENCE)
        positions.append(bus.wait("requests", 0, HOURS))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    bus.publish("requests")
    for thread in threads:
        thread.join(PATIENCE)
    assert positions == [1, 1, 1]


def test_a_message_of_another_channel_ends_no_wait(bus: Bus) -> None:
    bus.publish("leases")
    assert bus.wait("requests", 0, 0.05) == 0


def test_a_wait_without_a_message_takes_its_time(bus: Bus) -> None:
    bus.publish("requests")
    seen = bus.wait("requests", 0, 0.0)
    assert bus.wait("requests", seen, 0.1) == seen
    ended = threading.Event()
    threading.Thread(target=lambda: (bus.wait("requests", seen, HOURS), ended.set()), daemon=True).start()
    assert not ended.wait(0.2)
    bus.publish("requests")
    assert ended.wait(PATIENCE)


def test_closing_ends_every_wait(bus: Bus) -> None:
    timer = threading.Timer(0.1, bus.close)
    timer.start()
    assert finished(lambda: bus.wait("requests", 0, HOURS)) == 0
    timer.join()


def test_publishing_on_a_closed_bus_does_no_harm(bus: Bus) -> None:
    bus.close()
    bus.publish("requests")


def test_a_wait_for_several_channels_ends_with_a_message_of_any(bus: Bus) -> None:
    channels = ("allow", "deny")
    bus.publish("allow")
    seen = finished(lambda: bus.wait_any(channels, 0, HOURS))
    assert bus.wait_any(channels, seen, 0.0) == seen
    bus.publish("requests")
    assert bus.wait_any(channels, seen, 0.0) == seen
    bus.publish("deny")
    assert finished(lambda: bus.wait_any(channels, seen, HOURS)) > seen
