"""A result that takes long to read, remembered for a time that depends on that: reading takes a small share of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ferroscope.contracts.queue import Clock

T = TypeVar("T")

# Seconds: what is read in less is not remembered, the rest at least for so long. Reading takes at most one of so many
# parts of the time.
_SLOW: Final = 0.02
_LEAST: Final = 20.0
_SHARE: Final = 100.0


class Remembered(Generic[T]):
    """Threads may use it at the same time; some of them may then read the result, too."""

    def __init__(self) -> None:
        self._known: tuple[float, T] | None = None

    def get(self, read: Callable[[], T], clock: Clock) -> T:
        """Return the result of ``read``, or that of an earlier call."""
        known, began = self._known, clock.monotonic()
        if known is not None and began < known[0]:
            return known[1]
        found = read()
        took = clock.monotonic() - began
        self._known = (began + max(_LEAST, took * _SHARE), found) if took > _SLOW else None
        return found
