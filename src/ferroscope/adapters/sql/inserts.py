"""Several rows of one table in as few statements as can be: one INSERT with a list of values each.

The drivers' ``executemany`` sends a statement for each row. Numbers of rows in a statement are powers of
two, so that few statements are compiled and prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Insert, Table, bindparam, insert

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

# Rows in one statement.
_MOST: Final = 32


@lru_cache(maxsize=128)
def _insert(table: Table, columns: tuple[str, ...], rows: int) -> tuple[Insert, tuple[str, ...]]:
    values: list[dict[str, Any]] = [{column: bindparam(f"{column}_{row}") for column in columns} for row in range(rows)]
    return insert(table).values(values), tuple(f"{column}_{row}" for row in range(rows) for column in columns)


def add(tx: SqlTransaction, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert ``rows``, each with the values of ``columns`` in their order."""
    start, size, names = 0, _MOST, tuple(columns)
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        statement, parameters = _insert(table, names, size)
        values = [value for row in rows[start : start + size] for value in row]
        tx.ask(statement, dict(zip(parameters, values, strict=True)))
        start += size
