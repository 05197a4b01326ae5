"""What keeps anonymous callers from filling the log, and from making the store count what is known.

One of each serves all threads of the process; times are those of the host's monotonic clock.
"""

from __future__ import annotations

import threading

from ferroscope.core.lookup import Refused


class QuietLog:
    """Admits ``burst`` lines in ``period`` seconds; the first one after that says how many were left out."""

    def __init__(self, burst: int = 100, period: float = 10.0) -> None:
        self._burst = burst
        self._period = period
        self._lock = threading.Lock()
        self._began = float("-inf")
        self._lines = 0
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were left out before this one; None where this one is to be left out too."""
        with self._lock:
            if now - self._began >= self._period:
                self._began, self._lines = now, 0
            if self._lines >= self._burst:
                self._left_out += 1
                return None
            self._lines += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


class Valve:
    """Remembers for a moment that nothing more is let in, so that a flood need not ask the store each time."""

    def __init__(self) -> None:
        self._closed: tuple[float, Refused] | None = None

    def refusal(self, now: float) -> Refused | None:
        """Return why it is closed, None where it is not."""
        closed = self._closed
        return closed[1] if closed is not None and now < closed[0] else None

    def close(self, refusal: Refused, until: float) -> None:
        """Let nobody in before ``until``."""
        self._closed = (until, refusal)


class PerMinute:
    """Counts by source, within the present minute; those of another minute are forgotten."""

    def __init__(self, remembered: int = 20_000) -> None:
        self._lock = threading.Lock()
        self._remembered = remembered
        self._minute = 0
        self._made: dict[str, int] = {}

    def made(self, source: str, minute: int) -> int:
        """Count one more of this source; return how many these are in this minute. Past its memory it counts nobody."""
        with self._lock:
            if minute != self._minute:
                self._minute, self._made = minute, {}
            if source not in self._made and len(self._made) >= self._remembered:
                return 1
            self._made[source] = self._made.get(source, 0) + 1
            return self._made[source]
