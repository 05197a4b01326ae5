"""Statements on their way to the driver: those that begin and end transactions, and compiled ones.

All bypass SQLAlchemy's execution, which is too slow. BEGIN and COMMIT need no separate round trips: see ``session``.

A sender sends several in one round trip: see ``postgresql``, ``mariadb`` and ``sqlite``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ClauseElement

from ferroscope.db.spellings import NOW

Rows = Sequence[Any]
Result = tuple[Rows, int]


class Command(msgspec.Struct, eq=False):
    """A statement for the driver; ``values`` is None if it has no parameters and is not worth preparing.

    ``begins``: it is one of those that begin a transaction, which use no table.
    """

    text: str
    values: Any
    answers: bool
    begins: bool = False


class CommandError(Exception):
    """The statement at index ``place`` failed; later ones were not executed. ``cause`` is the driver's error.

    ``results`` are those of the statements before it, as far as they are known. The first ``sent`` statements may have
    been executed, if the connection is broken; those after them certainly were not.
    """

    def __init__(
        self, place: int, cause: Exception, results: Sequence[Result] = (), *, sent: int | None = None
    ) -> None:
        super().__init__(str(cause))
        self.place = place
        self.cause: Any = cause
        self.results = results
        self.sent = place + 1 if sent is None else sent


class Send(Protocol):
    def __call__(self, connection: Connection, commands: Sequence[Command]) -> list[Result]:
        """Execute the commands in this order; ``CommandError``."""


def _begins(*texts: str) -> Sequence[Command]:
    """Return the statements; the last one returns the database's clock."""
    return [Command(text, {}, answers=text is texts[-1], begins=True) for text in texts]


_PG_NOW: Final = f"SELECT {NOW['postgresql']}"
_MYSQL_NOW: Final = f"SELECT {NOW['mysql']}"
# A write has the session's isolation level, READ COMMITTED (see ``engine``).
_MYSQL_WRITE: Final = _begins("START TRANSACTION", _MYSQL_NOW)
# (write, durable) -> the statements. All statements of a read see the same snapshot.
_POSTGRESQL: Final = {
    (True, True): _begins("BEGIN ISOLATION LEVEL READ COMMITTED", _PG_NOW),
    (True, False): _begins("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit TO OFF", _PG_NOW),
    (False, False): _begins("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", _PG_NOW),
}
_MYSQL: Final = {
    (True, True): _MYSQL_WRITE,
    (True, False): _MYSQL_WRITE,
    (False, False): _begins(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION READ ONLY",
        _MYSQL_NOW,
    ),
}
_SQLITE_WRITE: Final = Command("BEGIN IMMEDIATE", {}, answers=False, begins=True)
_SQLITE_READ: Final = Command("BEGIN", {}, answers=False, begins=True)
NOTIFY_CHANNEL: Final = "ferroscope"
COMMIT: Final = Command("COMMIT", {}, answers=False)
# Several units of work in one transaction of SQLite.
SAVEPOINT: Final = (Command("SAVEPOINT unit", {}, answers=False, begins=True),)
RELEASE: Final = (Command("RELEASE unit", {}, answers=False),)


def opening(family: str, *, write: bool, durable: bool, snapshot: bool) -> Sequence[Command]:
    """Return the statements that begin a transaction; but on SQLite, the last one returns the database's clock.

    Without ``snapshot`` a read has no transaction, and that is the only statement. On SQLite a write acquires the write
    lock first (BEGIN IMMEDIATE): upgrading a read lock later could deadlock.
    """
    if family == "sqlite":
        if write:
            return (_SQLITE_WRITE,)
        return (_SQLITE_READ,) if snapshot else ()
    statements = (_POSTGRESQL if family == "postgresql" else _MYSQL)[write, durable]
    return statements if write or snapshot else statements[-1:]


def closing(connection: Connection, woken: Collection[str]) -> Sequence[Command]:
    """Return COMMIT, and what is sent after it: on PostgreSQL, a NOTIFY for each message in ``woken``.

    A transaction that has notified holds a lock of the whole server until its commit is on the disk, so such commits
    would wait for each other. After COMMIT it holds that lock for a moment. If a message is lost, polls find the news.
    """
    if not woken or connection.dialect.name != "postgresql":
        return (COMMIT,)
    # The text of a NOTIFY contains its message, so it differs each time and is not worth preparing.
    notes = [Command(f"NOTIFY {NOTIFY_CHANNEL}, '{_quote(text)}'", None, answers=False) for text in sorted(woken)]
    return (COMMIT, *notes)


def _quote(text: str) -> str:
    return text.replace("'", "''")


def sender_for(driver: str) -> Send:
    """Return the sender for a driver, by its name in SQLAlchemy."""
    if driver == "psycopg":
        from ferroscope.db.postgresql import pipelined

        return pipelined
    if driver == "pymysql":
        from ferroscope.db.mariadb import joined

        return joined
    from ferroscope.db.sqlite import send

    return send


def rollback(connection: Connection) -> None:
    """Roll back; if that fails, discard the connection."""
    if connection.invalidated:  # SQLAlchemy has found it broken, and no longer provides the driver's connection
        return
    try:
        if connection.dialect.name != "sqlite" or _driver(connection).in_transaction:
            _run(connection, "ROLLBACK")
    except DBAPIError:
        connection.invalidate()


def begin(connection: Connection) -> None:
    """Begin to write to SQLite."""
    _run(connection, _SQLITE_WRITE.text)


def commit(connection: Connection) -> None:
    """Commit what was written to SQLite."""
    _run(connection, COMMIT.text)


def undo(connection: Connection) -> None:
    """Undo what was written since ``SAVEPOINT``, unless SQLite has rolled back the whole transaction."""
    if not is_open(connection):
        return
    try:
        _run(connection, "ROLLBACK TO unit")
        _run(connection, "RELEASE unit")
    except DBAPIError:
        rollback(connection)  # nothing of it may be committed with the others
        raise


def is_open(connection: Connection) -> bool:
    """Whether a transaction of SQLite has not ended."""
    return not connection.invalidated and bool(_driver(connection).in_transaction)


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _run(connection: Connection, statement: str) -> None:
    """Execute on the driver's connection; raise errors as SQLAlchemy's."""
    driver, dialect = _driver(connection), connection.dialect
    try:
        driver.cursor().execute(statement)
    except dialect.loaded_dbapi.Error as exc:
        gone = dialect.is_disconnect(exc, driver, None)
        raise DBAPIError.instance(
            statement, None, exc, dialect.loaded_dbapi.Error, connection_invalidated=gone, dialect=dialect
        ) from exc


# The constant statements of this package, compiled once to a text for the driver.
#
# An inspection executes about sixty statements, and a third of its total cost was SQLAlchemy's work on each execution.
# Statements whose shape varies (lists with filters, ``IN`` with a list) are executed by SQLAlchemy. See ``session``.

Parameters = dict[str, Any]

# Far more than there are statements; the limit keeps the cache finite whatever queries clients send.
_MAX_COMPILED: Final = 2048


class Compiled(msgspec.Struct, frozen=True):
    """A statement as the driver executes it, with the names of its values by position, if it does not take names."""

    text: str
    positions: tuple[str, ...] | None
    defaults: dict[str, Any]
    answers: bool  # whether it returns rows; asking the driver may cost more than reading them


class Statements:
    """A cache of the compiled statements of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.dialect: Dialect = engine.dialect
        # The statement is kept too: its ``id`` is the key, and could be reused after it was freed.
        self.compiled: dict[tuple[int, tuple[str, ...]], tuple[ClauseElement, Compiled]] = {}

    def compile(self, statement: ClauseElement, parameters: Parameters) -> Compiled:
        """Compile ``statement`` for parameters of these names, and keep it."""
        compiled: Any = statement.compile(dialect=self.dialect, column_keys=list(parameters))
        defaults = {
            name: value for name, value in compiled.params.items() if name not in parameters and value is not None
        }
        absent = {name: None for name in compiled.params if name not in parameters}
        positions = tuple(compiled.positiontup) if compiled.positional else None
        compiled_statement = Compiled(str(compiled), positions, absent | defaults, _answers(statement))
        if len(self.compiled) >= _MAX_COMPILED:
            self.compiled.clear()
        self.compiled[id(statement), tuple(parameters)] = (statement, compiled_statement)
        return compiled_statement


def _answers(statement: Any) -> bool:
    return bool(statement.is_select or getattr(statement, "_returning", ()))
