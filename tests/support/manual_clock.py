"""A clock that stands still until a test moves it, and a stop flag whose waits do."""

from __future__ import annotations

import threading


class ManualClock:
    """Time passes only when somebody waits or the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class ManualStop(threading.Event):
    """A stop flag whose waits move the manual clock instead of sleeping."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0.0
        return self.is_set()
