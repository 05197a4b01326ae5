"""Where the processes of one host queue for SQLite's single write lock, instead of colliding on it.

SQLite itself only polls for the lock, with pauses that grow; two busy processes then leave a fifth
of the machine idle. Here they take turns at a lock on a file beside the database, which the kernel
frees when a process dies. It is no more than a queue: what is safe is still SQLite's own doing,
so whoever cannot use the file (read-only, gone) simply does without. The wait takes no stop flag: what
a process has to say when it stops (what it gives back, that it leaves) waits here too, and it has an end.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ferroscope.ports.errors import StoreUnavailableError

# A transaction takes about this long; a blocking wait could not be given up.
_LOOK_EVERY: Final = 0.0003


class Turnstile:
    """``path`` is the lock's file; ``timeout`` the seconds to wait for a turn. One thread at a time."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._file: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the turn; ``StoreUnavailableError`` where another process keeps it for too long."""
        file = self._opened()
        if file is None:
            yield
            return
        self._acquire(file)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self) -> int | None:
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:
                return None
            weakref.finalize(self, os.close, self._file)
        return self._file

    def _acquire(self, file: int) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreUnavailableError("another process has held the write lock for too long") from None
                time.sleep(_LOOK_EVERY)
            else:
                return
