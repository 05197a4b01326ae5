"""Limits log lines that any caller can cause, in any number."""

from __future__ import annotations

import threading


class QuietLog:
    """Allows ``burst`` log lines in ``period`` seconds; the next line after that says how many were suppressed."""

    def __init__(self, burst: int = 100, period: float = 10.0) -> None:
        self._burst = burst
        self._period = period
        self._lock = threading.Lock()
        self._began = float("-inf")
        self._lines = 0
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were suppressed before this one; None if this one must be suppressed too."""
        with self._lock:
            if now - self._began >= self._period:
                self._began, self._lines = now, 0
            if self._lines >= self._burst:
                self._left_out += 1
                return None
            self._lines += 1
            left_out, self._left_out = self._left_out, 0
            return left_out
