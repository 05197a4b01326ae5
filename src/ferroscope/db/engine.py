"""What differs between the databases: connections, the clock, errors. Transactions: ``session``.

Everything else in this package is the same SQL for all of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, Final, Literal

from sqlalchemy import URL, Connection, Dialect, Double, Engine, Table, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import ConflictError

# What is wrong with a database, in its own words, and what is wrong with its URL, in ours; never a credential.

_FORMS: Final = "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME"
_FAMILIES: Final = ("sqlite", "postgresql", "mysql", "mariadb")
_LONGEST: Final = 200
# A password that was not encoded for a URL ends up in what is taken for the host's name.
_BEFORE_AT: Final = re.compile(r"""[^\s"']+@(?=[^\s"'])""")


class DatabaseUrlError(ValueError):
    """``[database] connection`` cannot be used; the message says why, and what to write; it quotes nothing of it."""

    def __init__(self, summary: str, advice: str) -> None:
        super().__init__(f"{summary}; {advice}")
        self.summary = summary
        self.advice = advice


def checked(connection: str) -> URL:
    """Return the URL; ``DatabaseUrlError`` where it is none, or none of a database that there is."""
    try:
        url = make_url(connection)
    except ArgumentError:
        raise DatabaseUrlError("invalid database URL", f"expected {_FORMS}") from None
    except ValueError:  # Python's message quotes what it takes for the port
        raise DatabaseUrlError("invalid port", "in user and password write %40 for @, %3A for :, %2F for /") from None
    family = url.get_backend_name()
    if family not in _FAMILIES:
        raise DatabaseUrlError(f"unsupported database {family!r}", f"expected {_FORMS}")
    if family == "sqlite" and url.database in (None, "", ":memory:"):
        raise DatabaseUrlError("SQLite needs a file, for processes and threads to share", "write sqlite:///FILE")
    if family != "sqlite" and "@" in (url.host or "") + (url.database or ""):
        raise DatabaseUrlError("user or password has an @ (or a /) in it", "write %40 for @, %2F for /")
    return url


def cannot_answer(url: URL, error: DBAPIError) -> str:
    """Return why the database cannot answer, with the name of SQLite's file, which SQLite does not tell."""
    file = f" ({url.database})" if url.get_backend_name() == "sqlite" else ""
    return f"the database cannot answer: {described(error)}{file}"


def described(error: DBAPIError) -> str:
    """Return the first line of what driver or server said, with its number where there is one."""
    original: Any = error.orig
    arguments: list[Any] = list(getattr(original, "args", ()))
    number = getattr(original, "sqlstate", None)
    text = str(original)
    if len(arguments) > 1 and isinstance(arguments[0], int):  # MariaDB's driver
        number, text = arguments[0], str(arguments[1])
    line = _BEFORE_AT.sub("******@", next(iter(text.strip().splitlines()), ""))[:_LONGEST]
    return (line or type(original).__name__) + (f" ({number})" if number else "")


Trouble = Literal["busy", "unavailable", "other"]

NOTIFY_CHANNEL: Final = "ferroscope"

_PG_BUSY: Final = {"40001", "40P01", "55P03"}
_PG_UNAVAILABLE: Final = {"25006", "53100", "53200", "53300", "57014", "57P01", "57P02", "57P03", "25P03"}
_MYSQL_BUSY: Final = {1205, 1213, 1020}
_MYSQL_DENIED: Final = {1044, 1045, 1049}  # somebody has just changed the password, or restores the database
_MYSQL_GONE: Final = {1021, 1040, 1053, 1114, 1290, 1792, 1836, 1927, 1969, 2002, 2003, 2006, 2013, 2055, 3024}
_MYSQL_UNAVAILABLE: Final = _MYSQL_GONE | _MYSQL_DENIED
# PyMySQL's client flags: count the rows that matched, not those that changed; and take several
# statements at once, for BEGIN and what goes with it (see session).
_FOUND_ROWS: Final = 1 << 1
_MULTI_STATEMENTS: Final = 1 << 16
# MariaDB's message ends with the key (MySQL's with table and key), SQLite's with the column.
_VIOLATED: Final = re.compile(r"(?:for key '(?:[^'.]+\.)?(?P<key>[^'.]+)'|failed: (?P<column>\w+\.\w+))\Z")
_SQLITE_BUSY: Final = ("database is locked", "database table is locked", "database schema is locked")


class db_now(FunctionElement[float]):  # noqa: N801  # reads like the SQL function that it is
    """The database's clock: seconds since the epoch, running on within a transaction."""

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
    """Return an engine whose sessions cannot hang for ever and never wait longer than configured.

    ``DatabaseUrlError``, and ``ImportError`` where the database's driver is not installed.

    Its connections commit by themselves: ``session`` says where transactions begin and end.
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
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        connect_args=arguments,
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_timeout=settings.busy_timeout,
        pool_use_lifo=True,  # each connection has a cache of its own, and few of them are needed at once
        pool_reset_on_return=None,
    )
    if family == "sqlite":
        event.listen(engine, "do_connect", _keep_from_others)
        event.listen(engine, "connect", partial(_prepare_sqlite, settings.busy_timeout))
    elif family == "postgresql":
        event.listen(engine, "connect", _prepare_postgresql)
        event.listen(engine, "do_connect", partial(_connect_postgresql, settings.statement_timeout * 2))
    return engine


def _keep_from_others(_dialect: Any, _record: Any, arguments: list[str], _parameters: Any) -> None:
    """Make a file that is not there yet readable by its owner only: it will hold passwords of BMCs.

    What SQLite puts beside it gets the same mode. A file that is there is not opened: closing it would take SQLite's
    locks from all of this process's connections (POSIX), and other processes would remove what these still use.
    """
    path = arguments[0]
    if not path.startswith((":memory:", "file:")):
        with contextlib.suppress(OSError):  # SQLite itself says what is wrong
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare_sqlite(patience: float, connection: Any, _record: Any) -> None:
    # Whoever opens a file first or closes it last locks it for a moment; its turn is not kept by sqlite_write_lock.
    pragmas = ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=1000", "cache_size=-8192")
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={int(patience * 1000)}", *pragmas, "busy_timeout=0"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@contextlib.contextmanager
def waiting(connection: Connection, patience: float = 5.0) -> Iterator[None]:
    """Let SQLite wait for a lock so many seconds, for statements that nobody repeats; other databases do anyway."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(patience * 1000)}")
    try:
        yield
    finally:
        connection.exec_driver_sql("PRAGMA busy_timeout=0")


def _connect_postgresql(patience: float, _dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> Any:
    return _impatient(patience).connect(**parameters)


@cache
def _impatient(patience: float) -> Any:
    """Return a kind of connection that waits for no answer longer than ``patience`` seconds.

    The server's own time-outs need a server that runs, and TCP's a peer whose kernel is silent
    too: against one whose processes hang (a dead disk, SIGSTOP) only this helps.
    """
    import psycopg
    from psycopg.pq import TransactionStatus

    class ImpatientConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, patience if timeout is None else timeout)
            except psycopg.OperationalError:
                if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()  # an answer may still come: it must never be taken for the next one's
                raise

    return ImpatientConnection


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    """Let NUL, which PostgreSQL has no room for in texts, become U+FFFD; ramdisks do send it."""
    from psycopg.types.string import StrDumper, StrDumperUnknown, StrDumperVarchar

    for dumper in (StrDumperVarchar, StrDumper, StrDumperUnknown):
        connection.adapters.register_dumper(str, _without_nul(dumper))


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
        # psycopg must prepare nothing itself: at a rollback it would deallocate all statements of the session, also
        # those that ``senders`` has prepared.
        "prepare_threshold": None,
    }


def _mysql_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    seconds = max(1, int(settings.statement_timeout))
    # What stands in /*M! */ only MariaDB knows. A session that says nothing more in the middle of
    # a transaction must not keep its locks: its host may be gone, or its process stopped.
    session = (
        "SET SESSION time_zone='+00:00',"
        f" innodb_lock_wait_timeout={seconds},"
        f" /*M!100301 max_statement_time={seconds}, idle_transaction_timeout={seconds}, */"
        " sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
    )
    return {
        "charset": "utf8mb4",
        "client_flag": _FOUND_ROWS | _MULTI_STATEMENTS,
        "connect_timeout": settings.connect_timeout,
        "read_timeout": seconds + 1,  # the server's own word comes first, if it comes
        "write_timeout": seconds + 1,
        "init_command": session,
    }


def classify(error: DBAPIError) -> Trouble:
    """Say whether to try again at once (busy), to give up for now (unavailable), or neither."""
    original: Any = error.orig
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return "unavailable"
    code = original.args[0] if original is not None and original.args else None
    if isinstance(code, int):  # MariaDB's: its number says more than its SQLSTATE, which it has too
        return _by_code(code, _MYSQL_BUSY, _MYSQL_UNAVAILABLE, unavailable=code == 0)
    sqlstate = getattr(original, "sqlstate", None)
    if sqlstate is not None:
        return _by_code(sqlstate, _PG_BUSY, _PG_UNAVAILABLE, unavailable=sqlstate.startswith("08"))
    if isinstance(error, OperationalError):
        if any(text in str(original) for text in _SQLITE_BUSY):
            return "busy"
        wrong = getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR  # a statement of ours
        return "other" if wrong and "no such table" not in str(original) else "unavailable"
    return "other"


@cache
def upsert(family: str, table: Table) -> Any:
    """Return the INSERT that replaces the other columns where the primary key is there already."""
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
    """Return how many bytes one statement can carry, with room to spare."""
    # MariaDB's packet has 16 MiB, in which PyMySQL spells bytes as hexadecimal.
    return 4 * 1024 * 1024 if dialect.name in ("mysql", "mariadb") else sys.maxsize


def violated_constraint(error: IntegrityError) -> str | None:
    """Return the name of the constraint, or on SQLite ``table.column``; never what a value looks like."""
    original: Any = error.orig
    if diagnosis := getattr(original, "diag", None):
        name: str | None = diagnosis.constraint_name
        return name
    found = _VIOLATED.search(str(original.args[-1]))
    return (found["key"] or found["column"]) if found else None


def _by_code(code: Any, busy: set[Any], gone: set[Any], *, unavailable: bool) -> Trouble:
    if code in busy:
        return "busy"
    return "unavailable" if unavailable or code in gone else "other"


# What it means that a row could not be written because another one has its name, address or UUID.


def conflict(error: IntegrityError, row: dict[str, Any], table: Table) -> Exception:
    """Return the ``ConflictError`` that a unique constraint's violation means."""
    violated = violated_constraint(error)
    for column in table.columns:
        if violated in (f"uq_{table.name}_{column.name}", f"{table.name}.{column.name}"):
            return ConflictError(column.name, str(row[column.name]))
    if violated in ("PRIMARY", f"pk_{table.name}"):
        return ConflictError("uuid", str(row["uuid"]))
    return error


# Which pooled connections a broken one has put under suspicion.
#
# A server that went away took all idle connections with it. The first that is found broken makes
# those of before stale: each is closed and opened anew when it is next taken from the pool, before
# anybody waits for an answer on it. Connections in use are left to their users.

_GENERATION: Final = "generation"


class Staleness:
    """The generation of an engine's connections; those of an earlier one are replaced at check-out."""

    def __init__(self, engine: Engine) -> None:
        self._generation = 0
        event.listen(engine, "connect", self._opened)
        event.listen(engine, "checkout", self._taken)

    def suspect_all(self) -> None:
        """Have every connection that is open now replaced before its next use."""
        self._generation += 1

    def _opened(self, _connection: Any, record: Any) -> None:
        record.info[_GENERATION] = self._generation

    def _taken(self, _connection: Any, record: Any, _proxy: Any) -> None:
        if record.info.get(_GENERATION, 0) != self._generation:
            raise DisconnectionError("opened before another connection was found broken")
