"""The bus within one process: a condition variable and a counter for each channel."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence


class LocalBus:
    """``ports.bus.Bus`` for threads of this process; it waits in real time.

    Whoever brings other processes' messages sets ``hears``.
    """

    def __init__(self) -> None:
        self.hears = False
        self._changed = threading.Condition()
        self._positions: defaultdict[str, int] = defaultdict(int)
        self._closed = False

    def publish(self, channel: str) -> None:
        with self._changed:
            self._positions[channel] += 1
            self._changed.notify_all()

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        return self.wait_any((channel,), seen, timeout)

    def wait_any(self, channels: Sequence[str], seen: int, timeout: float) -> int:
        def position() -> int:
            return sum(self._positions[channel] for channel in channels)

        with self._changed:
            self._changed.wait_for(lambda: self._closed or position() > seen, timeout)
            return position()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
