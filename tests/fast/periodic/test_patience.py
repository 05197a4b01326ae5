"""A candidate waits for the moment at which the lease in its way runs out, and polls only where it hears nothing."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.bus.local import LocalBus
from ferroscope.contracts.store import StopFlag
from ferroscope.core.model import DEFAULT
from ferroscope.leadership import Election
from ferroscope.periodic.singleton import Singleton
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.rows import each
from tests.support.stores import open_store


class Idle:
    name = "backup"
    period = 1.0

    def step(self, leadership: Any) -> str:
        return "nothing"


class Waits(LocalBus):
    """Lets time pass; at ``released`` somebody lets go of the lease."""

    def __init__(self, clock: ManualClock, *, hears: bool, released: float = 1e9) -> None:
        super().__init__()
        self._hears = hears
        self._clock = clock
        self._released = clock.now + released

    @property
    def hears(self) -> bool:
        return self._hears

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        self._clock.now = min(self._clock.now + timeout, max(self._released, self._clock.now))
        return int(self._clock.now >= self._released)


def follow(clock: ManualClock, bus: LocalBus, *, passed: float, stop: StopFlag | None = None) -> float:
    """Return for how long a candidate waits ``passed`` seconds after somebody else was elected."""
    store = open_store(bus=bus, clock=clock)
    assert Election("backup", "a", store=store, clock=clock, profile=DEFAULT).campaign() is not None
    clock.now += passed
    began = clock.now
    singleton = Singleton(
        Idle,
        Election("backup", "b", store=store, clock=clock, profile=DEFAULT),
        keep=lambda _leadership, _reset, _leave: None,
        profile=DEFAULT,
        bus=bus,
        clock=clock,
        stop=stop or ManualStop(clock),
    )
    singleton.campaign()
    return clock.now - began


@each(
    ("hears", "passed", "shortest", "longest"),
    [(False, 0.0, 0.375, 0.625), (False, 5.9, 0.1, 0.16), (True, 0.0, 6.0, 6.06), (True, 5.9, 0.1, 0.16)],
)
def test_a_candidate_that_hears_waits_until_the_lease_runs_out_and_another_one_polls(
    hears: bool, passed: float, shortest: float, longest: float
) -> None:
    clock = ManualClock()
    assert shortest <= follow(clock, Waits(clock, hears=hears), passed=passed) <= longest


def test_a_release_ends_the_wait() -> None:
    clock = ManualClock()
    assert follow(clock, Waits(clock, hears=True, released=2.3), passed=0.0) == pytest.approx(2.3)


def test_a_lease_that_the_databases_clock_has_made_longer_than_any_is_looked_at_again() -> None:
    """It was set back after the lease was written; its holder's next renewal makes it an ordinary one."""
    clock = ManualClock()
    assert follow(clock, Waits(clock, hears=True), passed=-3600.0) < 2 * DEFAULT.ttl


def test_whoever_was_told_to_stop_just_before_it_looked_does_not_wait() -> None:
    clock = ManualClock()
    stop = ManualStop(clock)

    class Woken(Waits):
        def wait(self, channel: str, seen: int, timeout: float) -> int:
            stop.set()  # and what was published then is in the position that this returns
            return super().wait(channel, seen, timeout)

    assert follow(clock, Woken(clock, hears=True), passed=0.0, stop=stop) == 0.0
