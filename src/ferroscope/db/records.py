"""Chassis, port groups and remediations in SQL: records that nothing in the database interprets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Table, bindparam, delete, insert, or_, select, update

from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Chassis, Portgroup
from ferroscope.core.remediation import Pause, Remediation
from ferroscope.db import schema
from ferroscope.db.errors import conflict
from ferroscope.db.mapping import Mapper, page, sizes
from ferroscope.db.session import Repository
from ferroscope_client.core import json_safety

R = TypeVar("R", Chassis, Portgroup)


class _Statements(Generic[R]):
    """The statements of one table, built once."""

    def __init__(self, struct: type[R], table: Table) -> None:
        self.table = table
        self.mapper: Mapper[R] = Mapper(struct, table)
        columns = table.c
        ident: Any = bindparam("ident")
        condition: ColumnElement[bool] = columns.uuid == ident
        if "name" in columns:
            condition = or_(condition, columns.name == ident)
        self.insert = insert(table)
        self.get = select(*self.mapper.columns).where(condition)
        self.locked = self.get.with_for_update()
        changed = [name for name in self.mapper.fields if name not in ("uuid", "created_at")]
        self.update = (
            update(table).where(columns.uuid == bindparam("_uuid")).values({name: bindparam(name) for name in changed})
        )
        self.delete = delete(table).where(columns.uuid == ident)


class Records(Repository, Generic[R]):
    """The chassis, or the port groups of all nodes: resources that nothing here interprets."""

    _of: ClassVar[_Statements[Any]]

    def add(self, record: R) -> None:
        """Store a new record; ``ConflictError`` if its UUID, name or address is in use."""
        row = self._of.mapper.to_row(record)
        row["created_at"] = record.created_at or self._tx.now
        self._tx.written.note(self._kind, record.uuid, record.updated_at)
        self._tx.ask(self._of.insert, row, failed=partial(conflict, row=row, table=self._of.table))

    @property
    def _kind(self) -> str:
        return self._of.mapper.struct.__name__.lower()

    def get(self, ident: str, *, lock: bool = False) -> R:
        """Return the record with this UUID or name; ``NotFoundError``.

        ``lock`` prevents other transactions from changing it before this one has ended.
        """
        row = self._tx.run(self._of.locked if lock else self._of.get, {"ident": ident}).first()
        if row is None:
            raise NotFoundError(self._kind, ident)
        record: R = self._of.mapper.from_row(row)
        return record

    def update(self, record: R) -> R:
        """Save all fields and return the record with its new ``updated_at``; ``NotFoundError``, ``ConflictError``."""
        self._tx.written.check(self._kind, record.uuid, record.updated_at)
        changed = msgspec.structs.replace(record, updated_at=self._tx.now)
        row = self._of.mapper.to_row(changed) | {"_uuid": record.uuid}
        failed = partial(conflict, row=dict(row), table=self._of.table)
        del row["uuid"], row["created_at"]
        if self._tx.run(self._of.update, row, failed=failed).rowcount == 0:
            raise NotFoundError(self._kind, record.uuid)
        self._tx.written.note(self._kind, record.uuid, changed.updated_at)
        return changed

    def remove(self, uuid: str) -> None:
        """Delete the record, if it exists."""
        self._tx.ask(self._of.delete, {"ident": uuid})

    def list(self, query: Query) -> Sequence[R]:
        """Return one page of records."""
        return page(self._tx, self._of.mapper, query)

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        return sizes(self._tx, self._of.mapper, query)


class ChassisRecords(Records[Chassis]):
    """All chassis."""

    _of = _Statements(Chassis, schema.chassis)


class Portgroups(Records[Portgroup]):
    """The port groups of all nodes."""

    _of = _Statements(Portgroup, schema.portgroups)


def _subject(remediation: Remediation) -> str:
    return f"machine/{remediation.machine}" if remediation.detached else remediation.node


_r = schema.remediations.c
_READ = select(_r.record)
_ACTIVE = _READ.where(_r.cluster == bindparam("cluster"), _r.active.is_not(None)).order_by(_r.started_at, _r.uuid)
_ELSEWHERE = (
    select(_r.record, _r.uuid, _r.cluster, _r.node, _r.machine)
    .where(_r.cluster != bindparam("cluster"), _r.active.is_not(None))
    .order_by(_r.started_at, _r.uuid)
)
_NEWEST = (
    _READ.where(_r.cluster == bindparam("cluster")).order_by(_r.started_at.desc(), _r.uuid).limit(bindparam("limit"))
)
_LATEST = (
    _READ.where(_r.cluster == bindparam("cluster"), _r.node == bindparam("node"))
    .order_by(_r.started_at.desc(), _r.uuid)
    .limit(1)
)
_COLUMNS: Final = ("machine", "phase", "ended_at", "active", "record")
_SAVE = update(schema.remediations).where(_r.uuid == bindparam("_uuid")).values({c: bindparam(c) for c in _COLUMNS})
_ADD = insert(schema.remediations)
_ENDED = delete(schema.remediations).where(_r.ended_at < bindparam("before"))


_p = schema.failover_pauses.c
_PAUSE = select(_p.why, _p.by, _p.at).where(_p.cluster == bindparam("cluster"))
_RESUME = delete(schema.failover_pauses).where(_p.cluster == bindparam("cluster"))
_ADD_PAUSE = insert(schema.failover_pauses)


class Remediations(Repository):
    """What the failed-node controller does and has done, by cluster."""

    def save(self, remediation: Remediation) -> None:
        """Add or update it; ``ConflictError`` if another one of the same node is in progress."""
        row: dict[str, Any] = {
            "machine": remediation.machine or None,
            "phase": str(remediation.phase),
            "ended_at": remediation.ended_at,
            # Unique while it is in progress: a node has one remediation at a time, and a machine that is left off one.
            "active": None if remediation.ended else f"{remediation.cluster}/{_subject(remediation)}",
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
        """Return those in progress, oldest first."""
        return self._all(self._tx.run(_ACTIVE, {"cluster": cluster}))

    def elsewhere(self, cluster: str) -> Sequence[Remediation]:
        """Return those in progress in all other clusters, oldest first."""
        records = []
        for text, uuid, own, node, machine in self._tx.run(_ELSEWHERE, {"cluster": cluster}):
            try:
                records.append(json_safety.decode_own(text, Remediation))
            except json_safety.JsonError:  # written by a newer release: do not touch its machine
                held = Remediation(
                    uuid=uuid, cluster=own, node=node, node_uid="", machine=machine or "", commanded=True
                )
                records.append(held)
        return records

    def newest(self, cluster: str, limit: int) -> Sequence[Remediation]:
        """Return the newest ones, newest first."""
        return self._all(self._tx.run(_NEWEST, {"cluster": cluster, "limit": limit}))

    def pause_of(self, cluster: str) -> Pause | None:
        """Return the pause of all remediation in the cluster; None if there is none."""
        row = self._tx.run(_PAUSE, {"cluster": cluster}).first()
        return None if row is None else Pause(*row)

    def pause(self, cluster: str, why: str, by: str) -> None:
        """Stop all remediation in the cluster until ``resume``; a former pause is replaced."""
        self.resume(cluster)
        self._tx.run(_ADD_PAUSE, {"cluster": cluster, "why": why, "by": by, "at": self._tx.now})

    def resume(self, cluster: str) -> bool:
        """End the pause; return whether there was one."""
        return bool(self._tx.run(_RESUME, {"cluster": cluster}).rowcount)

    def latest(self, cluster: str, node: str) -> Remediation | None:
        """Return the newest one of the node, None if it has none."""
        return next(iter(self._all(self._tx.run(_LATEST, {"cluster": cluster, "node": node}))), None)

    def remove_ended(self, before: float) -> int:
        """Delete those that ended before this time; return their number."""
        return int(self._tx.run(_ENDED, {"before": before}).rowcount)

    @staticmethod
    def _all(rows: Any) -> Sequence[Remediation]:
        return [json_safety.decode_own(row[0], Remediation) for row in rows]
