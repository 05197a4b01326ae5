"""Where the processes of one host queue for SQLite's single write lock, instead of colliding on it.

SQLite itself only polls for the lock, with pauses that grow; two busy processes then leave a fifth
of the machine idle. Here they take turns at a lock on a file beside the database, which the kernel
frees when a process dies. It is no more than a queue: what is safe is still SQLite's own doing,
so whoever cannot use the file (read-only, gone) simply does without, and so does whoever has waited for too
long: somebody may hold it who never writes. The wait takes no stop flag: what a process has to say when it
stops (what it gives back, that it leaves) waits here too, and it has an end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

# A transaction takes about this long; a blocking wait could not be given up.
_LOOK_EVERY: Final = 0.0003
# For so long a queue that did not move is not waited in again, unless it moves.
_DISTRUST: Final = 30.0
# Only those who may write the database may stand in its queue.
_MODE: Final = 0o600

_log = structlog.get_logger(__name__)


class SqliteWriteLock:
    """``path`` is the lock's file; ``timeout`` the seconds to wait for a turn. One thread at a time."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._file: int | None = None
        self._distrusted_until = float("-inf")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the turn, or go on without it where it cannot be had in time."""
        file = self._opened()
        if file is None or not self._acquire(file):
            yield
            return
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self) -> int | None:
        if self._file is None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, _MODE)
            except OSError:
                return None
            weakref.finalize(self, os.close, self._file)
            with contextlib.suppress(OSError):  # one of an earlier release may be open to all
                os.fchmod(self._file, _MODE)
        return self._file

    def _acquire(self, file: int) -> bool:
        """Return whether it is our turn; where nobody moved for too long, the queue is left for a while."""
        now = time.monotonic()
        deadline = now if now < self._distrusted_until else now + self._timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self._give_up(now)
                    return False
                time.sleep(_LOOK_EVERY)
            except OSError:  # a file system without locks
                return False
            else:
                self._distrusted_until = float("-inf")
                return True

    def _give_up(self, now: float) -> None:
        if now >= self._distrusted_until:
            self._distrusted_until = time.monotonic() + _DISTRUST
            _log.warning(
                "the queue before the database's write lock does not move; going on without it",
                file=self._path,
                waited=round(time.monotonic() - now, 3),
                advice="see who holds the file: fuser -v FILE",
            )
