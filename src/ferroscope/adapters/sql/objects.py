"""What is, or may be, in the object stores: the table ``objects``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, bindparam, delete, insert, select, update

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.query import one_of, several
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.contracts.data import ObjectState, Part, StoredObject

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_OBJECT = Mapper(StoredObject, schema.objects)

_o = schema.objects.c
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


class SqlObjects:
    """``contracts.store.Objects``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def add(self, objects: Iterable[StoredObject]) -> None:
        for one in objects:
            self._tx.ask(_INSERT, _OBJECT.to_row(one) | {"state": "uploading", "at": self._tx.now})

    def keep(self, one: StoredObject) -> bool:
        given = {f"_{name}": getattr(one, name) for name in _KEPT}
        return self._tx.run(_KEEP, given | {"_key": one.key, "_to": "stored", "_now": self._tx.now}).rowcount == 1

    def find(self, inspection: str, parts: Sequence[Part]) -> Sequence[StoredObject]:
        return self._read(_find(len(parts)), {"inspection": inspection} | several("part", tuple(parts)))

    def of_node(self, node: str) -> Sequence[StoredObject]:
        return self._read(_OF_NODE, {"node": node})

    def discard(self, inspection: str, parts: Sequence[Part]) -> None:
        for part in parts:
            given = {"_inspection": inspection, "_part": part, "_to": "discarded", "_now": self._tx.now}
            self._tx.ask(_DISCARD, given)

    def discard_keys(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._tx.ask(_DISCARD_KEY, {"_key": key, "_to": "discarded", "_now": self._tx.now})

    def give_up(self, before: float) -> int:
        return self._tx.run(_GIVE_UP, {"_before": before, "_to": "discarded", "_now": self._tx.now}).rowcount

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._tx.ask(_FORGET, {"key": key})

    def _read(self, statement: Select[Any], given: dict[str, Any]) -> list[StoredObject]:
        return [_OBJECT.from_row(row) for row in self._tx.run(statement, given)]

    def list(self, state: ObjectState, limit: int, *, backend: str = "", after: str = "") -> Sequence[StoredObject]:
        given = {"state": state, "page_limit": limit, "after": after}
        if backend:
            return self._read(_PAGE_OF_BACKEND, given | {"backend": backend})
        return self._read(_PAGE, given)
