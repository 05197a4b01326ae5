"""What was found out a moment ago, for all callers of a process: many who look cost little more than one.

While one of them finds it out again, the others see what was known before, or wait for it if nothing was. What takes
long, in the database too, is kept for longer, so that those who look at a large fleet keep no processor busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import msgspec

from ferroscope.contracts.queue import Clock

T = TypeVar("T")

# The share of the time for finding something out again and again; after so many seconds it is done anyway, unless the
# caller says otherwise.
_MAX_TIME_SHARE: Final = 0.005
_MAX_SECONDS: Final = 5.0
# Things that are kept at the same time: a list of ten thousand machines takes a megabyte.
_MAX_VALUES: Final = 64


class _CacheEntry(msgspec.Struct, frozen=True):
    """A value, and until when it is as good as new."""

    value: Any
    until: float


class TtlCache:
    """Threads may use it at the same time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _CacheEntry] = {}
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, name: Hashable, seconds: float, find: Callable[[], T], *, max_seconds: float = _MAX_SECONDS) -> T:
        """Return what ``find`` has returned for this ``name``, at most ``seconds`` old; call it once otherwise.

        Where ``find`` takes long, the value may be ``max_seconds`` old.
        """
        cached = self._read_entry(name, 0.0)
        if cached is not None:
            return cached.value  # type: ignore[no-any-return]
        lock = self._locks.setdefault(name, threading.Lock())
        older = self._read_entry(name, max_seconds)
        if not lock.acquire(blocking=older is None):
            return older.value  # type: ignore[union-attr, no-any-return]
        try:
            cached = self._read_entry(name, 0.0)
            if cached is not None:  # found while this one waited
                return cached.value  # type: ignore[no-any-return]
            began = self._clock.monotonic()
            value = find()
            now = self._clock.monotonic()
            self._keep_entry(
                name, _CacheEntry(value, now + max(seconds, min(max_seconds, (now - began) / _MAX_TIME_SHARE))), now
            )
            return value
        finally:
            self._locks.pop(name, None)
            lock.release()

    def _read_entry(self, name: Hashable, late: float) -> _CacheEntry | None:
        """Return what is known, at most so many seconds after its time."""
        cached = self._entries.get(name)
        return cached if cached is not None and cached.until + late > self._clock.monotonic() else None

    def _keep_entry(self, name: Hashable, cached: _CacheEntry, now: float) -> None:
        if len(self._entries) >= _MAX_VALUES:
            for expired in [key for key, entry in list(self._entries.items()) if entry.until <= now]:
                self._entries.pop(expired, None)
        if len(self._entries) < _MAX_VALUES:
            self._entries[name] = cached
