"""The event journal in SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import bindparam, delete, select

from ferroscope.adapters.sql import inserts, schema
from ferroscope.adapters.sql.query import page
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.contracts.store import Query
from ferroscope.core.model import Entry

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_ENTRY = Mapper(Entry, schema.journal)
_NEW_ENTRY: Final = tuple(name for name in _ENTRY.fields if name != "id")

_j = schema.journal.c
_OLD = (
    select(_j.id).where(_j.inspection.is_(None), _j.at < bindparam("before")).order_by(_j.id).limit(bindparam("limit"))
)
_DELETE_OLD = delete(schema.journal).where(_j.id.in_(bindparam("ids", expanding=True)))


class SqlJournal:
    """See ``contracts.store.Journal``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx
        self._unwritten: list[Entry] = []

    def append(self, entries: Iterable[Entry]) -> None:
        self._unwritten += entries

    def write(self) -> None:
        """Write what was appended, all of it at once."""
        rows = []
        for entry in self._unwritten:
            row = _ENTRY.to_row(entry)
            row["uuid"] = entry.uuid or str(uuid.uuid4())
            row["at"] = entry.at or self._tx.now
            rows.append([row[name] for name in _NEW_ENTRY])
        inserts.add(self._tx, schema.journal, _NEW_ENTRY, rows)
        self._unwritten = []

    def list(self, query: Query) -> Sequence[Entry]:
        self.write()
        query = msgspec.structs.replace(query, sort_key="id")
        return page(self._tx, _ENTRY, query, key="id")

    def remove_old(self, before: float, limit: int) -> int:
        self.write()
        execute = self._tx.connection.execute
        ids = list(execute(_OLD, {"before": before, "limit": limit}).scalars())
        if ids:
            execute(_DELETE_OLD, {"ids": ids})
        return len(ids)
