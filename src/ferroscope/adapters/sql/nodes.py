"""Nodes, ports and inspections in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Table, bindparam, delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.dialect import violated_constraint
from ferroscope.adapters.sql.query import page
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.domain.model import Inspection, Node, Port
from ferroscope.domain.states import State
from ferroscope.ports.errors import ConflictError, NotFoundError, StaleError
from ferroscope.ports.store import Query

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

NODE = Mapper(Node, schema.nodes)
_PORT = Mapper(Port, schema.ports)
_INSPECTION = Mapper(Inspection, schema.inspections)

_n, _p, _i = schema.nodes.c, schema.ports.c, schema.inspections.c

_INSERT_NODE = insert(schema.nodes)
_BY_UUID = select(*NODE.columns).where(_n.uuid == bindparam("ident"))
_BY_NAME = select(*NODE.columns).where(_n.name == bindparam("ident"))
# lock -> the statements to try in turn for what looks like a UUID, and for what does not.
_SELECT_NODE = {
    False: ((_BY_NAME,), (_BY_UUID, _BY_NAME)),
    True: ((_BY_NAME.with_for_update(),), (_BY_UUID.with_for_update(), _BY_NAME.with_for_update())),
}
_UPDATE_NODE = update(schema.nodes).where(_n.uuid == bindparam("_uuid"), _n.version == bindparam("_version"))
_CHANGEABLE = tuple(name for name in NODE.fields if name not in ("uuid", "created_at"))
_INSERT_PORT = insert(schema.ports)
_SELECT_PORT = select(*_PORT.columns).where(or_(_p.uuid == bindparam("ident"), _p.address == bindparam("ident")))
_UPDATE_PORT = (
    update(schema.ports)
    .where(_p.uuid == bindparam("_uuid"))
    .values({name: bindparam(name) for name in Port.__struct_fields__ if name not in ("uuid", "created_at")})
)
_INSERT_INSPECTION = insert(schema.inspections)
_SELECT_INSPECTION = select(*_INSPECTION.columns).where(_i.uuid == bindparam("ident"))
_UPDATE_INSPECTION = update(schema.inspections).where(_i.uuid == bindparam("_uuid"))
_later = schema.inspections.alias("later")
_NEWEST = select(_n.inspection).where(_n.inspection.is_not(None))
_SUPERSEDED = exists().where(
    _later.c.node == _i.node, _later.c.state == State.FINISHED.value, _later.c.started_at > _i.started_at
)
_ENDED = (
    select(_i.uuid)
    .where(
        _i.finished_at < bindparam("before"),
        _i.uuid.not_in(_NEWEST),
        or_(_i.state != State.FINISHED.value, _SUPERSEDED),
    )
    .order_by(_i.finished_at)
    .limit(bindparam("limit"))
)
_ranked = select(
    _i.uuid,
    func.row_number().over(partition_by=_i.node, order_by=(_i.started_at.desc(), _i.uuid.desc())).label("place"),
).subquery("ranked")
_SURPLUS = (
    select(_i.uuid)
    .join(_ranked, _ranked.c.uuid == _i.uuid)
    .where(
        _ranked.c.place > bindparam("number"),
        _i.finished_at.is_not(None),
        _i.uuid.not_in(_NEWEST),
        or_(_i.state != State.FINISHED.value, _SUPERSEDED),
    )
    .order_by(_i.finished_at, _i.uuid)
    .limit(bindparam("limit"))
)
_DELETE_ENDED = tuple(
    delete(table).where(column.in_(bindparam("uuids", expanding=True)))
    for table, column in (
        (schema.inspections, _i.uuid),
        (schema.inspection_data, schema.inspection_data.c.inspection),
        (schema.journal, schema.journal.c.inspection),
    )
)
_discarding = update(schema.objects).where(schema.objects.c.state != "discarded")
_DISCARD_ENDED = _discarding.where(schema.objects.c.inspection.in_(bindparam("uuids", expanding=True))).values(
    state="discarded", at=bindparam("_now")
)
_DISCARD_OF_NODE = _discarding.where(schema.objects.c.node == bindparam("_node")).values(
    state="discarded", at=bindparam("_now")
)
_CHILDREN = (
    schema.ports,
    schema.inspections,
    schema.inspection_data,
    schema.requests,
    schema.journal,
    schema.bmc_addresses,
    schema.facts,
    schema.machine_macs,
)
_DELETE_CHILDREN = tuple(delete(table).where(table.c.node == bindparam("uuid")) for table in _CHILDREN)
_DELETE_NODE = delete(schema.nodes).where(_n.uuid == bindparam("uuid"))


def _is_uuid(ident: str) -> bool:
    return len(ident) == 36 and ident.count("-") == 4


def _conflict(error: IntegrityError, row: dict[str, Any], table: Table) -> Exception:
    """Return the ``ConflictError`` that a unique constraint's violation means."""
    violated = violated_constraint(error)
    for column in table.columns:
        if violated in (f"uq_{table.name}_{column.name}", f"{table.name}.{column.name}"):
            return ConflictError(column.name, str(row[column.name]))
    if violated in ("PRIMARY", f"pk_{table.name}"):
        return ConflictError("uuid", str(row["uuid"]))
    return error


class SqlNodes:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx
        self._stored: dict[str, dict[str, Any]] = {}  # by UUID, the rows as this transaction has last seen them

    def add(self, node: Node) -> None:
        row = NODE.to_row(node)
        row["created_at"] = node.created_at or self._tx.now
        self._save(_INSERT_NODE, row)

    def get(self, ident: str, *, lock: bool = False) -> Node:
        for statement in _SELECT_NODE[lock][_is_uuid(ident)]:
            row = self._tx.run(statement, {"ident": ident}).first()
            if row is not None:
                node = NODE.from_row(row)
                self._stored[node.uuid] = dict(zip(NODE.fields, row, strict=True))
                return node
        raise NotFoundError("node", ident)

    def update(self, node: Node) -> Node:
        changed = msgspec.structs.replace(node, version=node.version + 1, updated_at=self._tx.now)
        row = NODE.to_row(changed)
        news = self._news(row, node.version)
        if self._save(_UPDATE_NODE, news | {"_uuid": node.uuid, "_version": node.version}) == 0:
            self.get(node.uuid)
            raise StaleError(f"node {node.uuid} was changed by somebody else")
        self._stored[node.uuid] = row
        return changed

    def _news(self, row: dict[str, Any], version: int) -> dict[str, Any]:
        """Return the columns that differ from what this transaction has read; all where it has not read them."""
        stored = self._stored.get(row["uuid"], {})
        known = stored if stored.get("version") == version else {}
        return {name: row[name] for name in _CHANGEABLE if name not in known or known[name] != row[name]}

    def remove(self, uuid: str) -> None:
        self._tx.macs.removed_with(uuid)
        for statement in (_DELETE_NODE, *_DELETE_CHILDREN):
            self._tx.run(statement, {"uuid": uuid})
        self._tx.run(_DISCARD_OF_NODE, {"_node": uuid, "_now": self._tx.now})

    def list(self, query: Query) -> Sequence[Node]:
        return page(self._tx, NODE, query)

    def _save(self, statement: Any, row: dict[str, Any]) -> int:
        try:
            return int(self._tx.run(statement, row).rowcount)
        except IntegrityError as exc:
            raise _conflict(exc, row, schema.nodes) from exc


class SqlPorts:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def add(self, ports: Iterable[Port]) -> None:
        added = []
        for port in ports:
            row = _PORT.to_row(port)
            row["created_at"] = port.created_at or self._tx.now
            self._save(_INSERT_PORT, row)
            added.append(port)
        self._tx.macs.added(added)

    def get(self, ident: str) -> Port:
        row = self._tx.run(_SELECT_PORT, {"ident": ident}).first()
        if row is None:
            raise NotFoundError("port", ident)
        return _PORT.from_row(row)

    def update(self, port: Port) -> Port:
        before = self.get(port.uuid)
        changed = msgspec.structs.replace(port, updated_at=self._tx.now)
        if self._save(_UPDATE_PORT, _PORT.to_row(changed) | {"_uuid": port.uuid}) == 0:
            raise NotFoundError("port", port.uuid)
        if (before.address, before.node) != (port.address, port.node):
            self._tx.macs.removed([(port.uuid, before.address)])
            self._tx.macs.added([port])
        return changed

    def remove(self, uuids: Iterable[str]) -> None:
        wanted = list(uuids)
        found = self._tx.connection.execute(select(_p.uuid, _p.address).where(_p.uuid.in_(wanted)))
        self._tx.macs.removed([(uuid, mac) for uuid, mac in found])
        self._tx.connection.execute(delete(schema.ports).where(_p.uuid.in_(wanted)))

    def list(self, query: Query) -> Sequence[Port]:
        return page(self._tx, _PORT, query)

    def _save(self, statement: Any, row: dict[str, Any]) -> int:
        try:
            return int(self._tx.run(statement, row).rowcount)
        except IntegrityError as exc:
            raise _conflict(exc, row, schema.ports) from exc


class SqlInspections:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def add(self, inspection: Inspection) -> None:
        self._tx.run(_INSERT_INSPECTION, _INSPECTION.to_row(inspection))

    def get(self, uuid: str) -> Inspection:
        row = self._tx.run(_SELECT_INSPECTION, {"ident": uuid}).first()
        if row is None:
            raise NotFoundError("inspection", uuid)
        return _INSPECTION.from_row(row)

    def update(self, uuid: str, **changes: Any) -> None:
        self._tx.run(_UPDATE_INSPECTION, changes | {"_uuid": uuid})

    def remove_ended(self, before: float, limit: int) -> int:
        return self._remove(list(self._tx.connection.execute(_ENDED, {"before": before, "limit": limit}).scalars()))

    def remove_surplus(self, number: int, limit: int) -> int:
        return self._remove(list(self._tx.connection.execute(_SURPLUS, {"number": number, "limit": limit}).scalars()))

    def _remove(self, uuids: Sequence[str]) -> int:
        execute = self._tx.connection.execute
        for statement in _DELETE_ENDED if uuids else ():
            execute(statement, {"uuids": uuids})
        if uuids:
            execute(_DISCARD_ENDED, {"uuids": uuids, "_now": self._tx.now})
        return len(uuids)

    def list(self, query: Query) -> Sequence[Inspection]:
        if query.sort_key == "created_at":  # an inspection is created when it starts
            query = msgspec.structs.replace(query, sort_key="started_at")
        return page(self._tx, _INSPECTION, query)
