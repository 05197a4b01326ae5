"""The registry of nodes in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.batch import Answer
from ferroscope.adapters.sql.conflicts import conflict
from ferroscope.adapters.sql.inspections import INSPECTION
from ferroscope.adapters.sql.query import page
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.contracts.errors import NotFoundError, StaleError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Inspection, Node

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

NODE = Mapper(Node, schema.nodes)

_n = schema.nodes.c
_INSERT_NODE = insert(schema.nodes)
_BY_UUID = select(*NODE.columns).where(_n.uuid == bindparam("ident"))
_BY_NAME = select(*NODE.columns).where(_n.name == bindparam("ident"))
# lock -> the statements to try in turn for what looks like a UUID, and for what does not.
_SELECT_NODE = {
    False: ((_BY_NAME,), (_BY_UUID, _BY_NAME)),
    True: ((_BY_NAME.with_for_update(),), (_BY_UUID.with_for_update(), _BY_NAME.with_for_update())),
}
_i = schema.inspections.c
_OWN = select(_n.inspection).where(_n.uuid == bindparam("ident")).scalar_subquery()
_PRESENT_INSPECTION = select(*INSPECTION.columns).where(_i.uuid == _OWN)
_ORPHANS = select(_n.uuid, _n.orphaned_at)
_UPDATE_NODE = update(schema.nodes).where(_n.uuid == bindparam("_uuid"), _n.version == bindparam("_version"))
_CHANGEABLE = tuple(name for name in NODE.fields if name not in ("uuid", "created_at"))
_DISCARD_OBJECTS = (
    update(schema.objects)
    .where(schema.objects.c.state != "discarded", schema.objects.c.node == bindparam("_node"))
    .values(state="discarded", at=bindparam("_now"))
)
_CHILDREN = (
    schema.ports,
    schema.inspections,
    schema.inspection_data,
    schema.requests,
    schema.journal,
    schema.bmc_addresses,
    schema.callers,
    schema.facts,
    schema.machine_macs,
)
_DELETE_CHILDREN = tuple(delete(table).where(table.c.node == bindparam("uuid")) for table in _CHILDREN)
_DELETE_NODE = delete(schema.nodes).where(_n.uuid == bindparam("uuid"))


def _is_uuid(ident: str) -> bool:
    return len(ident) == 36 and ident.count("-") == 4


class SqlNodes:
    """See ``contracts.store.Nodes``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx
        self._stored: dict[str, dict[str, Any]] = {}  # by UUID, the rows as this transaction has last seen them
        self._locked: dict[str, int] = {}  # by UUID, the versions of rows that nobody else can change before its end

    def add(self, node: Node) -> None:
        row = NODE.to_row(node)
        row["created_at"] = node.created_at or self._tx.now
        self._tx.ask(_INSERT_NODE, row, failed=lambda exc: conflict(exc, row, schema.nodes))

    def get(self, ident: str, *, lock: bool = False) -> Node:
        for statement in _SELECT_NODE[lock][_is_uuid(ident)]:
            row = self._tx.run(statement, {"ident": ident}).first()
            if row is not None:
                return self._read(row, lock=lock)
        raise NotFoundError("node", ident)

    def locked(self, uuid: str) -> tuple[Node, Inspection | None]:
        asked = self._tx.ask(_SELECT_NODE[True][True][0], {"ident": uuid})
        # Another statement, for it has to see what was committed while the lock was waited for.
        present = self._tx.run(_PRESENT_INSPECTION, {"ident": uuid}).first()
        row = asked.answer().first()
        if row is None:
            raise NotFoundError("node", uuid)
        return self._read(row, lock=True), None if present is None else INSPECTION.from_row(present)

    def _read(self, row: Any, *, lock: bool) -> Node:
        node = NODE.from_row(row)
        self._stored[node.uuid] = dict(zip(NODE.fields, row, strict=True))
        if lock:
            self._locked[node.uuid] = node.version
        return node

    def update(self, node: Node) -> Node:
        changed = msgspec.structs.replace(node, version=node.version + 1, updated_at=self._tx.now)
        row = NODE.to_row(changed)
        news = self._news(row, node.version)

        def check(answer: Answer) -> None:
            if answer.rowcount == 0:
                self.get(node.uuid)
                raise StaleError(f"node {node.uuid} was changed by somebody else")

        self._tx.ask(
            _UPDATE_NODE,
            news | {"_uuid": node.uuid, "_version": node.version},
            check=None if self._locked.get(node.uuid) == node.version else check,
            failed=lambda exc: conflict(exc, row, schema.nodes),
        )
        # From here on the row is ours, for it has been written.
        self._stored[node.uuid], self._locked[node.uuid] = row, changed.version
        return changed

    def _news(self, row: dict[str, Any], version: int) -> dict[str, Any]:
        """Return the columns that differ from what this transaction has read; all where it has not read them."""
        stored = self._stored.get(row["uuid"], {})
        known = stored if stored.get("version") == version else {}
        return {name: row[name] for name in _CHANGEABLE if name not in known or known[name] != row[name]}

    def remove(self, uuid: str) -> None:
        self._tx.macs.removed_with(uuid)
        for statement in (_DELETE_NODE, *_DELETE_CHILDREN):
            self._tx.ask(statement, {"uuid": uuid})
        self._tx.ask(_DISCARD_OBJECTS, {"_node": uuid, "_now": self._tx.now})

    def list(self, query: Query) -> Sequence[Node]:
        return page(self._tx, NODE, query)

    def orphans(self) -> Mapping[str, float | None]:
        return dict(tuple(row) for row in self._tx.run(_ORPHANS))
