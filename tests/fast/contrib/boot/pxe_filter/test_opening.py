"""A leader's filter opens and stays open whatever the beat of the renewals, in steps as coarse as a kernel has them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import TimedOpening
from ferroscope.contrib.boot.pxe_filter.leader import FilterLease
from ferroscope.core.model import DEFAULT, FAST, LeaseProfile
from ferroscope.leadership import Election
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.rows import each
from tests.support.stores import open_store

# How long a renewal takes; a program that tells the kernel takes as long on an idle host.
_RUN = 0.02
_QUICK = LeaseProfile(ttl=3.0, renew=0.5, poll=3.0, margin=0.5)


class Kernel:
    """Sets whose time-outs are in steps of so many seconds; see ``timed.Kernel``. ``shut`` is when one ran out."""

    def __init__(self, clock: ManualClock, step: float, run: float = _RUN) -> None:
        self.clock, self.step = clock, step
        self.shut: list[float] = []
        self._run = run
        self._open_until = 0.0

    def arm(self, ticket: int, timeout: float) -> None:
        self.clock.now += self._run

    def open(self, ticket: int, timeout: float) -> None:
        self.clock.now += self._run
        self._open_until = self.clock.now + timeout

    def refresh(self, timeout: float) -> None:
        self.clock.now += self._run
        if self.clock.now >= self._open_until:
            self.shut.append(self._open_until)
            raise PxeFilterError("No such file or directory")
        self._open_until = self.clock.now + timeout


class PxeFilter:
    """What of ``contracts.plugins.FilterBackend`` an opening needs."""

    name = "memory"
    self_closing = True

    def __init__(self, kernel: Kernel) -> None:
        self.hold = TimedOpening(kernel, kernel.clock).hold

    def close(self) -> None:
        """It is."""


class Beat(ManualStop):
    """While the filter's thread waits, ``renew`` is called at its own times; at ``end`` it is over."""

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


@each("phase", [0.2, 0.4, 0.6, 0.8, 1.0])
@each("step", [0.001, 1.0])
@each("profile", [DEFAULT, FAST])
def test_it_is_open_soon_and_stays_so_wherever_renewals_fall(profile: LeaseProfile, step: float, phase: float) -> None:
    every = profile.renew + _RUN
    assert [at for at in lead(Kernel(ManualClock(), step), profile, phase) if at > 0.5 + 2 * every] == []


@each("phase", [0.2, 0.4, 0.6, 0.8, 1.0])
@each("profile", [DEFAULT, FAST, _QUICK])
def test_it_stays_open_though_each_refresh_is_on_its_way_for_a_while(profile: LeaseProfile, phase: float) -> None:
    kernel = Kernel(ManualClock(), 0.001, run=0.25)
    lead(kernel, profile, phase)
    assert kernel.shut == []


@each("silence", [5.2, 5.6, 5.9])
def test_it_opens_again_when_a_renewal_comes_after_the_lease_was_no_longer_trusted(silence: float) -> None:
    closed = lead(Kernel(ManualClock(), 0.001), DEFAULT, 1.0, silent=(4.0, 4.0 + silence))
    assert closed
    assert max(closed) < 4.0 + silence + DEFAULT.renew + _RUN


def lead(
    kernel: Kernel, profile: LeaseProfile, phase: float, *, silent: tuple[float, float] = (0.0, 0.0)
) -> list[float]:
    """Lead for 20 seconds; return at which of them a renewal found the filter closed.

    The first renewal comes after the part ``phase`` of the time between two; between the seconds ``silent`` none does.
    """
    clock = kernel.clock
    store = open_store(clock=clock)
    leadership = Election("pxe/net", "a", store=store, clock=clock, profile=profile).campaign()
    assert leadership is not None
    won, every = clock.now, profile.renew + _RUN
    closed: list[float] = []

    def renew() -> None:
        if silent[0] < clock.now - won < silent[1]:
            return
        if not filter_lease.open:
            closed.append(clock.now - won)
        leadership.keep_alive()
        assert leadership.renew()

    filter_lease: FilterLease = FilterLease(
        PxeFilter(kernel),  # type: ignore[arg-type]
        leadership, clock=clock, period=min(1.0, profile.ttl / 6), new_thread=AtOnce,
        new_flag=partial(Beat, clock, renew, at=won + phase * every, every=every, end=won + 20),
    )  # fmt: skip
    clock.now += 0.5  # the guard
    filter_lease.start()
    return closed
