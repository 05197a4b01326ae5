"""Engines: how to connect to each database, with which limits, and the connections that are open.

The other differences between the databases are in ``errors``, ``spellings`` (SQL) and ``executor`` (BEGIN and COMMIT,
and how drivers send).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import partial
from queue import Empty
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import NullPool

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import postgresql_session, replication
from ferroscope.db.url import DatabaseUrlError, checked

NOTIFY_CHANNEL: Final = "ferroscope"

# A connection's, to SQLite: the path of its write-ahead log; "" if it has none, as not every file system can.
WAL: Final = "write-ahead log"
# Seconds until an idle connection is probed, between probes, and the number of probes; by libpq's names.
_KEEPALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
# Arguments of PostgreSQL's connections that a URL does not override: time limits are options of the service.
_RELIED_ON: Final = {"connect_timeout", "tcp_user_timeout", "client_encoding", "prepare_threshold"}
# PyMySQL's client flags: count the rows that matched, not those that changed; and accept several statements in one
# text (see ``executor.joined``).
_FOUND_ROWS: Final = 1 << 1
_MULTI_STATEMENTS: Final = 1 << 16


def build_engine(settings: DatabaseSettings) -> Engine:
    """Return an engine with a timeout for every wait: connection pool, connect, statement and lock.

    ``DatabaseUrlError``; ``ImportError`` if the database's driver is not installed.

    Connections are in autocommit mode: ``executor`` sends BEGIN and COMMIT explicitly.
    """
    url = checked(settings.connection)
    family = url.get_backend_name()
    if family == "sqlite":
        arguments: dict[str, Any] = {
            "timeout": 0,
            "check_same_thread": False,
            "factory": partial(TimedConnection, seconds=settings.statement_timeout),
        }
    elif family == "postgresql":
        url = url.set(drivername="postgresql+psycopg") if "+" not in url.drivername else url
        arguments = _with_options(url, _postgresql_arguments(settings))
    else:
        url = url.set(drivername="mysql+pymysql") if "+" not in url.drivername else url
        arguments = _mysql_arguments(settings)
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            connect_args=arguments,
            poolclass=NullPool,  # see ``Connections``
            pool_reset_on_return=None,
            skip_autocommit_rollback=True,
        )
    except NoSuchModuleError:
        raise DatabaseUrlError(f"unknown driver in {url.drivername!r}", f"write {family}:// without a driver") from None
    if family == "sqlite":
        event.listen(engine, "do_connect", _create_private_file)
        event.listen(engine, "connect", partial(_prepare_sqlite, settings.busy_timeout))
    elif family == "postgresql":
        event.listen(engine, "connect", postgresql_session.prepare)
        event.listen(engine, "do_connect", partial(postgresql_session.connect, settings.statement_timeout))
    else:
        replication.watch_galera(engine)
        event.listen(engine, "connect", partial(_keep_alive, settings.statement_timeout))
    return engine


def _create_private_file(_dialect: Any, _record: Any, arguments: list[str], _parameters: Any) -> None:
    """Create a missing database file readable by its owner only: it will contain BMC passwords.

    SQLite gives its auxiliary files the same mode. An existing file must not be opened here: closing it would release
    the POSIX locks of all of this process's connections, and other processes could then delete a WAL that is in use.
    """
    path = arguments[0]
    if not path.startswith((":memory:", "file:")):
        with contextlib.suppress(OSError):  # SQLite reports the error when it connects
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare_sqlite(timeout: float, connection: Any, record: Any) -> None:
    # The first connection to open the file and the last to close it lock it briefly, outside ``sqlite_turns``.
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


def _keep_alive(statement_timeout: float, connection: Any, _record: Any) -> None:
    """Have the kernel do what libpq is told to by ``_KEEPALIVE``: PyMySQL leaves it to the host's two hours.

    A firewall or NAT that drops what is idle would let the next statement wait for its time limit.
    """
    sock = connection._sock
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _KEEPALIVE["keepalives_idle"]),
        (socket.TCP_KEEPINTVL, _KEEPALIVE["keepalives_interval"]),
        (socket.TCP_KEEPCNT, _KEEPALIVE["keepalives_count"]),
        (socket.TCP_USER_TIMEOUT, int(statement_timeout * 1000)),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _postgresql_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    milliseconds = int(settings.statement_timeout * 1000)
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return {
        "connect_timeout": settings.connect_timeout,
        "options": " ".join(f"-c {name}={milliseconds}" for name in limits),
        **_KEEPALIVE,
        "tcp_user_timeout": milliseconds,
        "application_name": "ferroscope",
        "target_session_attrs": "primary",  # of the servers or addresses that a name stands for
        "client_encoding": "utf8",  # the server's default is the encoding of the database, or an administrator's
        # psycopg must not prepare statements itself: on rollback it would deallocate all prepared statements of the
        # session, including those of ``executor``.
        "prepare_threshold": None,
    }


def _with_options(url: URL, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that the URL has, except what the service relies on.

    ``options`` are the settings of the session: the URL's, such as a search_path, and then ours, because the last value
    of a setting counts.
    """
    given = url.normalized_query
    options = " ".join([*given.get("options", ()), arguments["options"]])
    return {name: value for name, value in arguments.items() if name not in given or name in _RELIED_ON} | {
        "options": options
    }


def _mysql_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    seconds = max(1, int(settings.statement_timeout))
    # Only MariaDB executes the text in /*M! */. A session that is idle within a transaction must not keep its locks:
    # its host may have failed, or its process may be stopped.
    session = (
        "SET SESSION time_zone='+00:00',"
        f" innodb_lock_wait_timeout={seconds},"
        f" /*M!100301 max_statement_time={seconds}, idle_transaction_timeout={seconds}, */"
        " sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';"
        " SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    )
    return {
        "charset": "utf8mb4",
        "client_flag": _FOUND_ROWS | _MULTI_STATEMENTS,
        "connect_timeout": settings.connect_timeout,
        "read_timeout": seconds + 1,  # the server's own timeout comes first if it works
        "write_timeout": seconds + 1,
        "init_command": session,
    }


# The time limit of one statement of SQLite, which runs in the thread that asks: the servers of others have their own.
# Between instructions of its virtual machine, SQLite asks whether to go on. What waits for a disk or a lock is not
# asked. A question takes a microsecond, and so many instructions about a millisecond.
_INSTRUCTIONS: Final = 20_000


class _Deadline:
    """When the statement that was begun last has to end. The connection has it, and not the other way round."""

    at = 0.0

    def passed(self) -> bool:
        return time.monotonic() > self.at


class TimedConnection(sqlite3.Connection):
    """Interrupts a statement that has run for ``seconds``: the error is ``SQLITE_INTERRUPT``."""

    def __init__(self, *arguments: Any, seconds: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds = seconds
        self.deadline = _Deadline()
        self.set_progress_handler(self.deadline.passed, _INSTRUCTIONS)

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


_GENERATION: Final = "generation"


class Connections:
    """The open connections of one engine: at most ``size``, most recently used first.

    SQLAlchemy's pool, with a new ``Connection`` for each checkout, costs as much CPU time as a short transaction.

    When a server fails, all idle connections break. The first one found broken makes all older ones stale: each is
    reopened before its next use, instead of failing or timing out one by one. Connections that are lent are not
    affected.
    """

    def __init__(self, engine: Engine, *, size: int, timeout: float) -> None:
        self._engine = engine
        self._timeout = timeout
        self._generation = 0
        self._free: list[Connection | None] = [None] * size  # the most recently used one is last; None: not open yet
        self._returned = threading.Condition()
        self._waiting = 0
        event.listen(engine, "engine_disposed", self._close)

    def borrow(self) -> Connection:
        """Return a connection, to be given back; ``queue.Empty`` if none became free within the timeout."""
        try:
            connection = self._free.pop()  # atomic
        except IndexError:
            connection = self._wait()
        try:
            if connection is not None and connection.info[_GENERATION] != self._generation:
                _discard(connection)
                connection = None
            if connection is None:
                connection = self._engine.connect()
                connection.info[_GENERATION] = self._generation
        except BaseException:
            self._put(connection)
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Let others use the connection; what is left of a transaction in it is rolled back."""
        kept: Connection | None = connection
        try:
            # A driver closes its connection by itself if the server has ended it after the last answer.
            if connection.invalidated or getattr(connection.connection.dbapi_connection, "closed", False):
                kept = None
                _discard(connection)
            elif connection.in_transaction():  # SQLAlchemy's, nothing is sent
                connection.rollback()
        finally:
            self._put(kept)

    def _put(self, connection: Connection | None) -> None:
        self._free.append(connection)
        # Who starts to wait after this has seen the connection: it looks again once it is counted.
        if self._waiting:
            with self._returned:
                self._returned.notify()

    def _wait(self) -> Connection | None:
        deadline = time.monotonic() + self._timeout
        with self._returned:
            self._waiting += 1
            try:
                while True:
                    try:
                        return self._free.pop()
                    except IndexError:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            raise Empty from None
                        self._returned.wait(left)
            finally:
                self._waiting -= 1

    def suspect_all(self) -> None:
        """Replace every currently open connection before its next use."""
        self._generation += 1

    def _close(self, _engine: Engine) -> None:
        self.suspect_all()
        for _ in range(len(self._free)):
            try:
                connection = self._free.pop()
            except IndexError:  # another thread was faster
                return
            if connection is not None:
                _discard(connection)
            self._free.insert(0, None)


def _discard(connection: Connection) -> None:
    connection.invalidate()
    connection.close()
