"""Tables of row versions: what was committed, when, and what an older snapshot still sees.

A row is a dictionary that is never changed in place. ``head`` is the newest committed version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Column, MetaData
from sqlalchemy import Table as Schema

Key = tuple[Any, ...]
Row = dict[str, Any]


class Version:
    """One committed state of a row; ``row`` is None where it was deleted."""

    __slots__ = ("before", "row", "sequence")

    def __init__(self, sequence: int, row: Row | None, before: Version | None) -> None:
        self.sequence = sequence
        self.row = row
        self.before = before


class Table:
    """``uniques`` are the columns of which no two rows may have the same value, the key aside."""

    @classmethod
    def of(cls, columns: Iterable[str]) -> Table:
        """Return a table of these columns that nobody has declared."""
        return cls(Schema("", MetaData(), *(Column(name) for name in columns)))

    def __init__(self, schema: Schema) -> None:
        self.name = schema.name
        self.columns = tuple(column.name for column in schema.columns)
        self.key = tuple(column.name for column in schema.primary_key)
        self.uniques = tuple(column.name for column in schema.columns if column.unique)
        serial = schema.autoincrement_column
        self.serial = serial.name if serial is not None else None
        self.last = 0
        self.heads: dict[Key, Version] = {}

    def key_of(self, row: Row) -> Key:
        return tuple([row[name] for name in self.key])

    def committed(self, key: Key) -> Row | None:
        version = self.heads.get(key)
        return None if version is None else version.row

    def at(self, key: Key, sequence: int) -> Row | None:
        """Return the row as a snapshot taken at ``sequence`` sees it."""
        version = self.heads.get(key)
        while version is not None and version.sequence > sequence:
            version = version.before
        return None if version is None else version.row

    def rows(self, sequence: int) -> list[tuple[Key, Row]]:
        """Return all rows that a snapshot taken at ``sequence`` sees."""
        return [(key, row) for key in self.heads if (row := self.at(key, sequence)) is not None]

    def put(self, key: Key, row: Row | None, sequence: int, *, keep: bool) -> None:
        """Commit a version; older ones stay only as long as a snapshot may need them."""
        before = self.heads.get(key) if keep else None
        if row is None and before is None:
            self.heads.pop(key, None)
        else:
            self.heads[key] = Version(sequence, row, before)


def build(metadata: MetaData) -> dict[str, Table]:
    """Return empty tables for the product's schema."""
    return {name: Table(schema) for name, schema in metadata.tables.items()}
