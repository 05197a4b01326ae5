"""Shares what a call has just read with all callers of a process: many readers cost little more than one.

While one caller reads it again, the others get the previous value, or wait if there is none. A value that takes long to
read is kept for longer, so that readers of a large fleet do not keep a processor busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import msgspec

from ferroscope.contracts.store import Clock

T = TypeVar("T")

# The share of the time that reading a value may take, and the seconds after which it is read anyway, unless the caller
# says otherwise.
_MAX_TIME_SHARE: Final = 0.005
_MAX_SECONDS: Final = 5.0
# Values that are kept at the same time: a list of ten thousand machines takes a megabyte.
_MAX_VALUES: Final = 64


class _CacheEntry(msgspec.Struct, frozen=True):
    """A value, and until when it is fresh."""

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
            if cached is not None:  # another caller read it while this one waited
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
        """Return the entry if it is at most this many seconds beyond its time."""
        cached = self._entries.get(name)
        return cached if cached is not None and cached.until + late > self._clock.monotonic() else None

    def _keep_entry(self, name: Hashable, cached: _CacheEntry, now: float) -> None:
        if len(self._entries) >= _MAX_VALUES:
            for expired in [key for key, entry in list(self._entries.items()) if entry.until <= now]:
                self._entries.pop(expired, None)
        if len(self._entries) < _MAX_VALUES:
            self._entries[name] = cached
