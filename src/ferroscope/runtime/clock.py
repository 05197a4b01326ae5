"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """See ``ports.clock.Clock``; CLOCK_BOOTTIME also counts the time of a suspended host."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
