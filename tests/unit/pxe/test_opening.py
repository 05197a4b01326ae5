"""A leader's gate opens and stays open whatever the beat of the renewals, in steps as coarse as a kernel has them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from ferroscope.adapters.gate.timed import TimedOpening
from ferroscope.adapters.memory.bus import LocalBus
from ferroscope.adapters.memory.store import MemoryStore
from ferroscope.domain.lease import DEFAULT, FAST, LeaseProfile
from ferroscope.election import Candidate
from ferroscope.pxe.opening import Opening
from tests.unit.worker.conftest import ManualClock, ManualStop

# How long a program takes to start and to tell the kernel; a renewal takes as long.
_RUN = 0.02


class Kernel:
    """Sets whose time-outs are in steps of so many seconds; see ``timed.Kernel``."""

    def __init__(self, clock: ManualClock, step: float) -> None:
        self.clock, self.step = clock, step

    def arm(self, ticket: int, timeout: float) -> None:
        self.clock.now += _RUN

    def open(self, ticket: int, timeout: float) -> None:
        self.clock.now += _RUN

    def refresh(self, timeout: float) -> None:
        self.clock.now += _RUN


class Gate:
    """What of ``ports.gate.GateBackend`` an opening needs."""

    name = "memory"
    self_closing = True

    def __init__(self, clock: ManualClock, step: float) -> None:
        self.hold = TimedOpening(Kernel(clock, step), clock).hold

    def close(self) -> None:
        """It is."""


class Beat(ManualStop):
    """While the gate's thread waits, ``renew`` is called at its own times; at ``end`` it is over."""

    def __init__(self, clock: ManualClock, renew: Callable[[], object], *, at: float, every: float, end: float) -> None:
        super().__init__(clock)
        self._renew, self._at, self._every, self._end = renew, at, every, end

    def wait(self, timeout: float | None = None) -> bool:
        until = self._clock.now + (timeout or 0.0)
        while self._at <= until:
            self._clock.now = max(self._clock.now, self._at)
            self._renew()
            self._at += self._every
        self._clock.now = max(self._clock.now, until)
        return self._clock.now >= self._end


class AtOnce(threading.Thread):
    """Runs in the caller's thread."""

    def start(self) -> None:
        self.run()


@pytest.mark.parametrize("phase", [0.2, 0.4, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("step", [0.001, 1.0])
@pytest.mark.parametrize("profile", [DEFAULT, FAST], ids=["default", "fast"])
def test_it_is_open_soon_and_stays_so_wherever_renewals_fall(profile: LeaseProfile, step: float, phase: float) -> None:
    clock = ManualClock()
    store = MemoryStore(bus=LocalBus(), clock=clock)
    tenure = Candidate("pxe/net", "a", store=store, clock=clock, profile=profile).stand()
    assert tenure is not None
    won, every = clock.now, profile.renew + _RUN
    closed: list[float] = []

    def renew() -> None:
        if not opening.open:
            closed.append(clock.now - won)
        tenure.progress()
        assert tenure.renew()

    opening: Opening = Opening(
        Gate(clock, step),  # type: ignore[arg-type]
        tenure, clock=clock, period=min(1.0, profile.ttl / 6), new_thread=AtOnce,
        new_flag=partial(Beat, clock, renew, at=won + phase * every, every=every, end=won + 20),
    )  # fmt: skip
    clock.now += 0.5  # the guard
    opening.start()
    assert [at for at in closed if at > 0.5 + 2 * every] == []
