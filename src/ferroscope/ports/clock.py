"""Time and stopping: the only source of both, so that tests and simulations can drive them."""

from __future__ import annotations

from typing import Protocol


class StopFlag(Protocol):
    """Set once, when the process shall stop; a ``threading.Event`` is one."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set or ``timeout`` seconds are over; True when it is set."""


class Clock(Protocol):
    """``time`` is for people and never compared between hosts; ``monotonic`` measures durations."""

    def time(self) -> float: ...

    def monotonic(self) -> float:
        """Seconds that also pass while the host is suspended (CLOCK_BOOTTIME)."""
