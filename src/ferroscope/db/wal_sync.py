"""Makes commits to SQLite durable after they were made, for all threads that wait for it at the same time.

SQLite itself would sync its write-ahead log within COMMIT, and nobody else can write meanwhile: a disk that needs 5 ms
for it would limit a site to 200 durable commits per second. With ``synchronous = NORMAL`` COMMIT only writes the log.
Whoever needs durability then syncs the log, which makes all commits before it durable as well, in their order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine


def sync_of(engine: Engine) -> Callable[[], None]:
    """Return what makes all commits to the engine's file durable; ``OSError``."""
    file = engine.url.database
    return (lambda: None) if not file or file == ":memory:" else WalSync(file)


class WalSync:
    """``database`` is the path of the database's file."""

    def __init__(self, database: str) -> None:
        self._log = f"{database}-wal"
        self._syncing = threading.Lock()
        self._begun = self._ended = 0
        self._entry = 0  # the inode of the log whose directory entry is durable

    def __call__(self) -> None:
        """Return when all commits before the call are durable; ``OSError``."""
        # A sync that has begun already may have missed the last commit.
        needed = self._begun + 1
        with self._syncing:
            if self._ended >= needed:
                return
            self._begun += 1
            self._sync()
            self._ended = self._begun

    def _sync(self) -> None:
        try:
            file = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # the last connection was closed, and SQLite has synced the database
        try:
            os.fdatasync(file)
            if (inode := os.fstat(file).st_ino) != self._entry:
                self._sync_directory()
                self._entry = inode
        finally:
            os.close(file)

    def _sync_directory(self) -> None:
        directory = os.open(Path(self._log).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # some file systems cannot, and do not need to
                os.fsync(directory)
        finally:
            os.close(directory)
