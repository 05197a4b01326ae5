"""Inspection data that is stored in the database, and the list of the parts that are in an object store."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import LargeBinary, Select, bindparam, delete, insert, or_, select, update

from ferroscope.contracts.data import Held, Later, ObjectState, Packed, Part, StoredObject
from ferroscope.core.states import TERMINAL
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, one_of, several
from ferroscope.db.session import Session
from ferroscope.db.spellings import LARGEST_VALUE, upsert

# See ``contracts.data.packed``.
_CODEC: Final = "zlib"

_d, _i = schema.inspection_data.c, schema.inspections.c
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


class InspectionData:
    """The parts of an inspection's data, as JSON bytes; each inspection has at most one of each.

    ``inventory`` is never changed; ``unprocessed`` is the rest of the ramdisk's callback; ``plugin_data`` is that after
    the hooks; ``out_of_band`` is the BMC's inventory. ``logs`` is the ramdisk's log archive as received: tar, not JSON.
    """

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def save(self, inspection: str, node: str, parts: Mapping[Part, Packed]) -> None:
        """Store or replace these parts."""
        if not parts:
            return
        # A value that exceeds the database's packet size is written in pieces: the first replaces the stored content,
        # the others are appended to it in the same transaction.
        size = LARGEST_VALUE[self._tx.dialect.name]
        rows, rests = [], []
        for part, packed in parts.items():
            key = {"inspection": inspection, "part": part}
            first = packed[:size]
            rows.append(key | {"node": node, "codec": _CODEC, "content": first, "created_at": self._tx.now})
            rests += [
                {"_inspection": inspection, "_part": part, "_more": packed[start : start + size]}
                for start in range(size, len(packed), size)
            ]
        for row in rows:
            self._tx.ask(upsert(self._tx.dialect.name, schema.inspection_data), row)
        for rest in rests:
            self._tx.ask(_APPEND_PART, rest)

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


# Objects that are, or may be, in the object stores: the table ``objects``.

_OBJECT = Mapper(StoredObject, schema.objects)

_INSERT = insert(schema.objects)
_TO: Final[dict[Any, Any]] = {"state": bindparam("_to"), "at": bindparam("_now")}
_KEPT: Final = ("size", "content_size", "content_sha256")
_KEEP = (
    update(schema.objects)
    .where(_o.key == bindparam("_key"), _o.state == "uploading")
    .values(_TO | {name: bindparam(f"_{name}") for name in _KEPT})
)
_DISCARD = (
    update(schema.objects)
    .where(_o.inspection == bindparam("_inspection"), _o.part == bindparam("_part"), _o.state == "stored")
    .values(_TO)
)
_DISCARD_KEY = update(schema.objects).where(_o.key == bindparam("_key"), _o.state != "discarded").values(_TO)
_GIVE_UP = update(schema.objects).where(_o.state == "uploading", _o.at < bindparam("_before")).values(_TO)
_OF_NODE = select(*_OBJECT.columns).where(_o.node == bindparam("node"), _o.state == "stored").order_by(_o.key)
_PAGE = (
    select(*_OBJECT.columns)
    .where(_o.state == bindparam("state"), _o.key > bindparam("after"))
    .order_by(_o.key)
    .limit(bindparam("page_limit"))
)
_PAGE_OF_BACKEND = _PAGE.where(_o.backend == bindparam("backend"))
_FORGET = delete(schema.objects).where(_o.key == bindparam("key"), _o.state == "discarded")


@lru_cache(maxsize=16)
def _find(parts: int) -> Select[Any]:
    return (
        select(*_OBJECT.columns)
        .where(_o.inspection == bindparam("inspection"), one_of(_o.part, "part", parts), _o.state == "stored")
        .order_by(_o.key)
    )


class Objects:
    """The objects that are, or may be, in the object stores. They are recorded before the upload, so none is orphaned.

    ``uploading`` becomes ``stored`` or ``discarded``, ``stored`` becomes ``discarded``; a discarded object is first
    deleted from the object store, then forgotten here.
    """

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def add(self, objects: Iterable[StoredObject]) -> None:
        """Record objects that are about to be uploaded."""
        for stored in objects:
            self._tx.ask(_INSERT, _OBJECT.to_row(stored) | {"state": "uploading", "at": self._tx.now})

    def keep(self, stored: StoredObject) -> bool:
        """Mark an uploading object as stored, with its sizes and digest; False if it was discarded meanwhile."""
        parameters = {f"_{name}": getattr(stored, name) for name in _KEPT}
        return (
            self._tx.run(_KEEP, parameters | {"_key": stored.key, "_to": "stored", "_now": self._tx.now}).rowcount == 1
        )

    def find(self, inspection: str, parts: Sequence[Part]) -> Sequence[StoredObject]:
        """Return the stored objects of these parts."""
        return self._read(_find(len(parts)), {"inspection": inspection} | several("part", tuple(parts)))

    def of_node(self, node: str) -> Sequence[StoredObject]:
        """Return the stored objects of all the node's inspections."""
        return self._read(_OF_NODE, {"node": node})

    def discard(self, inspection: str, parts: Sequence[Part]) -> None:
        """Discard the stored objects of these parts, which are replaced or no longer needed."""
        for part in parts:
            parameters = {"_inspection": inspection, "_part": part, "_to": "discarded", "_now": self._tx.now}
            self._tx.ask(_DISCARD, parameters)

    def discard_keys(self, keys: Iterable[str]) -> None:
        """Discard these objects, whatever their state."""
        for key in keys:
            self._tx.ask(_DISCARD_KEY, {"_key": key, "_to": "discarded", "_now": self._tx.now})

    def give_up(self, before: float) -> int:
        """Discard objects that have been uploading since before this time; return their number."""
        return self._tx.run(_GIVE_UP, {"_before": before, "_to": "discarded", "_now": self._tx.now}).rowcount

    def forget(self, keys: Iterable[str]) -> None:
        """Forget discarded objects that have been deleted."""
        for key in keys:
            self._tx.ask(_FORGET, {"key": key})

    def _read(self, statement: Select[Any], parameters: dict[str, Any]) -> list[StoredObject]:
        return [_OBJECT.from_row(row) for row in self._tx.run(statement, parameters)]

    def list(self, state: ObjectState, limit: int, *, backend: str = "", after: str = "") -> Sequence[StoredObject]:
        """Return objects in this state after the key ``after``, by key; of one ``backend``, or of all if empty."""
        parameters = {"state": state, "page_limit": limit, "after": after}
        if backend:
            return self._read(_PAGE_OF_BACKEND, parameters | {"backend": backend})
        return self._read(_PAGE, parameters)
