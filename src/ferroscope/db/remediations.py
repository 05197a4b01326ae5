"""Remediations of failed Kubernetes nodes in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.remediation import Remediation
from ferroscope.db import schema
from ferroscope.db.session import SqlSession

_r = schema.remediations.c
_READ = select(_r.record)
_ACTIVE = _READ.where(_r.cluster == bindparam("cluster"), _r.active.is_not(None)).order_by(_r.started_at, _r.uuid)
_NEWEST = (
    _READ.where(_r.cluster == bindparam("cluster")).order_by(_r.started_at.desc(), _r.uuid).limit(bindparam("limit"))
)
_COLUMNS: Final = ("machine", "phase", "ended_at", "active", "record")
_SAVE = update(schema.remediations).where(_r.uuid == bindparam("_uuid")).values({c: bindparam(c) for c in _COLUMNS})
_ADD = insert(schema.remediations)
_ENDED = delete(schema.remediations).where(_r.ended_at < bindparam("before"))


class SqlRemediations:
    """See ``contracts.store.Remediations``."""

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def save(self, remediation: Remediation) -> None:
        row: dict[str, Any] = {
            "machine": remediation.machine or None,
            "phase": str(remediation.phase),
            "ended_at": remediation.ended_at,
            # Unique while it is in progress: a node has one remediation at a time.
            "active": None if remediation.ended else f"{remediation.cluster}/{remediation.node}",
            "record": msgspec.json.encode(remediation).decode(),
        }
        if self._tx.run(_SAVE, row | {"_uuid": remediation.uuid}).rowcount:
            return
        row |= {
            "uuid": remediation.uuid,
            "cluster": remediation.cluster,
            "node": remediation.node,
            "started_at": remediation.started_at,
        }
        self._tx.run(_ADD, row, failed=lambda _: ConflictError("node", remediation.node))

    def active(self, cluster: str) -> Sequence[Remediation]:
        return self._all(self._tx.run(_ACTIVE, {"cluster": cluster}))

    def newest(self, cluster: str, limit: int) -> Sequence[Remediation]:
        return self._all(self._tx.run(_NEWEST, {"cluster": cluster, "limit": limit}))

    def remove_ended(self, before: float) -> int:
        return int(self._tx.run(_ENDED, {"before": before}).rowcount)

    @staticmethod
    def _all(rows: Any) -> Sequence[Remediation]:
        return [msgspec.json.decode(row[0], type=Remediation) for row in rows]
