"""Writing the copy, in many transactions, so that an incomplete one is never taken for a whole one.

While a copy is incomplete, its mark is in place of the schema's version, so every release refuses to start on it. Each
transaction begins by changing the mark: if another copy into the same database has begun since, it fails, and has
written nothing. A copy that was killed starts over.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, LargeBinary, Table, bindparam, delete, insert, text, update

from ferroscope.db import executor, migrate
from ferroscope.db.copying import tables
from ferroscope.db.copying.values import Row
from ferroscope.db.executor import LARGEST_VALUE

_SWAP: Final = text("UPDATE alembic_version SET version_num = :new WHERE version_num = :old")


class OtherCopyError(Exception):
    """Another copy into this database has begun, or its schema was changed; nothing more was written."""


class Destination:
    """``version`` is the stored schema version: this release's, or the mark of an incomplete copy."""

    def __init__(self, connection: Connection, version: str) -> None:
        self._connection = connection
        self._mark = version
        self._name = f"{migrate.COPYING}{secrets.token_hex(4)}"
        self._transactions = 0

    def clear(self) -> None:
        """Mark the database, and delete what an incomplete copy has left."""
        with self._transaction() as connection:
            for table in tables.COPIED:
                connection.execute(delete(table))

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert the rows in one transaction."""
        names = list(table.columns.keys())
        with self._transaction() as connection:
            whole, rests = [], []
            for row in rows:
                values, more = _split(table, dict(zip(names, row, strict=True)), LARGEST_VALUE[connection.dialect.name])
                whole.append(values)
                rests += more
            connection.execute(insert(table), whole)
            for column, key, rest in rests:
                _append(connection, table, column, key, rest)

    def complete(self, epoch: int, numbers: Mapping[str, int]) -> None:
        """Set what the database generates, and give the schema its version: from now on the copy is complete."""
        for table in tables.COPIED:
            if table.name in numbers:
                with self._transaction() as connection:
                    tables.set_last_number(connection, table, numbers[table.name])
        with self._transaction(migrate.HEAD) as connection:
            tables.set_highest_epoch(connection, epoch)

    @contextmanager
    def _transaction(self, mark: str | None = None) -> Iterator[Connection]:
        connection = self._connection
        self._transactions += 1
        mark = mark or f"{self._name}-{self._transactions}"
        for statement in executor.database_of(connection.dialect.name).opening(True, True, True):
            connection.exec_driver_sql(statement.text)
        try:
            self._swap(mark)
            yield connection
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            executor.rollback(connection)
            raise
        self._mark = mark

    def _swap(self, mark: str) -> None:
        if self._connection.execute(_SWAP, {"new": mark, "old": self._mark}).rowcount != 1:
            raise OtherCopyError("another copy into this database has begun")


_Rest = tuple[str, dict[str, Any], Any]


def _split(table: Table, values: dict[str, Any], largest: int) -> tuple[dict[str, Any], list[_Rest]]:
    """Return the row with the beginnings of values that are too large for one statement, and their rests."""
    # A character may take four bytes, and each may be escaped.
    sizes = {name: largest // 8 if isinstance(value, str) else largest for name, value in values.items()}
    long = [name for name, value in values.items() if isinstance(value, str | bytes) and len(value) > sizes[name]]
    if not long:
        return values, []
    key = {column.name: values[column.name] for column in table.primary_key.columns}
    rests = [
        (name, key, values[name][start : start + sizes[name]])
        for name in long
        for start in range(sizes[name], len(values[name]), sizes[name])
    ]
    return values | {name: values[name][: sizes[name]] for name in long}, rests


def _append(connection: Connection, table: Table, name: str, key: Mapping[str, Any], rest: Any) -> None:
    column = table.c[name]
    more: Any = bindparam("more", rest, type_=LargeBinary() if isinstance(rest, bytes) else None)
    row = [table.c[name] == value for name, value in key.items()]
    connection.execute(update(table).where(*row).values({name: column.concat(more)}))
