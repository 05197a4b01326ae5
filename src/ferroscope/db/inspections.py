"""The inspections of all nodes, and the event journal, in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, delete, exists, func, insert, or_, select, update

from ferroscope.contracts.calls import PENDING
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Entry, Inspection
from ferroscope.core.states import State
from ferroscope.core.values import new_uuid, storable
from ferroscope.db import mapping, schema
from ferroscope.db.mapping import Mapper, page, sizes
from ferroscope.db.session import Session

INSPECTION = Mapper(Inspection, schema.inspections)

_n, _i = schema.nodes.c, schema.inspections.c
_INSERT_INSPECTION = insert(schema.inspections)
_SELECT_INSPECTION = select(*INSPECTION.columns).where(_i.uuid == bindparam("ident"))
_UPDATE_INSPECTION = update(schema.inspections).where(_i.uuid == bindparam("_uuid"))
_later = schema.inspections.alias("later")
_NEWEST = select(_n.inspection).where(_n.inspection.is_not(None))
_SUPERSEDED = exists().where(
    _later.c.node == _i.node, _later.c.state == State.FINISHED.value, _later.c.started_at > _i.started_at
)
_ENDED = (
    select(_i.uuid, _i.node)
    .where(
        _i.finished_at < bindparam("before"),
        _i.uuid.not_in(_NEWEST),
        or_(_i.state != State.FINISHED.value, _SUPERSEDED),
    )
    .order_by(_i.finished_at)
    .limit(bindparam("limit"))
)
# Counting by node needs only an index, and few nodes exceed the number; ranking all inspections would take seconds.
_CROWDED = select(_i.node).group_by(_i.node).having(func.count() > bindparam("number"))
_ranked = (
    select(
        _i.uuid,
        func.row_number().over(partition_by=_i.node, order_by=(_i.started_at.desc(), _i.uuid.desc())).label("place"),
    )
    .where(_i.node.in_(_CROWDED))
    .subquery("ranked")
)
_SURPLUS = (
    select(_i.uuid, _i.node)
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
_NAMED = select(_i.uuid, _i.node).where(_i.uuid.in_(bindparam("uuids", expanding=True)))
_DELETE_ENDED = (
    delete(schema.inspections).where(_i.uuid.in_(bindparam("uuids", expanding=True))),
    delete(schema.inspection_data).where(schema.inspection_data.c.inspection.in_(bindparam("uuids", expanding=True))),
    delete(schema.journal).where(  # its index is by node
        schema.journal.c.node.in_(bindparam("nodes", expanding=True)),
        schema.journal.c.inspection.in_(bindparam("uuids", expanding=True)),
    ),
)
_DISCARD_OBJECTS = (
    update(schema.objects)
    .where(schema.objects.c.state != "discarded", schema.objects.c.inspection.in_(bindparam("uuids", expanding=True)))
    .values(state="discarded", at=bindparam("_now"))
)


class Inspections:
    """Every inspection of every node."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def add(self, inspection: Inspection) -> None:
        self._tx.ask(_INSERT_INSPECTION, INSPECTION.to_row(inspection))

    def get(self, uuid: str) -> Inspection:
        """Return the inspection; ``NotFoundError``."""
        row = self._tx.run(_SELECT_INSPECTION, {"ident": uuid}).first()
        if row is None:
            raise NotFoundError("inspection", uuid)
        return INSPECTION.from_row(row)

    def update(self, uuid: str, **changes: Any) -> None:
        """Set these fields of the inspection, if it exists."""
        self._tx.ask(_UPDATE_INSPECTION, changes | {"_uuid": uuid})

    def remove(self, uuids: Iterable[str]) -> None:
        """Delete these inspections with their data and journal; those that do not exist are ignored.

        None of them may be the current one of its node, unless the same transaction changes that.
        """
        self._remove(list(self._tx.connection.execute(_NAMED, {"uuids": list(uuids)})))

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` inspections that ended before this time, oldest first.

        Their data and journal are deleted too, and their objects discarded. A node's newest inspection and its newest
        finished one are kept. Returns the number of deleted inspections.
        """
        return self._remove(list(self._tx.connection.execute(_ENDED, {"before": before, "limit": limit})))

    def remove_surplus(self, number: int, limit: int) -> int:
        """Delete up to ``limit`` ended inspections of nodes that have more than ``number`` newer ones.

        What is deleted with them, and which are always kept, is the same as for ``remove_ended``.
        """
        return self._remove(list(self._tx.connection.execute(_SURPLUS, {"number": number, "limit": limit})))

    def _remove(self, found: Sequence[Any]) -> int:
        """Remove inspections, given as pairs (UUID, node)."""
        if not found:
            return 0
        execute = self._tx.connection.execute
        uuids, nodes = [uuid for uuid, _ in found], sorted({node for _, node in found})
        inspections, data, journal = _DELETE_ENDED
        execute(inspections, {"uuids": uuids})
        execute(data, {"uuids": uuids})
        execute(journal, {"uuids": uuids, "nodes": nodes})
        execute(_DISCARD_OBJECTS, {"uuids": uuids, "_now": self._tx.now})
        return len(uuids)

    def list(self, query: Query) -> Sequence[Inspection]:
        return page(self._tx, INSPECTION, _by_start(query))

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        return sizes(self._tx, INSPECTION, _by_start(query))


def _by_start(query: Query) -> Query:
    """Return the query in the order of creation: an inspection is created when it starts."""
    return msgspec.structs.replace(query, sort_key="started_at") if query.sort_key == "created_at" else query


# The event journal in SQL.

_ENTRY = Mapper(Entry, schema.journal)
_PROCESS: Final = 128
# The columns of a new entry, in the order in which ``write`` gives them; the database adds the ``id``.
_NEW_ENTRY: Final = (
    "uuid", "node", "inspection", "step", "message", "severity", "reason", "process", "detail", "at",
)  # fmt: skip
_encode: Final = msgspec.json.Encoder().encode

_j = schema.journal.c
_OLD = (
    select(_j.id).where(_j.inspection.is_(None), _j.at < bindparam("before")).order_by(_j.id).limit(bindparam("limit"))
)
_DELETE_OLD = delete(schema.journal).where(_j.id.in_(bindparam("ids", expanding=True)))


_RECOUNT = (
    update(schema.journal)
    .where(_j.uuid == bindparam("_uuid"), _j.node == bindparam("_node"))
    .values(message=bindparam("_message"), detail=bindparam("_detail"))
)


class Journal:
    """The event journal: append-only, but for an entry that counts what has no entry of its own.

    Entries are deleted with their node or inspection, or by age.
    """

    def __init__(self, tx: Session) -> None:
        self._tx = tx
        self._unwritten: list[Entry] = []

    def append(self, entries: Iterable[Entry]) -> None:
        """Append these entries in order, with the transaction's time."""
        self._unwritten += entries

    def recount(self, entry: Entry) -> None:
        """Replace message and detail of a stored entry, which counts."""
        self.write()
        detail = _encode(entry.detail).decode()
        values = {"_uuid": entry.uuid, "_node": entry.node, "_message": storable(entry.message), "_detail": detail}
        self._tx.connection.execute(_RECOUNT, values)

    def write(self) -> None:
        """Write the appended entries in as few statements as possible."""
        entries, self._unwritten = self._unwritten, []
        audited, now = PENDING.get(), self._tx.now if entries else 0.0
        by = "" if audited is None or not audited.by else f"{audited.by} via "
        rows = [
            (
                entry.uuid or new_uuid(),
                entry.node,
                entry.inspection,
                entry.step,
                storable(entry.message),
                entry.severity,
                entry.reason,
                f"{by}{entry.process}"[:_PROCESS] if by else entry.process,
                _encode(entry.detail).decode() if entry.detail else "{}",
                entry.at or now,
            )
            for entry in entries
        ]
        mapping.add(self._tx, schema.journal, _NEW_ENTRY, rows)

    def list(self, query: Query) -> Sequence[Entry]:
        """Return one page, filtered by ``node``, ``inspection``, ``uuid`` or ``severity``, by ``id``."""
        self.write()
        query = msgspec.structs.replace(query, sort_key="id")
        return page(self._tx, _ENTRY, query, key="id")

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        self.write()
        return sizes(self._tx, _ENTRY, msgspec.structs.replace(query, sort_key="id"), key="id")

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` entries without inspection from before this time; return their number.

        It scans the whole journal, so do not call it every second.
        """
        self.write()
        execute = self._tx.connection.execute
        ids = list(execute(_OLD, {"before": before, "limit": limit}).scalars())
        if ids:
            execute(_DELETE_OLD, {"ids": ids})
        return len(ids)
