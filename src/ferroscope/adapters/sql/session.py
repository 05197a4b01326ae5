"""Where a transaction begins and ends, in one round trip each, by the driver's own means.

There are ten transactions in an inspection, so SQLAlchemy's ado about them, and a statement of
its own for each thing that belongs to a BEGIN or a COMMIT, would cost more than the work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from ferroscope.adapters.sql.dialect import NOTIFY_CHANNEL, NOW

_PG_NOW: Final = f"SELECT {NOW['postgresql']}"
_MYSQL_NOW: Final = f"SELECT {NOW['mysql']}"
# (write, durable) -> the statements, the last of which answers with the database's clock. A read
# sees one moment only, whatever number of statements it has.
_POSTGRESQL: Final = {
    (True, True): f"BEGIN ISOLATION LEVEL READ COMMITTED; {_PG_NOW}",
    (True, False): f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO OFF; {_PG_NOW}",
    (False, False): f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PG_NOW}",
}
_MYSQL: Final = {
    (True, True): f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; {_MYSQL_NOW}",
    (True, False): f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; {_MYSQL_NOW}",
    (False, False): f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY; {_MYSQL_NOW}",
}


def begin(connection: Connection, *, write: bool, durable: bool) -> float | None:
    """Open the transaction; return the database's clock, None where it is this host's.

    On SQLite a write takes the write lock at once, so that it never deadlocks.
    """
    family = connection.dialect.name
    if family == "sqlite":
        if write:
            _set_sqlite_durability(connection, durable=durable)
        _run(connection, "BEGIN IMMEDIATE" if write else "BEGIN")
        return None
    statements = _POSTGRESQL if family == "postgresql" else _MYSQL
    return float(_run(connection, statements[write, durable], answer=_last_answer))


def commit(connection: Connection, woken: Collection[str]) -> None:
    """Commit; where the database can, tell other processes about the channels in ``woken``."""
    notify = ""
    if woken and connection.dialect.name == "postgresql":
        notify = "".join(f"NOTIFY {NOTIFY_CHANNEL}, '{text}'; " for text in map(_quoted, sorted(woken)))
    _run(connection, f"{notify}COMMIT")


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def rollback(connection: Connection) -> None:
    """Undo; a connection that cannot even do that is thrown away."""
    if connection.invalidated:  # SQLAlchemy saw it break, and would not give it to us any more
        return
    try:
        if connection.dialect.name != "sqlite" or _driver(connection).in_transaction:
            _run(connection, "ROLLBACK")
    except DBAPIError:
        connection.invalidate()


def _set_sqlite_durability(connection: Connection, *, durable: bool) -> None:
    # In WAL mode NORMAL survives the death of any process; a later FULL commit also syncs
    # everything before it.
    level = "FULL" if durable else "NORMAL"
    if connection.info.get("synchronous", "FULL") != level:
        _run(connection, f"PRAGMA synchronous={level}")
        connection.info["synchronous"] = level


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _run(connection: Connection, statement: str, answer: Callable[[Any], Any] = lambda _cursor: None) -> Any:
    """Execute on the driver's connection and return ``answer``; errors become SQLAlchemy's, as elsewhere."""
    driver, dialect = _driver(connection), connection.dialect
    try:
        cursor = driver.cursor()
        cursor.execute(statement)
        return answer(cursor)
    except dialect.loaded_dbapi.Error as exc:
        gone = dialect.is_disconnect(exc, driver, None)
        raise DBAPIError.instance(
            statement, None, exc, dialect.loaded_dbapi.Error, connection_invalidated=gone, dialect=dialect
        ) from exc


def _last_answer(cursor: Any) -> Any:
    answer = None
    while True:
        if cursor.description is not None:
            (answer,) = cursor.fetchone()
        if not cursor.nextset():
            cursor.close()
            return answer
