"""With what a transaction begins and ends, by the driver's own means: SQLAlchemy's ado about it costs too much.

Neither is a round trip of its own: see ``batch``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ClauseElement

from ferroscope.db.engine import NOTIFY_CHANNEL, NOW

_PG_NOW: Final = f"SELECT {NOW['postgresql']}"
_MYSQL_NOW: Final = f"SELECT {NOW['mysql']}"
_MYSQL_WRITE: Final = ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION", _MYSQL_NOW)
# (write, durable) -> the statements, the last of which answers with the database's clock. A read
# sees one moment only, whatever number of statements it has.
_POSTGRESQL: Final = {
    (True, True): ("BEGIN ISOLATION LEVEL READ COMMITTED", _PG_NOW),
    (True, False): ("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit TO OFF", _PG_NOW),
    (False, False): ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", _PG_NOW),
}
_MYSQL: Final = {
    (True, True): _MYSQL_WRITE,
    (True, False): _MYSQL_WRITE,
    (False, False): (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION READ ONLY",
        _MYSQL_NOW,
    ),
}


def opening(connection: Connection, *, write: bool, durable: bool) -> Sequence[str]:
    """Return the statements that open a transaction; on a server the last one answers with its clock.

    On SQLite a write takes the write lock with its first statement, so that it never deadlocks.
    """
    family = connection.dialect.name
    if family == "sqlite":
        return (*_sqlite_durability(connection, durable=durable), "BEGIN IMMEDIATE") if write else ("BEGIN",)
    return (_POSTGRESQL if family == "postgresql" else _MYSQL)[write, durable]


def closing(connection: Connection, woken: Collection[str]) -> Sequence[str]:
    """Return what commits; where the database can, it tells other processes about the channels in ``woken``."""
    if not woken or connection.dialect.name != "postgresql":
        return ("COMMIT",)
    return (*(f"NOTIFY {NOTIFY_CHANNEL}, '{_quoted(text)}'" for text in sorted(woken)), "COMMIT")


def rollback(connection: Connection) -> None:
    """Undo; a connection that cannot even do that is thrown away."""
    if connection.invalidated:  # SQLAlchemy saw it break, and would not give it to us any more
        return
    try:
        if connection.dialect.name != "sqlite" or _driver(connection).in_transaction:
            _run(connection, "ROLLBACK")
    except DBAPIError:
        connection.invalidate()


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _sqlite_durability(connection: Connection, *, durable: bool) -> Sequence[str]:
    # In WAL mode NORMAL survives the death of any process; a later FULL commit also syncs
    # everything before it.
    level = "FULL" if durable else "NORMAL"
    if connection.info.get("synchronous", "FULL") == level:
        return ()
    connection.info["synchronous"] = level
    return (f"PRAGMA synchronous={level}",)


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _run(connection: Connection, statement: str) -> None:
    """Execute on the driver's connection; errors become SQLAlchemy's, as elsewhere."""
    driver, dialect = _driver(connection), connection.dialect
    try:
        driver.cursor().execute(statement)
    except dialect.loaded_dbapi.Error as exc:
        gone = dialect.is_disconnect(exc, driver, None)
        raise DBAPIError.instance(
            statement, None, exc, dialect.loaded_dbapi.Error, connection_invalidated=gone, dialect=dialect
        ) from exc


# The constant statements of this package, compiled once: text and parameters are all that a driver gets.
#
# SQLAlchemy builds and compiles each statement once for each dialect. An inspection has some sixty
# statements, and a third of its whole cost was spent between statement and driver. Statements that change
# their shape (lists with filters, ``IN`` with a list) go the ordinary way. How they are sent: ``batch``.

Parameters = dict[str, Any]

# Far more than there are statements; what shapes of queries callers think of must not add up for ever.
_KEPT: Final = 2048


class Compiled(msgspec.Struct, frozen=True):
    """A statement in the driver's words."""

    text: str
    positions: tuple[str, ...] | None
    defaults: dict[str, Any]
    answers: bool  # with rows; a driver's own word for that may cost more than the rows

    def parameters(self, given: Parameters) -> Any:
        """Return the values as the driver wants them."""
        values = self.defaults | given if self.defaults else given
        if self.positions is None:
            return values
        return [values[name] for name in self.positions]


class Statements:
    """The compiled statements of one engine; its cache holds what was executed at least once."""

    def __init__(self, engine: Engine) -> None:
        self.dialect: Dialect = engine.dialect
        # The statement is kept with its text, so that its identity stays its own.
        self._compiled: dict[tuple[int, tuple[str, ...]], tuple[ClauseElement, Compiled]] = {}

    def compile(self, statement: ClauseElement, given: Parameters) -> Compiled:
        """Return ``statement`` in the driver's words, for parameters of these names."""
        key = (id(statement), tuple(given))
        known = self._compiled.get(key)
        if known is None:
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            known = self._compiled[key] = (statement, self._translate(statement, given))
        return known[1]

    def _translate(self, statement: ClauseElement, given: Parameters) -> Compiled:
        compiled: Any = statement.compile(dialect=self.dialect, column_keys=list(given))
        defaults = {name: value for name, value in compiled.params.items() if name not in given and value is not None}
        absent = {name: None for name in compiled.params if name not in given}
        positions = tuple(compiled.positiontup) if compiled.positional else None
        return Compiled(str(compiled), positions, absent | defaults, _answers(statement))


def _answers(statement: Any) -> bool:
    return bool(statement.is_select or getattr(statement, "_returning", ()))
