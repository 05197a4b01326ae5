"""The inspections of all nodes, their timelines, and the parts of their data that the database holds."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    LargeBinary,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Held, Later, OldRows, Packed, Part, Query
from ferroscope.core.model import Entry, Inspection
from ferroscope.db import mapping, schema
from ferroscope.db.executor import LARGEST_VALUE
from ferroscope.db.mapping import Mapper, one_of, page, several, sizes, upsert
from ferroscope.db.session import Repository
from ferroscope_client.core.states import TERMINAL, State
from ferroscope_client.core.values import new_uuid, storable

INSPECTION = Mapper(Inspection, schema.inspections)

_n, _i = schema.nodes.c, schema.inspections.c
_INSERT_INSPECTION = insert(schema.inspections)
_SELECT_INSPECTION = select(*INSPECTION.columns).where(_i.uuid == bindparam("ident"))
_UPDATE_INSPECTION = update(schema.inspections).where(_i.uuid == bindparam("_uuid"))
_later = schema.inspections.alias("later")
_ended = (
    select(_i.uuid, _i.node, _i.state, _i.started_at, _i.finished_at)
    .where(
        _i.finished_at < bindparam("before"),
        _i.finished_at >= bindparam("after"),
        or_(_i.finished_at > bindparam("after"), _i.uuid > bindparam("after_uuid")),
    )
    .order_by(_i.finished_at, _i.uuid)
    .limit(bindparam("limit"))
    .subquery("ended")
)


def _is_superfluous(table: Any) -> ColumnElement[bool]:
    """Return the condition that an inspection is neither its node's newest nor its newest successful one."""
    newest = exists().where(_n.uuid == table.c.node, _n.inspection == table.c.uuid)
    superseded = exists().where(
        _later.c.node == table.c.node,
        _later.c.state == State.FINISHED.value,
        _later.c.started_at > table.c.started_at,
    )
    return and_(not_(newest), or_(table.c.state != State.FINISHED.value, superseded))


_ENDED = select(
    _ended.c.uuid, _ended.c.finished_at, case((_is_superfluous(_ended), 1), else_=0).label("may_go")
).order_by(_ended.c.finished_at, _ended.c.uuid)
# Counting by node needs only an index.
_NUMBERS = (
    select(_i.node, func.count())
    .where(_i.node > bindparam("after"))
    .group_by(_i.node)
    .order_by(_i.node)
    .limit(bindparam("limit"))
)
_ranked = (
    select(
        _i.uuid,
        func.row_number().over(partition_by=_i.node, order_by=(_i.started_at.desc(), _i.uuid.desc())).label("place"),
    )
    .where(_i.node.in_(bindparam("nodes", expanding=True)))
    .subquery("ranked")
)
_SURPLUS = (
    select(_i.uuid)
    .join(_ranked, _ranked.c.uuid == _i.uuid)
    .where(_ranked.c.place > bindparam("number"), _i.finished_at.is_not(None), _is_superfluous(schema.inspections))
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


class Inspections(Repository):
    """Every inspection of every node."""

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

    def remove(self, uuids: Iterable[str]) -> int:
        """Delete these inspections with their data and journal, and discard their objects; return their number.

        Those that do not exist are ignored. None of them may be the current one of its node, unless the same
        transaction changes that.
        """
        execute = self._tx.connection.execute
        ended = list(execute(_NAMED, {"uuids": list(uuids)}))
        if not ended:
            return 0
        present, nodes = [uuid for uuid, _ in ended], sorted({node for _, node in ended})
        inspections, data, journal = _DELETE_ENDED
        execute(inspections, {"uuids": present})
        execute(data, {"uuids": present})
        execute(journal, {"uuids": present, "nodes": nodes})
        execute(_DISCARD_OBJECTS, {"uuids": present, "_now": self._tx.now})
        return len(present)

    def find_ended(
        self, before: float, after: tuple[float, str] | None, limit: int, *, superfluous: bool = True
    ) -> OldRows:
        """Return the UUIDs of the next ``limit`` inspections that ended before this time.

        ``superfluous``: without a node's newest inspection and its newest finished one.
        """
        at, uuid = after or (0.0, "")
        parameters = {"before": before, "after": at, "after_uuid": uuid, "limit": limit}
        rows = self._tx.run(_ENDED, parameters).rows
        uuids = [uuid for uuid, _, may_go in rows if may_go or not superfluous]
        return OldRows(uuids, (rows[-1][1], rows[-1][0]) if rows else after, is_last=len(rows) < limit)

    def find_surplus(self, number: int, after: str | None, limit: int) -> OldRows:
        """Return the UUIDs of ended inspections of the next ``limit`` nodes that have more than ``number`` newer ones.

        Which are always kept is the same as for ``find_ended``.
        """
        rows = self._tx.run(_NUMBERS, {"after": after or "", "limit": limit}).rows
        crowded = [node for node, inspections in rows if inspections > number]
        parameters = {"nodes": crowded, "number": number, "limit": limit}
        uuids = list(self._tx.connection.execute(_SURPLUS, parameters).scalars()) if crowded else []
        if len(uuids) == limit:  # these nodes may have more
            return OldRows(uuids, after, is_last=False)
        return OldRows(uuids, rows[-1][0] if rows else after, is_last=len(rows) < limit)

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
_MAX_PROCESS_CHARACTERS: Final = 128
# The columns of a new entry, in the order in which ``write`` gives them; the database adds the ``id``.
_NEW_ENTRY: Final = (
    "uuid", "node", "inspection", "step", "message", "severity", "reason", "process", "detail", "at",
)  # fmt: skip
_encode: Final = msgspec.json.Encoder().encode

_j = schema.journal.c
_page = (
    select(_j.id, _j.at, _j.inspection)
    .where(_j.id > bindparam("after"))
    .order_by(_j.id)
    .limit(bindparam("limit"))
    .subquery("page")
)
# Entries are in the order of time, but for a few seconds.
_OLD = select(_page.c.id, _page.c.inspection).where(_page.c.at < bindparam("before")).order_by(_page.c.id)
_DELETE_OLD = delete(schema.journal).where(_j.id.in_(bindparam("ids", expanding=True)))


_RECOUNT = (
    update(schema.journal)
    .where(_j.uuid == bindparam("_uuid"), _j.node == bindparam("_node"))
    .values(message=bindparam("_message"), detail=bindparam("_detail"))
)


class Journal(Repository):
    """The event journal: append-only, except that ``recount`` changes an entry that counts.

    Entries are deleted with their node or inspection, or by age.
    """

    _unwritten: list[Entry] = []

    def append(self, entries: Iterable[Entry]) -> None:
        """Append these entries in order, with the transaction's time."""
        self._unwritten += entries

    def recount(self, entry: Entry) -> None:
        """Replace message and detail of a stored entry, which counts."""
        self.write_rest()
        detail = _encode(entry.detail).decode()
        values = {"_uuid": entry.uuid, "_node": entry.node, "_message": storable(entry.message), "_detail": detail}
        self._tx.connection.execute(_RECOUNT, values)

    def write_rest(self) -> None:
        """Write the appended entries in as few statements as possible."""
        if not self._unwritten:
            return
        entries, self._unwritten = self._unwritten, []
        audited, now = self._tx.call.audited, self._tx.now
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
                f"{by}{entry.process}"[:_MAX_PROCESS_CHARACTERS] if by else entry.process,
                _encode(entry.detail).decode() if entry.detail else "{}",
                entry.at or now,
            )
            for entry in entries
        ]
        mapping.add(self._tx, schema.journal, _NEW_ENTRY, rows)

    def list(self, query: Query) -> Sequence[Entry]:
        """Return one page, filtered by ``node``, ``inspection``, ``uuid`` or ``severity``, by ``id``."""
        self.write_rest()
        query = msgspec.structs.replace(query, sort_key="id")
        return page(self._tx, _ENTRY, query, key="id")

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        self.write_rest()
        return sizes(self._tx, _ENTRY, msgspec.structs.replace(query, sort_key="id"), key="id")

    def find_old(self, before: float, after: int | None, limit: int) -> OldRows:
        """Return, of the next ``limit`` entries, the IDs of those without inspection from before this time."""
        rows = self._tx.run(_OLD, {"before": before, "after": after or 0, "limit": limit}).rows
        idents = [ident for ident, inspection in rows if inspection is None]
        return OldRows(idents, rows[-1][0] if rows else after, is_last=len(rows) < limit)

    def remove(self, ids: Sequence[int]) -> int:
        """Delete these entries; return their number."""
        return int(self._tx.connection.execute(_DELETE_OLD, {"ids": ids}).rowcount)


# Inspection data.

# See ``contracts.store.packed``.
_CODEC: Final = "zlib"

_d = schema.inspection_data.c
_APPEND_PART = (
    update(schema.inspection_data)
    .where(_d.inspection == bindparam("_inspection"), _d.part == bindparam("_part"))
    .values(content=_d.content.concat(bindparam("_more", type_=LargeBinary())))
)
_HELD = select(_d.inspection, _d.part, _d.node, _d.created_at).order_by(_d.inspection, _d.part)
_HELD_OF_ENDED = (
    _HELD.join(schema.inspections, _i.uuid == _d.inspection)
    .where(
        or_(*(_i.state == state.value for state in sorted(TERMINAL))),
        _d.inspection >= bindparam("inspection"),
        or_(_d.inspection > bindparam("inspection"), _d.part > bindparam("part")),
    )
    .limit(bindparam("page_limit"))
)
_HELD_OF_NODE = _HELD.where(_d.node == bindparam("node"))
_DROP = delete(schema.inspection_data).where(
    _d.inspection == bindparam("inspection"), _d.part == bindparam("part"), _d.created_at == bindparam("at")
)
_o = schema.objects.c
_LOGS = (_d.inspection.in_(bindparam("uuids", expanding=True)), _d.part == "logs")
_LOG_OBJECTS = (_o.inspection.in_(bindparam("uuids", expanding=True)), _o.part == "logs", _o.state == "stored")
_WITH_LOGS = (select(_d.inspection).where(*_LOGS), select(_o.inspection).where(*_LOG_OBJECTS))
_DELETE_LOGS = delete(schema.inspection_data).where(*_LOGS)
_DISCARD_LOGS = update(schema.objects).where(*_LOG_OBJECTS).values(state="discarded", at=bindparam("_now"))


@lru_cache(maxsize=16)
def _load(parts: int) -> Select[Any]:
    return select(_d.part, _d.codec, _d.content).where(
        _d.inspection == bindparam("inspection"), one_of(_d.part, "part", parts)
    )


class InspectionData(Repository):
    """The parts of an inspection's data, as JSON bytes; each inspection has at most one of each.

    ``inventory`` is never changed; ``unprocessed`` is the rest of the ramdisk's callback; ``plugin_data`` is that after
    the hooks; ``out_of_band`` is the BMC's inventory. ``logs`` is the ramdisk's log archive as received: tar, not JSON.
    """

    def save(self, inspection: str, node: str, parts: Mapping[Part, Packed]) -> None:
        """Store or replace these parts."""
        if not parts:
            return
        # A value that exceeds the database's packet size is written in pieces: the first replaces the stored content,
        # the others are appended to it in the same transaction.
        size = LARGEST_VALUE[self._tx.dialect.name]
        replace = upsert(self._tx.dialect.name, schema.inspection_data)
        for part, packed in parts.items():
            row = {"inspection": inspection, "part": part, "node": node, "codec": _CODEC, "content": packed[:size]}
            self._tx.ask(replace, row | {"created_at": self._tx.now})
            for start in range(size, len(packed), size):
                more = {"_inspection": inspection, "_part": part, "_more": packed[start : start + size]}
                self._tx.ask(_APPEND_PART, more)

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return the parts that are stored in the database; for other parts see ``Objects``."""
        return self.load_later(inspection, parts).get()

    def load_later(self, inspection: str, parts: Sequence[Part]) -> Later[dict[Part, bytes]]:
        """Like ``load``, but read later; see ``Later``."""
        pending = self._tx.ask(_load(len(parts)), {"inspection": inspection} | several("part", tuple(parts)))
        return Later(lambda: {part: zlib.decompress(content) for part, _codec, content in pending.answer()})

    def held(self, limit: int, *, after: tuple[str, str] = ("", "")) -> Sequence[Held]:
        """Return parts of ended inspections after ``after``, ordered by (inspection, part)."""
        parameters = {"inspection": after[0], "part": after[1], "page_limit": limit}
        return [_to_held(row) for row in self._tx.run(_HELD_OF_ENDED, parameters)]

    def of_node(self, node: str) -> Sequence[Held]:
        """Return all parts of the node that are stored in the database, without content."""
        return [_to_held(row) for row in self._tx.run(_HELD_OF_NODE, {"node": node})]

    def find_logs(self, uuids: Sequence[str]) -> list[str]:
        """Return those of these inspections that have ``logs``, here or in an object store."""
        execute = self._tx.connection.execute
        queries = _WITH_LOGS if uuids else ()
        return sorted({uuid for query in queries for uuid in execute(query, {"uuids": uuids}).scalars()})

    def remove_logs(self, uuids: Sequence[str]) -> int:
        """Delete the ``logs`` of these inspections, and discard their objects; return the number of inspections."""
        execute = self._tx.connection.execute
        execute(_DISCARD_LOGS, {"uuids": uuids, "_now": self._tx.now})
        execute(_DELETE_LOGS, {"uuids": uuids})
        return len(uuids)

    def drop(self, held: Held) -> bool:
        """Delete this part if it has not been replaced since it was read; return whether it was deleted."""
        parameters = {"inspection": held.inspection, "part": held.part, "at": held.at}
        return self._tx.run(_DROP, parameters).rowcount == 1


def _to_held(row: Any) -> Held:
    inspection, part, node, at = row
    return Held(inspection=inspection, part=part, node=node, at=at)
