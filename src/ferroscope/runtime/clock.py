"""The real clock of this host, and how one notices that the database's was set."""

from __future__ import annotations

import threading
import time
from typing import Final

_NOTICED: Final = 10.0  # seconds; what is less is no harm, and may be a host that stood still


class SystemClock:
    """See ``ports.clock.Clock``; CLOCK_BOOTTIME also counts the time of a suspended host."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class DatabaseClock:
    """Compares the database's clock, look by look, with the time that has passed here.

    ``set_by`` is by how many seconds it was set, until somebody says that this is ``settled``; ``window`` is how long
    before the look that found it that may have been.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[float, float, float] | None = None
        self.set_by = 0.0
        self.window = 0.0

    def look(self, now: float, asked_at: float, answered_at: float) -> None:
        """``now`` was the database's answer to a question of this time by our monotonic clock, and of that at most."""
        with self._lock:
            before, self._last = self._last, (now, asked_at, answered_at)
            if before is None:
                return
            went, least, most = now - before[0], asked_at - before[2], answered_at - before[1]
            step = went - min(max(went, least), most)
            if abs(step) >= _NOTICED:
                self.set_by += step
                self.window = most + 1.0

    def settled(self, seconds: float) -> None:
        """What was set by so much is as if it had not been."""
        with self._lock:
            self.set_by -= seconds
