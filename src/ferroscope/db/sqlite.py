"""SQLite: its connections, each statement of which has a time limit, and commits that are made durable together."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from ferroscope.db.executor import Command, CommandError, Result

# A connection's, to SQLite: the path of its write-ahead log; "" if it has none, as not every file system can.
WAL: Final = "write-ahead log"


def create_private_file(_dialect: Any, _record: Any, arguments: list[str], _parameters: Any) -> None:
    """Create a missing database file readable by its owner only: it will contain BMC passwords.

    SQLite gives its auxiliary files the same mode. An existing file must not be opened here: closing it would release
    the POSIX locks of all of this process's connections, and other processes could then delete a WAL that is in use.
    """
    path = arguments[0]
    if not path.startswith((":memory:", "file:")):
        with contextlib.suppress(OSError):  # SQLite reports the error when it connects
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def prepare(timeout: float, connection: Any, record: Any) -> None:
    """Set up a new connection."""
    # The first connection to open the file and the last to close it lock it briefly, outside ``sqlite_writers``.
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(timeout * 1000)}")
    (mode,) = cursor.execute("PRAGMA journal_mode=WAL").fetchone()
    for pragma in ("synchronous=FULL", "wal_autocheckpoint=1000", "cache_size=-8192", "busy_timeout=0"):
        cursor.execute(f"PRAGMA {pragma}")
    # As SQLite names it, which follows symbolic links.
    (_, _, path), *_ = cursor.execute("PRAGMA database_list").fetchall()
    cursor.close()
    record.info[WAL] = f"{path}-wal" if mode == "wal" and path else ""


@contextlib.contextmanager
def waiting(connection: Connection, timeout: float = 5.0) -> Iterator[None]:
    """Let SQLite wait for locks, for statements that are not retried; other databases always wait."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(timeout * 1000)}")
    try:
        yield
    finally:
        connection.exec_driver_sql("PRAGMA busy_timeout=0")


# The time limit of one statement of SQLite, which runs in the thread that asks: the servers of others have their own.
# Between instructions of its virtual machine, SQLite asks whether to go on. What waits for a disk or a lock is not
# asked. A question takes a microsecond, and so many instructions about a millisecond.
_CHECK_EVERY_INSTRUCTIONS: Final = 20_000


class _Deadline:
    """When the statement that was begun last has to end. The connection has it, and not the other way round."""

    at = 0.0

    def passed(self) -> bool:
        return time.monotonic() > self.at


class TimedConnection(sqlite3.Connection):
    """Interrupts a statement that has run for ``seconds``: the error is ``SQLITE_INTERRUPT``."""

    unlimited: type[sqlite3.Cursor] = sqlite3.Cursor  # for ``send``, which sets the deadline itself

    def __init__(self, *arguments: Any, seconds: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds = seconds
        self.deadline = _Deadline()
        self.set_progress_handler(self.deadline.passed, _CHECK_EVERY_INSTRUCTIONS)

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor whose statements are limited."""
        return super().cursor(factory or TimedCursor)


class TimedCursor(sqlite3.Cursor):
    """The time runs from the execution on; who reads rows one by one may take as long between them as they need."""

    def execute(self, *arguments: Any) -> Any:
        self._begin()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        self._begin()
        return super().executemany(*arguments)

    def fetchone(self) -> Any:
        self._begin()
        return super().fetchone()

    def fetchmany(self, *arguments: Any, **options: Any) -> Any:
        self._begin()
        return super().fetchmany(*arguments, **options)

    def _begin(self) -> None:
        connection: Any = self.connection
        connection.deadline.at = time.monotonic() + connection.seconds


def send(connection: Connection, commands: Sequence[Command]) -> list[Result]:
    """Execute the statements one by one. There is no round trip to save; their time limits are set without a call."""
    driver: Any = connection.connection.dbapi_connection
    cursor, results = driver.unlimited(driver), list[Result]()
    try:
        for command in commands:
            driver.deadline.at = time.monotonic() + driver.seconds
            cursor.execute(command.text, command.values or ())
            results.append((cursor.fetchall() if command.answers else (), cursor.rowcount))
    except sqlite3.Error as exc:
        raise CommandError(len(results), exc) from exc
    return results


class WalSync:
    """Makes commits durable after they were made, for all threads that wait for it at the same time.

    SQLite itself would sync its write-ahead log within COMMIT, and nobody else can write meanwhile: a disk that needs 5
    ms for it would limit a site to 200 durable commits per second. With ``synchronous = NORMAL`` COMMIT only writes the
    log. Whoever needs durability then syncs the log, which makes all commits before it durable as well, in their order.

    ``log`` is the path of the write-ahead log; "" if SQLite has none, and syncs by itself.
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
            with contextlib.suppress(OSError):  # some file systems cannot, and do not need to
                os.fsync(directory)
        finally:
            os.close(directory)
