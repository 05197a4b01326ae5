"""Objects that are, or may be, in the object stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Select, bindparam, delete, insert, select, update

from ferroscope.contracts.store import ObjectState, Part, StoredObject
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, one_of, several
from ferroscope.db.session import Repository

_o = schema.objects.c
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


class Objects(Repository):
    """The objects that are, or may be, in the object stores. They are recorded before the upload, so none is orphaned.

    ``uploading`` becomes ``stored`` or ``discarded``, ``stored`` becomes ``discarded``; a discarded object is first
    deleted from the object store, then forgotten here.
    """

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
