"""All rows of a table in batches of limited size, whatever the rows contain.

A batch is read by the primary key, where the one before has ended: with a cursor, drivers would read more rows at once
than fit into memory, or all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, and_, or_, select, true, type_coerce
from sqlalchemy.types import NullType

from ferroscope.db.copying.values import Converter, Row
from ferroscope.db.mapping import size_of

_MAX_BATCH_ROWS: Final = 1000
# Bytes of long texts and of binary data in a batch; a single row may have more.
_MAX_BATCH_BYTES: Final = 4 * 1024 * 1024


def batches(connection: Connection, table: Table, convert: Converter) -> Iterator[list[Row]]:
    """Yield all rows of ``table`` in the order of the primary key; ``OddValueError``.

    The caller's transaction must be a snapshot.
    """
    after: Sequence[Any] | None = None
    # Without the types' own conversion, which fails on a value of another type without saying where.
    rows: Any = select(*(type_coerce(column, NullType()).label(column.name) for column in table.columns))
    names = list(table.columns.keys())
    key = [names.index(column.name) for column in table.primary_key.columns]
    for number in _numbers(connection, table):
        batch = connection.execute(_next(rows, table, after, number)).all()
        after = [batch[-1][index] for index in key]
        yield [convert(row) for row in batch]


def _numbers(connection: Connection, table: Table) -> Iterator[int]:
    """Yield how many rows the next batch has."""
    key = list(table.primary_key.columns)
    raw = [type_coerce(column, NullType()).label(column.name) for column in key]
    sizes: Any = select(*raw, size_of(table.columns).label("size"))
    after: Sequence[Any] | None = None
    while page := connection.execute(_next(sizes, table, after, _MAX_BATCH_ROWS)).all():
        after = page[-1][:-1]
        rows = size = 0
        for row in page:
            if rows and size + row.size > _MAX_BATCH_BYTES:
                yield rows
                rows = size = 0
            rows, size = rows + 1, size + row.size
        yield rows


def _next(statement: Any, table: Table, after: Sequence[Any] | None, rows: int) -> Any:
    key = list(table.primary_key.columns)
    return statement.where(_beyond(key, after)).order_by(*key).limit(rows)


def _beyond(key: Sequence[Any], after: Sequence[Any] | None) -> ColumnElement[bool]:
    """Return the condition that a row comes after the one with this key."""
    if after is None:
        return true()
    beyond: ColumnElement[bool] = key[-1] > after[-1]
    for column, value in list(zip(key, after, strict=True))[-2::-1]:
        beyond = or_(column > value, and_(column == value, beyond))
    # The same in a form that lets MariaDB use the index.
    return beyond if len(key) == 1 else and_(key[0] >= after[0], beyond)
