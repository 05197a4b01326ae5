"""SQLite: its connections, each statement of which has a time limit, and its transactions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.connections import WAL
from ferroscope.db.executor import COMMIT, Command, CommandError, Result, execute, rollback


def connect_arguments(url: URL, settings: DatabaseSettings) -> tuple[URL, dict[str, Any]]:
    """Return the URL with its driver, and the arguments of a connection."""
    factory = partial(TimedConnection, seconds=settings.statement_timeout)
    return url, {"timeout": 0, "check_same_thread": False, "factory": factory}


def listen(engine: Engine, settings: DatabaseSettings) -> None:
    """Prepare each new connection of the engine."""
    event.listen(engine, "do_connect", create_private_file)
    event.listen(engine, "connect", partial(prepare, settings.busy_timeout))


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
    # The first connection to open the file and the last to close it lock it briefly, outside the turns of writers.
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


# The time limit of one statement; database servers have their own. Between instructions of its virtual machine, SQLite
# calls the progress handler, but not while it waits for a disk or a lock. A call takes a microsecond, and this many
# instructions take about a millisecond.
_CHECK_EVERY_INSTRUCTIONS: Final = 20_000


class _Deadline:
    """When the latest statement has to end. It has no reference to its connection: a cycle would keep that open."""

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
    """A cursor with a time limit for each execution and each fetch; pauses between them do not count."""

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


# Transactions.

BEGIN: Final = Command("BEGIN IMMEDIATE", {}, answers=False, begins=True)
_READ: Final = Command("BEGIN", {}, answers=False, begins=True)
# Several units of work in one transaction.
SAVEPOINT: Final = (Command("SAVEPOINT unit", {}, answers=False, begins=True),)
RELEASE: Final = (Command("RELEASE unit", {}, answers=False),)


def opening(write: bool, _durable: bool, snapshot: bool, /) -> Sequence[Command]:
    """Return the statements that begin a transaction.

    A write acquires the write lock first (BEGIN IMMEDIATE): upgrading a read lock later could deadlock.
    """
    if write:
        return (BEGIN,)
    return (_READ,) if snapshot else ()


def closing(_woken: Collection[str], /) -> Sequence[Command]:
    """Return the statement that ends a transaction; nothing else is told to other processes."""
    return (COMMIT,)


def undo(connection: Connection) -> None:
    """Undo what was written since ``SAVEPOINT``, unless SQLite has rolled back the whole transaction."""
    if not is_open(connection):
        return
    try:
        execute(connection, "ROLLBACK TO unit")
        execute(connection, "RELEASE unit")
    except DBAPIError:
        rollback(connection)  # nothing of it may be committed with the others
        raise


def is_open(connection: Connection) -> bool:
    """Whether the transaction has not ended."""
    return not connection.invalidated and bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr]


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
