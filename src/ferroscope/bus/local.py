"""The bus within one process: a counter for each channel, a condition variable for those who wait for the same."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ferroscope.contracts.store import REQUESTS_OF, Channel
from ferroscope_client.core.obstacles import Lane

# The channels that a message about requests advances; one without a lane that is known here advances all.
_ADVANCED: Final = {REQUESTS_OF[lane]: frozenset({REQUESTS_OF[lane], Channel.REQUESTS}) for lane in Lane}
_ALL: Final = frozenset(REQUESTS_OF.values())

# Where messages of other processes come from.
DATABASE: Final = "database"
RABBITMQ: Final = "rabbitmq"


class LocalBus:
    """``contracts.store.Bus`` for the threads of this process; waits are in real time.

    A thread that brings in other processes' messages does so within ``hearing``.
    """

    def __init__(self) -> None:
        self._sources: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._positions: defaultdict[str, int] = defaultdict(int)
        # By the channels waited for: a message wakes no thread that would only wait again.
        self._waiters: dict[tuple[str, ...], threading.Condition] = {}
        self._closed = False

    @property
    def hears(self) -> bool:
        return any(self._sources.values())

    def hears_from(self, source: str) -> bool:
        """Whether messages of this source are being received."""
        return self._sources[source] > 0

    @contextmanager
    def hearing(self, source: str) -> Iterator[None]:
        """Messages of this source are being received until the end of the block."""
        self._count(source, 1)
        try:
            yield
        finally:
            self._count(source, -1)

    def _count(self, source: str, change: int) -> None:
        with self._lock:
            self._sources[source] += change

    def publish(self, message: str) -> None:
        channel = message.partition(" ")[0]
        moved = frozenset({channel}) if channel != Channel.REQUESTS else _ADVANCED.get(message, _ALL)
        with self._lock:
            for channel in moved:
                self._positions[channel] += 1
            for channels, condition in self._waiters.items():
                if not moved.isdisjoint(channels):
                    condition.notify_all()

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        return self.wait_any((channel,), seen, timeout)

    def wait_any(self, channels: Sequence[str], seen: int, timeout: float) -> int:
        def position() -> int:
            return sum(self._positions[channel] for channel in channels)

        with self._lock:
            if timeout > 0 and not self._closed and position() <= seen:
                self._condition(tuple(channels)).wait_for(lambda: self._closed or position() > seen, timeout)
            return position()

    def _condition(self, channels: tuple[str, ...]) -> threading.Condition:
        condition = self._waiters.get(channels)
        if condition is None:
            condition = self._waiters[channels] = threading.Condition(self._lock)
        return condition

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for condition in self._waiters.values():
                condition.notify_all()
