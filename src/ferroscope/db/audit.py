"""Audit events in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, insert, select

from ferroscope.contracts.audit import Audited
from ferroscope.core.audit import AuditEvent
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper
from ferroscope.db.session import SqlSession

_EVENT: Final = Mapper(AuditEvent, schema.audit)
_NEW: Final = tuple(name for name in _EVENT.fields if name != "id")
_a = schema.audit.c
_INSERT = insert(schema.audit).values({name: bindparam(name) for name in _NEW})
_OLD = select(_a.id).where(_a.at < bindparam("before")).order_by(_a.at).limit(bindparam("limit"))
_DELETE_OLD = delete(schema.audit).where(_a.id.in_(bindparam("ids", expanding=True)))


class SqlAudit:
    """See ``contracts.audit.AuditLog``."""

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def append(self, event: AuditEvent) -> None:
        row = _EVENT.to_row(event)
        row["at"] = event.at or self._tx.now
        self._tx.ask(_INSERT, {name: _cut(row[name], name) for name in _NEW})

    def list(
        self,
        *,
        limit: int,
        before: int | None = None,
        since: float = 0.0,
        node: str | None = None,
        user: str | None = None,
    ) -> Sequence[AuditEvent]:
        query = select(*_EVENT.columns).where(_a.at >= since).order_by(_a.id.desc()).limit(limit)
        for column, value in ((_a.node, node), (_a.user, user)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(_a.id < before)
        return [_EVENT.from_row(row) for row in self._tx.connection.execute(query)]

    def remove_old(self, before: float, limit: int) -> int:
        execute = self._tx.connection.execute
        ids = [*execute(_OLD, {"before": before, "limit": limit}).scalars()]
        if ids:
            execute(_DELETE_OLD, {"ids": ids})
        return len(ids)


def record(tx: SqlSession, audit: SqlAudit, pending: Audited, changed: set[str]) -> None:
    """Append the event of the call that makes this transaction; ``changed`` are the nodes that it has locked."""
    pending.event = msgspec.structs.replace(
        pending.event, node=next(iter(changed)) if len(changed) == 1 else None, at=tx.now
    )
    audit.append(pending.event)


def _cut(value: object, name: str) -> object:
    length = getattr(_a[name].type, "length", None)
    return value[:length] if isinstance(value, str) and length else value
