"""An opening that the kernel ends: whatever is delayed for however long, it never outlasts the trusted time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import TimedOpening
from tests.support.manual_clock import ManualClock
from tests.support.rows import each

TTL, MARGIN, GUARD = 6.0, 1.0, 0.5

# How long a step is on its way before the kernel takes it, and how long its answer is.
delays = st.one_of(st.just(0.0), st.floats(0, 0.4), st.floats(0, 30))


class Kernel:
    """Elements with time-outs. ``trusted`` is until when the lease of the decision under way may be trusted."""

    step = 0.001

    def __init__(self, clock: ManualClock, draw: st.DataObject | None = None) -> None:
        self.clock = clock
        self._draw = draw
        self._armed: dict[int, float] = {}
        self.open_until = 0.0
        self.trusted = 0.0
        self.broken = False

    def _wait(self) -> None:
        if self._draw is not None:
            self.clock.now += self._draw.draw(delays)

    def _check(self, fine: bool) -> None:
        if self.broken or not fine:
            raise PxeFilterError("no such element")

    def arm(self, ticket: int, timeout: float) -> None:
        self._wait()
        self._check(True)
        self._armed[ticket] = self.clock.now + timeout
        self._wait()

    def open(self, ticket: int, timeout: float) -> None:
        self._wait()
        self._check(self._armed.pop(ticket, 0.0) > self.clock.now)
        self._let_pass(timeout)

    def refresh(self, timeout: float) -> None:
        self._wait()
        self._check(self.open_until > self.clock.now)
        self._let_pass(timeout)

    def _let_pass(self, timeout: float) -> None:
        self.open_until = self.clock.now + timeout
        assert self.open_until <= self.trusted + 1e-9, "open although the lease may be somebody else's"
        self._wait()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_it_never_outlasts_the_trusted_time(data: st.DataObject) -> None:
    clock = ManualClock()
    kernel = Kernel(clock, data)
    timed = TimedOpening(kernel, clock)
    for _ in range(data.draw(st.integers(1, 12))):
        kernel.trusted = clock.now + TTL - MARGIN - data.draw(st.floats(0, 2))
        try:
            known = timed.hold(kernel.trusted)
        except PxeFilterError:
            known = clock.now
        if kernel.open_until > clock.now:
            assert known >= kernel.open_until - 1e-6, "it says that it is closed before it is"
        clock.now += data.draw(delays)


@each("step", [0.001, 1.0])
def test_it_stays_open_while_it_is_held_and_closes_when_it_is_not(step: float) -> None:
    clock = ManualClock()
    kernel = Kernel(clock)
    kernel.step = step
    timed = TimedOpening(kernel, clock)
    for tick in range(100):
        kernel.trusted = clock.now + TTL - MARGIN - tick % 3 * 0.75  # as old as the last renewal
        timed.hold(kernel.trusted)
        clock.now += 1.0
        assert kernel.open_until > clock.now, f"closed at tick {tick}"
    assert kernel.open_until - clock.now <= 3.0


def test_a_refresh_that_fails_opens_anew_and_what_does_not_work_is_said() -> None:
    clock = ManualClock()
    kernel = Kernel(clock)
    timed = TimedOpening(kernel, clock)
    kernel.trusted = clock.now + 5
    assert timed.hold(kernel.trusted) > clock.now
    kernel.open_until = 0.0  # somebody flushed it
    assert timed.hold(kernel.trusted) > clock.now
    assert kernel.open_until > clock.now
    kernel.broken = True
    with pytest.raises(PxeFilterError):
        timed.hold(kernel.trusted)


def test_nothing_opens_for_a_lease_that_is_about_to_end() -> None:
    clock = ManualClock()
    kernel = Kernel(clock)
    assert TimedOpening(kernel, clock).hold(clock.now + 0.9) <= clock.now
    assert kernel.open_until == 0.0
