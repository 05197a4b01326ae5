"""A candidate waits for the moment at which the lease in its way runs out, not for a whole poll beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.adapters.memory import LocalBus, MemoryStore
from ferroscope.domain.lease import DEFAULT
from ferroscope.election import Candidate
from ferroscope.periodic.singleton import Singleton
from tests.unit.worker.conftest import ManualClock, ManualStop


class Idle:
    name = "office"
    period = 1.0

    def step(self, fence: Any) -> str:
        return "nothing"


class Waits(LocalBus):
    """Notes for how long it was waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        if timeout:
            self.waits.append(timeout)
        return 0


@pytest.mark.parametrize(("passed", "shortest", "longest"), [(0.0, 0.375, 0.625), (5.9, 0.1, 0.16), (7.0, 0.0, 0.0)])
def test_a_candidate_waits_until_the_lease_runs_out(passed: float, shortest: float, longest: float) -> None:
    clock, bus = ManualClock(), Waits()
    store = MemoryStore(bus=bus, clock=clock)
    leader = Candidate("office", "a", store=store, clock=clock, profile=DEFAULT)
    assert leader.stand() is not None
    clock.now += passed
    follower = Candidate("office", "b", store=store, clock=clock, profile=DEFAULT)
    stop = ManualStop(clock)
    stop.set()
    singleton = Singleton(
        Idle(), follower, keep=lambda _tenure, _reset: None, profile=DEFAULT, bus=bus, clock=clock, stop=stop
    )
    singleton.stand()
    waited = sum(bus.waits)
    assert shortest <= waited <= longest
