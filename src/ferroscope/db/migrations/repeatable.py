"""Steps of a migration on MariaDB and MySQL that can be repeated: what is already there is not an error.

These databases commit after each statement that changes the schema, so an upgrade that was killed leaves the first
steps of a migration behind, and the next upgrade repeats the migration from its beginning. The other databases undo all
of it. Imported by ``env``; Alembic registers the classes by their dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from alembic.ddl.mysql import MySQLImpl
from sqlalchemy import Index, Inspector, Table, inspect
from sqlalchemy.exc import DBAPIError

# A table, a column or an index of this name exists; a row with this key exists.
_EXISTS: Final = {1050, 1060, 1061}
_ROW_EXISTS: Final = {1062}


class Repeatable(MySQLImpl):
    """Accepts what an earlier attempt has made; a table or an index with other columns stays an error."""

    __dialect__ = "mysql"

    def create_table(self, table: Table, **options: Any) -> None:
        names = {column.name for column in table.columns}
        with self._repeat(lambda inspector: {column["name"] for column in inspector.get_columns(table.name)} == names):
            super().create_table(table, **options)

    def create_index(self, index: Index, **options: Any) -> None:
        table, columns = index.table.name if index.table is not None else "", [column.name for column in index.columns]
        with self._repeat(lambda inspector: (index.name, columns) in _indexes(inspector, table)):
            super().create_index(index, **options)

    def add_column(self, *arguments: Any, **options: Any) -> None:
        with self._repeat(lambda _inspector: True):
            super().add_column(*arguments, **options)

    def bulk_insert(self, table: Any, rows: list[dict[str, Any]], multiinsert: bool = True) -> None:  # Alembic's
        for row in rows:
            with self._repeat(lambda _inspector: True, _ROW_EXISTS):
                super().bulk_insert(table, [row], multiinsert)

    @contextmanager
    def _repeat(self, is_same: Callable[[Inspector], bool], errors: set[int] = _EXISTS) -> Iterator[None]:
        try:
            yield
        except DBAPIError as exc:
            code = exc.orig.args[0] if exc.orig is not None and exc.orig.args else None
            if code not in errors or not is_same(inspect(self.connection)):
                raise


class RepeatableMariaDB(Repeatable):
    __dialect__ = "mariadb"


def _indexes(inspector: Inspector, table: str) -> list[tuple[str | None, list[str | None]]]:
    return [(index["name"], index["column_names"]) for index in inspector.get_indexes(table)]
