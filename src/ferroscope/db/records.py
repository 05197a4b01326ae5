"""Chassis and port groups in SQL: resources that nothing here interprets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Table, bindparam, delete, insert, or_, select, update

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Chassis, Portgroup
from ferroscope.db import schema
from ferroscope.db.engine import conflict
from ferroscope.db.mapping import Mapper, page
from ferroscope.db.session import SqlSession

R = TypeVar("R", Chassis, Portgroup)


class _Statements(Generic[R]):
    """The statements of one table, built once."""

    def __init__(self, struct: type[R], table: Table) -> None:
        self.table = table
        self.mapper: Mapper[R] = Mapper(struct, table)
        columns = table.c
        ident: Any = bindparam("ident")
        found: ColumnElement[bool] = columns.uuid == ident
        if "name" in columns:
            found = or_(found, columns.name == ident)
        self.insert = insert(table)
        self.get = select(*self.mapper.columns).where(found)
        self.locked = self.get.with_for_update()
        changed = [name for name in self.mapper.fields if name not in ("uuid", "created_at")]
        self.update = (
            update(table).where(columns.uuid == bindparam("_uuid")).values({name: bindparam(name) for name in changed})
        )
        self.delete = delete(table).where(columns.uuid == ident)


class _Records(Generic[R]):
    """See ``contracts.store.Records``."""

    _of: _Statements[R]

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def add(self, record: R) -> None:
        row = self._of.mapper.to_row(record)
        row["created_at"] = record.created_at or self._tx.now
        self._tx.ask(self._of.insert, row, failed=partial(conflict, row=row, table=self._of.table))

    def get(self, ident: str, *, lock: bool = False) -> R:
        row = self._tx.run(self._of.locked if lock else self._of.get, {"ident": ident}).first()
        if row is None:
            raise NotFoundError(self._of.mapper.struct.__name__.lower(), ident)
        return self._of.mapper.from_row(row)

    def update(self, record: R) -> R:
        changed = msgspec.structs.replace(record, updated_at=self._tx.now)
        row = self._of.mapper.to_row(changed) | {"_uuid": record.uuid}
        failed = partial(conflict, row=dict(row), table=self._of.table)
        del row["uuid"], row["created_at"]
        if self._tx.run(self._of.update, row, failed=failed).rowcount == 0:
            raise NotFoundError(self._of.mapper.struct.__name__.lower(), record.uuid)
        return changed

    def remove(self, uuid: str) -> None:
        self._tx.ask(self._of.delete, {"ident": uuid})

    def list(self, query: Query) -> Sequence[R]:
        return page(self._tx, self._of.mapper, query)


class SqlChassis(_Records[Chassis]):
    """All chassis."""

    _of = _Statements(Chassis, schema.chassis)


class SqlPortgroups(_Records[Portgroup]):
    """The port groups of all nodes."""

    _of = _Statements(Portgroup, schema.portgroups)
