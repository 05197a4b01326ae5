"""The differences between the databases: connections, the clock and errors.

With ``executor`` (BEGIN and COMMIT) and ``senders`` (drivers) this is nearly all of them: the rest is the same SQL.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache, partial
from queue import Empty
from typing import Any, Final, Literal

from sqlalchemy import URL, Connection, Dialect, Double, Engine, Table, create_engine, event
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.functions import FunctionElement

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import ConflictError
from ferroscope.db import replication
from ferroscope.db.url import DatabaseUrlError, checked

# Messages about database errors. They never contain a credential.

_LONGEST: Final = 200
# If a password was not percent-encoded in the URL, part of it is parsed as the host, which drivers quote.
_BEFORE_AT: Final = re.compile(r"""[^\s"']+@(?=[^\s"'])""")


def cannot_answer(url: URL, error: DBAPIError) -> str:
    """Return why the database is unavailable; for SQLite with the file name, which its own message lacks."""
    file = f" ({url.database}{_why_not_writable(url.database)})" if url.get_backend_name() == "sqlite" else ""
    return f"the database is unavailable: {described(error)}{file}"


def _why_not_writable(database: str | None) -> str:
    """Return what the kernel says, which to SQLite is a "disk I/O error" only; "" if the place is writable.

    It is asked with the lock file: another file descriptor of the database's own, closed, would release all its locks.
    """
    try:
        os.close(os.open(f"{database}-writelock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    except FileNotFoundError:
        return ""
    except OSError as exc:
        return f": {exc.strerror}"
    return ""


def described(error: DBAPIError) -> str:
    """Return the first line of the driver's or server's message, with its error code if there is one."""
    original: Any = error.orig
    arguments: list[Any] = list(getattr(original, "args", ()))
    number = getattr(original, "sqlstate", None)
    text = str(original)
    if len(arguments) > 1 and isinstance(arguments[0], int):  # MariaDB's driver
        number, text = arguments[0], str(arguments[1])
    line = _BEFORE_AT.sub("******@", next(iter(text.strip().splitlines()), ""))[:_LONGEST]
    return (line or type(original).__name__) + (f" ({number})" if number else "")


ErrorClass = Literal["busy", "unavailable", "other"]

NOTIFY_CHANNEL: Final = "ferroscope"

_PG_BUSY: Final = {"40001", "40P01", "55P03"}
_PG_UNAVAILABLE: Final = {"25006", "53100", "53200", "53300", "57014", "57P01", "57P02", "57P03", "25P03"}
# The class of the warning that a commit is not on the synchronous standby; its text is translated. No statement of
# ours causes other warnings.
_NOT_REPLICATED: Final = {"01000", "57P01"}
UNREPLICATED: Final = "unreplicated"
# A connection's, to SQLite: the path of its write-ahead log; "" if it has none, as not every file system can.
WAL: Final = "write-ahead log"
_MYSQL_BUSY: Final = {1205, 1213, 1020}
_MYSQL_DENIED: Final = {1044, 1045, 1049}  # while a password is being changed or the database restored
_MYSQL_GONE: Final = {1021, 1040, 1053, 1114, 1290, 1792, 1836, 1927, 1969, 2002, 2003, 2006, 2013, 2055, 3024}
# Of a Galera node: it is not part of the primary component (1047), or left it during COMMIT, whose outcome is unknown.
_GALERA_LEFT: Final = 1180
_GALERA_GONE: Final = {1047, _GALERA_LEFT}
_MYSQL_UNAVAILABLE: Final = _MYSQL_GONE | _MYSQL_DENIED | _GALERA_GONE
# The server accepts no writes, but another one at the same address may: behind a load balancer, or in a list of hosts.
_ELSEWHERE: Final = {"25006", 1290, 1792, 1836} | _GALERA_GONE
# PyMySQL's client flags: count the rows that matched, not those that changed; and accept several statements in one
# text (see ``senders.joined``).
_FOUND_ROWS: Final = 1 << 1
_MULTI_STATEMENTS: Final = 1 << 16
# MariaDB's message ends with the key, MySQL's with table and key, SQLite's with the column.
_VIOLATED: Final = re.compile(r"(?:for key '(?:[^'.]+\.)?(?P<key>[^'.]+)'|failed: (?P<column>\w+\.\w+))\Z")
_SQLITE_BUSY: Final = ("database is locked", "database table is locked", "database schema is locked")


class db_now(FunctionElement[float]):  # noqa: N801  # named like an SQL function
    """The database's clock in seconds since the epoch; it advances within a transaction."""

    type = Double()
    inherit_cache = True


NOW: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
    "mysql": "(UNIX_TIMESTAMP(SYSDATE(6)) + 0E0)",
    "mariadb": "(UNIX_TIMESTAMP(SYSDATE(6)) + 0E0)",
}
for _name, _sql in NOW.items():
    compiles(db_now, _name)(lambda *_args, _sql=_sql, **_kw: _sql)


def build_engine(settings: DatabaseSettings) -> Engine:
    """Return an engine with a timeout for every wait: connection pool, connect, statement and lock.

    ``DatabaseUrlError``; ``ImportError`` if the database's driver is not installed.

    Connections are in autocommit mode: ``executor`` sends BEGIN and COMMIT explicitly.
    """
    url = checked(settings.connection)
    family = url.get_backend_name()
    if family == "sqlite":
        arguments: dict[str, Any] = {"timeout": 0, "check_same_thread": False}
    elif family == "postgresql":
        url = url.set(drivername="postgresql+psycopg") if "+" not in url.drivername else url
        arguments = _postgresql_arguments(settings)
    else:
        url = url.set(drivername="mysql+pymysql") if "+" not in url.drivername else url
        arguments = _mysql_arguments(settings)
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            connect_args=arguments,
            poolclass=NullPool,  # see Connections
            pool_reset_on_return=None,
            skip_autocommit_rollback=True,
        )
    except NoSuchModuleError:
        raise DatabaseUrlError(f"unknown driver in {url.drivername!r}", f"write {family}:// without a driver") from None
    if family == "sqlite":
        event.listen(engine, "do_connect", _create_private_file)
        event.listen(engine, "connect", partial(_prepare_sqlite, settings.busy_timeout))
    elif family == "postgresql":
        event.listen(engine, "connect", _prepare_postgresql)
        event.listen(engine, "do_connect", partial(_connect_postgresql, settings.statement_timeout * 2))
    else:
        replication.watch_galera(engine)
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
    # The first connection to open the file and the last to close it lock it briefly, outside ``sqlite_lock``.
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


def _connect_postgresql(timeout: float, _dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> Any:
    import psycopg

    connection = _connection_type(timeout).connect(**parameters)
    if connection.pgconn.parameter_status(b"in_hot_standby") == b"on":
        connection.close()
        raise psycopg.OperationalError("the server is a standby: it has not been promoted")
    return connection


@cache
def _connection_type(answer_timeout: float) -> Any:
    """Return a subclass of psycopg's connection that waits at most ``answer_timeout`` seconds for each answer.

    The server's own timeouts work only while its processes run, and TCP's only if its kernel is silent too. A server
    whose processes hang (failed disk, SIGSTOP) is detected only by this timeout.
    """
    import psycopg
    from psycopg.pq import TransactionStatus

    class TimedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, answer_timeout if timeout is None else timeout)
            except psycopg.OperationalError:
                if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()  # a late answer must not be read as the next statement's
                raise

    return TimedConnection


def _prepare_postgresql(connection: Any, record: Any) -> None:
    """Replace NUL, which PostgreSQL cannot store in text, with U+FFFD; ramdisks do send it.

    Also note when the server gives up waiting for its synchronous standby: see ``senders.pipelined``.
    """
    connection.add_notice_handler(partial(_noticed, record.info))
    from psycopg.types.string import StrDumper, StrDumperUnknown, StrDumperVarchar

    for dumper in (StrDumperVarchar, StrDumper, StrDumperUnknown):
        connection.adapters.register_dumper(str, _without_nul(dumper))


def _noticed(info: dict[str, Any], notice: Any) -> None:
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in _NOT_REPLICATED:
        info[UNREPLICATED] = True


@cache
def _without_nul(dumper: Any) -> Any:
    def dump(self: Any, text: str) -> Any:
        return dumper.dump(self, text.replace("\0", "\ufffd") if "\0" in text else text)

    return type(dumper.__name__, (dumper,), {"dump": dump})


def _postgresql_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    milliseconds = int(settings.statement_timeout * 1000)
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return {
        "connect_timeout": settings.connect_timeout,
        "options": " ".join(f"-c {name}={milliseconds}" for name in limits),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": milliseconds,
        "application_name": "ferroscope",
        # psycopg must not prepare statements itself: on rollback it would deallocate all prepared statements of the
        # session, including those of ``senders``.
        "prepare_threshold": None,
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


def classify(error: DBAPIError) -> ErrorClass:
    """Return whether to retry at once (busy), to raise ``StoreUnavailableError`` (unavailable), or neither."""
    original: Any = error.orig
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return "unavailable"
    code = original.args[0] if original is not None and original.args else None
    if isinstance(code, int):  # MariaDB and MySQL: the code is more specific than the SQLSTATE
        return _by_code(code, _MYSQL_BUSY, _MYSQL_UNAVAILABLE, unavailable=code == 0)
    sqlstate = getattr(original, "sqlstate", None)
    if sqlstate is not None:
        return _by_code(sqlstate, _PG_BUSY, _PG_UNAVAILABLE, unavailable=sqlstate.startswith("08"))
    if isinstance(error, OperationalError):
        if any(text in str(original) for text in _SQLITE_BUSY):
            return "busy"
        wrong = getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR  # invalid SQL
        return "other" if wrong and "no such table" not in str(original) else "unavailable"
    return "other"


def leaves_open(error: DBAPIError) -> bool:
    """Whether a COMMIT that ended with this error may have taken effect: it was not answered, or not conclusively."""
    original: Any = error.orig
    code = original.args[0] if original is not None and original.args else None
    return error.connection_invalidated or code == _GALERA_LEFT or getattr(original, "unreplicated", False)


def is_elsewhere(error: DBAPIError) -> bool:
    """Whether a new connection may lead to where writes are accepted; this one is up, and does not accept them.

    SQLite opens a file that it may not write for reading, and such a connection never writes, whatever comes later.
    """
    original: Any = error.orig
    if (getattr(original, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_READONLY:
        return True
    code = original.args[0] if original is not None and original.args else None
    return (code if isinstance(code, int) else getattr(original, "sqlstate", None)) in _ELSEWHERE


@cache
def upsert(family: str, table: Table) -> Any:
    """Return the INSERT that, if the primary key already exists, replaces the other columns instead."""
    others = [column.name for column in table.columns if not column.primary_key]
    if family in ("mysql", "mariadb"):
        from sqlalchemy.dialects import mysql

        statement = mysql.insert(table)
        return statement.on_duplicate_key_update({name: statement.inserted[name] for name in others})
    if family == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    into = insert(table)
    return into.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={name: into.excluded[name] for name in others}
    )


def largest_value(dialect: Dialect) -> int:
    """Return the maximum number of bytes to send as one value."""
    # MariaDB's packets are at most 16 MiB by default, and PyMySQL sends bytes as hexadecimal.
    return 4 * 1024 * 1024 if dialect.name in ("mysql", "mariadb") else sys.maxsize


def violated_constraint(error: IntegrityError) -> str | None:
    """Return the name of the constraint, or on SQLite ``table.column``; never a value."""
    original: Any = error.orig
    if diagnosis := getattr(original, "diag", None):
        name: str | None = diagnosis.constraint_name
        return name
    found = _VIOLATED.search(str(original.args[-1]))
    return (found["key"] or found["column"]) if found else None


def _by_code(code: Any, busy: set[Any], gone: set[Any], *, unavailable: bool) -> ErrorClass:
    if code in busy:
        return "busy"
    return "unavailable" if unavailable or code in gone else "other"


def conflict(error: IntegrityError, row: dict[str, Any], table: Table) -> Exception:
    """Return the ``ConflictError`` for a violated unique constraint; other errors are returned unchanged."""
    violated = violated_constraint(error)
    for column in table.columns:
        if violated in (f"uq_{table.name}_{column.name}", f"{table.name}.{column.name}"):
            return ConflictError(column.name, str(row[column.name]))
    if violated in ("PRIMARY", f"pk_{table.name}"):
        return ConflictError("uuid", str(row["uuid"]))
    return error


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
