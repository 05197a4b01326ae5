"""An outage of what brings messages: it is logged when it begins and when it ends, not with each try in between."""

from __future__ import annotations

import threading
import time


class Outage:
    """Since when a connection is down and why; read by other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._why = ""

    def begin(self, why: str) -> bool:
        """Note that it is down; return whether that is new."""
        with self._lock:
            new = self._since is None
            self._since = time.monotonic() if self._since is None else self._since
            self._why = why
            return new

    def end(self) -> bool:
        """Note that it is up; return whether that is new."""
        with self._lock:
            ended, self._since = self._since is not None, None
            return ended

    def look(self) -> tuple[float, str] | None:
        """Return for how many seconds it has been down, and why; None if it is up."""
        with self._lock:
            return None if self._since is None else (time.monotonic() - self._since, self._why)
