"""An advisory file lock that serializes the writers of a SQLite database on one host.

SQLite itself polls for its write lock with increasing pauses, which leaves a fifth of the machine idle with two busy
processes. Here they first acquire a lock on a file beside the database, which the kernel releases when a process dies.
It only improves throughput: safety depends on SQLite's own lock alone. So a process that cannot use the file
(read-only, missing) writes without it, and so does one whose wait timed out: the holder may never write. The wait
ignores the stop flag, since a process that stops must still write (release its claims, leave the members), and it is
limited anyway.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

import structlog
from sqlalchemy import Engine

# Seconds between attempts, about one transaction. A blocking flock could not time out.
_POLL_INTERVAL: Final = 0.0003
# After a timeout, seconds for which the lock is only tried without waiting.
_BYPASS: Final = 30.0
# Only users who can write the database may lock the file.
_MODE: Final = 0o600

_log = structlog.get_logger(__name__)


def write_lock(engine: Engine, timeout: float) -> Callable[[], AbstractContextManager[None]]:
    """Return what to enter before writing to the engine's file; the writer may have to do without the lock."""
    file = engine.url.database
    if not file or file == ":memory:":
        return contextlib.nullcontext
    lock = SqliteWriteLock(f"{file}-writelock", timeout)
    return lambda: lock


class SqliteWriteLock:
    """``path`` is the lock file; ``timeout`` the seconds to wait for it. For one thread at a time, which enters it."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._file: int | None = None
        self._is_held = False
        self._bypassed_until = float("-inf")

    def __enter__(self) -> None:
        self._is_held = self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_held:
            with contextlib.suppress(OSError):  # what was written is committed
                self.release()

    def acquire(self) -> bool:
        """Acquire the lock; return False if that took too long, and the caller has to do without it."""
        file = self._opened()
        return file is not None and self._acquire(file)

    def release(self) -> None:
        """Release the lock, which was acquired."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _opened(self) -> int | None:
        if self._file is None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, _MODE)
            except OSError:
                return None
            weakref.finalize(self, os.close, self._file)
            with contextlib.suppress(OSError):  # an earlier release may have created it with wider permissions
                os.fchmod(self._file, _MODE)
        return self._file

    def _acquire(self, file: int) -> bool:
        """Acquire the lock; return False after a timeout, and then try without waiting for a while."""
        now = time.monotonic()
        deadline = now if now < self._bypassed_until else now + self._timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self._give_up(now)
                    return False
                time.sleep(_POLL_INTERVAL)
            except OSError:  # a file system without locks
                return False
            else:
                self._bypassed_until = float("-inf")
                return True

    def _give_up(self, now: float) -> None:
        if now >= self._bypassed_until:
            self._bypassed_until = time.monotonic() + _BYPASS
            _log.warning(
                "timed out waiting for the database's write lock file; continuing without it",
                file=self._path,
                waited=round(time.monotonic() - now, 3),
                advice="find the process that holds the file: fuser -v FILE",
            )
