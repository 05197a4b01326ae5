"""Statements on their way to the driver. They bypass SQLAlchemy's execution, which is too slow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings

# Seconds until an idle connection is probed, between probes, and the number of probes; by libpq's names.
KEEPALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
# A server that works has ended a statement at its time limit. Callers of a silent server are told soon after that.
ANSWER_GRACE_SECONDS: Final = 0.5

# The clock of each database, in seconds since the epoch.
NOW: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
    "mysql": "(UNIX_TIMESTAMP(SYSDATE(6)) + 0E0)",
    "mariadb": "(UNIX_TIMESTAMP(SYSDATE(6)) + 0E0)",
}
# The maximum number of bytes to send as one value. Within a packet of MariaDB: PyMySQL sends bytes as hexadecimal.
LARGEST_VALUE: Final = {
    "sqlite": sys.maxsize,
    "postgresql": sys.maxsize,
    "mysql": 4 * 1024 * 1024,
    "mariadb": 4 * 1024 * 1024,
}
Rows = Sequence[Any]
Result = tuple[Rows, int]
Send = Callable[[Connection, Sequence["SqlCommand"]], list[Result]]


class SqlCommand(msgspec.Struct, eq=False):
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

    def opening(self, write: bool, durable: bool, snapshot: bool, /) -> Sequence[SqlCommand]:
        """Return the statements that begin a transaction; but on SQLite, the last one returns the database's clock.

        Without ``snapshot`` a read has no transaction, and that is the only statement.
        """

    def closing(self, woken: Collection[str], /) -> Sequence[SqlCommand]:
        """Return COMMIT, and what is sent after it to publish the messages in ``woken``."""

    def send(self, connection: Connection, commands: Sequence[SqlCommand]) -> list[Result]:
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


def begins(*texts: str) -> Sequence[SqlCommand]:
    """Return the statements that begin a transaction; the last one returns the database's clock."""
    return [SqlCommand(text, {}, answers=text is texts[-1], begins=True) for text in texts]


COMMIT: Final = SqlCommand("COMMIT", {}, answers=False)


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
