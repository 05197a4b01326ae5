"""Makes commits to SQLite durable after they were made, for all threads that wait for it at the same time.

SQLite itself would sync its write-ahead log within COMMIT, and nobody else can write meanwhile: a disk that needs 5 ms
for it would limit a site to 200 durable commits per second. With ``synchronous = NORMAL`` COMMIT only writes the log.
Whoever needs durability then syncs the log, which makes all commits before it durable as well, in their order.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path


class WalSync:
    """``log`` is the path of the write-ahead log; "" if SQLite has none, and syncs by itself.

    ``has_failed``: a sync has failed, so the log may have a hole, which no later sync reports, or nobody will find it.
    """

    def __init__(self) -> None:
        self.log = ""
        self.has_failed = False
        self._syncing = threading.Lock()
        self._begun = self._ended = 0
        self._entry = 0  # the inode of the log whose directory entry is durable

    def __call__(self) -> None:
        """Return when all commits before the call are durable; ``OSError``, also if the log was deleted."""
        # A sync that has begun already may have missed the last commit.
        needed = self._begun + 1
        with self._syncing:
            if self._ended >= needed:
                return
            if self.has_failed:  # while this thread waited; a sync of its own would not be told
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._begun += 1
            try:
                self._sync()
            except OSError:
                self.has_failed = True
                raise
            self._ended = self._begun

    def _sync(self) -> None:
        if not self.log:
            return
        file = os.open(self.log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(file)
            if (inode := os.fstat(file).st_ino) != self._entry:
                self._sync_directory()
                self._entry = inode
        finally:
            os.close(file)

    def _sync_directory(self) -> None:
        directory = os.open(Path(self.log).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # some file systems cannot, and do not need to
                os.fsync(directory)
        finally:
            os.close(directory)
