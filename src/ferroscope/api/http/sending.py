"""Limits the files that are sent at once, and keeps a reader from mixing two versions of a file.

A BMC reads an image in hundreds of requests. If the image is replaced meanwhile, a reader of the old version gets an
error, because the rest would come from another file. One instance of each class serves all threads of a process.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import Final

# A reader without a request for this many seconds begins again.
_PAUSE_SECONDS: Final = 60.0
_MAX_READERS: Final = 20_000


class Places:
    """Places for files that are being sent, shared by source.

    A source that has as many places as are free gets no more. So one slow reader leaves half of them, and two a third.
    """

    def __init__(self, most: int = 128) -> None:
        self._free = most
        self._taken: Counter[str] = Counter()
        self._lock = threading.RLock()  # an unclosed reply gives its place back in any thread, at any time

    def take(self, source: str) -> bool:
        """Take a place for this source; False if it may have no more."""
        with self._lock:
            if self._taken[source] >= self._free:
                return False
            self._free -= 1
            self._taken[source] += 1
            return True

    def give_back(self, source: str) -> None:
        with self._lock:
            self._free += 1
            self._taken[source] -= 1
            if not self._taken[source]:
                del self._taken[source]


class Readers:
    """Which version of a file each source reads."""

    def __init__(self, remembered: int = _MAX_READERS) -> None:
        self._remembered = remembered
        self._reading: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    def may_read(self, source: str, file: str, version: str, now: float, *, begins: bool) -> bool:
        """Note that a source reads this version of a file; False if it is in the middle of another one.

        ``now``: seconds of a clock that never goes back. ``begins``: it reads nothing that belongs to what it has read.
        Unknown sources ("") are not distinguished.
        """
        if not source:
            return True
        with self._lock:
            read, at = self._reading.get((source, file), (version, now))
            if read != version and now - at < _PAUSE_SECONDS and not begins:
                return False
            self._reading[source, file] = (version, now)
            self._reading.move_to_end((source, file))
            if len(self._reading) > self._remembered:
                self._reading.popitem(last=False)
        return True
