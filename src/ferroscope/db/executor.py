"""Statements on their way to the driver. They bypass SQLAlchemy's execution, which is too slow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import URL, Connection, Dialect, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ClauseElement

from ferroscope.config.options import DatabaseSettings

# Seconds until an idle connection is probed, between probes, and the number of probes; by libpq's names.
KEEPALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
# A server that works has ended a statement at its time limit. Callers of a silent server are told soon after that.
ANSWER_GRACE_SECONDS: Final = 0.5

Rows = Sequence[Any]
Result = tuple[Rows, int]
Send = Callable[[Connection, Sequence["Command"]], list[Result]]


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

    ``results`` are the known results of the statements before it. If the connection is broken, the first ``sent``
    statements may have been executed; later ones certainly were not.
    """

    def __init__(
        self, place: int, cause: Exception, results: Sequence[Result] = (), *, sent: int | None = None
    ) -> None:
        super().__init__(str(cause))
        self.place = place
        self.cause: Any = cause
        self.results = results
        self.sent = place + 1 if sent is None else sent


class Database(Protocol):
    """What differs between the databases when statements are sent; each has a module of this shape.

    ``connect_arguments`` returns the URL with its driver, and the arguments of a connection. ``listen`` prepares each
    new connection of an engine.
    """

    def connect_arguments(self, url: URL, settings: DatabaseSettings) -> tuple[URL, dict[str, Any]]: ...
    def listen(self, engine: Engine, settings: DatabaseSettings) -> None: ...

    def opening(self, write: bool, durable: bool, snapshot: bool, /) -> Sequence[Command]:
        """Return the statements that begin a transaction; but on SQLite, the last one returns the database's clock.

        Without ``snapshot`` a read has no transaction, and that is the only statement.
        """

    def closing(self, woken: Collection[str], /) -> Sequence[Command]:
        """Return COMMIT, and what is sent after it to publish the messages in ``woken``."""

    def send(self, connection: Connection, commands: Sequence[Command]) -> list[Result]:
        """Execute the commands in this order; ``CommandError``."""


def database_of(family: str) -> Database:
    """Return the module of a database, by its name in URLs; ``ImportError`` if its driver is not installed."""
    if family == "sqlite":
        from ferroscope.db import sqlite

        return sqlite
    if family == "postgresql":
        from ferroscope.db import postgresql

        return postgresql
    from ferroscope.db import mariadb

    return mariadb


def begins(*texts: str) -> Sequence[Command]:
    """Return the statements that begin a transaction; the last one returns the database's clock."""
    return [Command(text, {}, answers=text is texts[-1], begins=True) for text in texts]


COMMIT: Final = Command("COMMIT", {}, answers=False)


def rollback(connection: Connection) -> None:
    """Roll back; if that fails, discard the connection."""
    if connection.invalidated:  # SQLAlchemy has found it broken, and no longer provides the driver's connection
        return
    try:
        if connection.dialect.name != "sqlite" or _driver(connection).in_transaction:
            execute(connection, "ROLLBACK")
    except DBAPIError:
        connection.invalidate()


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def execute(connection: Connection, statement: str) -> None:
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
