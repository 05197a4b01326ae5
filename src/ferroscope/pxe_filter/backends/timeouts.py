"""An opening that the kernel ends: how long it may last, and why it cannot begin too late.

The kernel counts a time-out from the moment when it takes the element, and between our decision
and that moment anything may happen: this process, or the program that it runs, may be stopped for
as long as somebody likes. So no element is ever added unconditionally: a refresh first deletes the
element that it replaces, and the first opening one that was added a moment before (``armed``);
where that has expired, the step fails. The latest moment is thus known, and the time-out is what
is left of the trusted time from *then* on.
"""

from __future__ import annotations

import random
from typing import Final, Protocol

from ferroscope.contracts.pxe_filter import PxeFilterError
from ferroscope.contracts.queue import Clock

# In seconds: how long an opening may be on its way, and the longest time-out.
_ARMED: Final = 1.0
_LONGEST: Final = 3.0


class Kernel(Protocol):
    """The steps; each raises ``PxeFilterError``. Time-outs are in seconds; ``step`` is the least difference of two."""

    step: float

    def arm(self, ticket: int, timeout: float) -> None:
        """Add the element ``ticket``; it opens nothing."""

    def open(self, ticket: int, timeout: float) -> None:
        """Take the ticket away and let pass, in this order; without the ticket, nothing happens."""

    def refresh(self, timeout: float) -> None:
        """Let pass for so long from now on; where nobody may pass any more, nothing happens."""


class TimedOpening:
    """``hold`` is that of ``contracts.pxe_filter.FilterBackend``."""

    def __init__(self, kernel: Kernel, clock: Clock) -> None:
        self._kernel = kernel
        self._clock = clock
        self._open_until = 0.0
        self._refreshable = False

    def hold(self, until: float) -> float:
        if self._refreshable and self._clock.monotonic() < self._open_until:
            try:
                return self._refresh(until)
            except PxeFilterError:  # the element has expired meanwhile, or is gone with all the others
                self._refreshable = False
        return self._begin(until)

    def doubt(self) -> None:
        """From now on nothing is refreshed that was opened before."""
        self._refreshable = False

    def forget(self) -> None:
        """It was closed."""
        self._refreshable = False
        self._open_until = 0.0

    def _refresh(self, until: float) -> float:
        """Replace an element that is alive; at the latest, that happens when it would have expired."""
        timeout = self._whole(min(_LONGEST, until - self._open_until))
        if timeout <= 0:
            return self._open_until
        self._open_until += timeout  # should the answer be lost
        self._kernel.refresh(timeout)
        return self._opened(timeout)

    def _begin(self, until: float) -> float:
        """Open from nothing; at the latest, that happens when the ticket expires."""
        if self._whole(until - self._clock.monotonic() - _ARMED) <= 0:
            return self._open_until
        ticket = random.randrange(1, 2**16)  # noqa: S311  # only different from those of a second ago
        self._kernel.arm(ticket, _ARMED)
        armed_until = self._clock.monotonic() + _ARMED
        timeout = self._whole(min(_LONGEST, until - armed_until))
        if timeout <= 0:
            return self._open_until
        self._open_until = max(self._open_until, armed_until + timeout)
        self._kernel.open(ticket, timeout)
        return self._opened(timeout)

    def _opened(self, timeout: float) -> float:
        self._open_until = self._clock.monotonic() + timeout
        self._refreshable = True
        return self._open_until

    def _whole(self, seconds: float) -> float:
        """Return what the kernel can count, and no more."""
        return max(0.0, seconds // self._kernel.step * self._kernel.step)
