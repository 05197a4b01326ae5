"""What the leader counts of a large fleet (``periodic.counts``), so that those who look at it do not wait."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from sqlalchemy import bindparam, delete, func, select

from ferroscope.db import schema
from ferroscope.db.mapping import upsert
from ferroscope.db.session import Repository
from ferroscope_client.core import json_safety

T = TypeVar("T")

# Older ones are of a leader that is gone: those who look count themselves.
_MAX_AGE_SECONDS: Final = 300.0
_c, _n = schema.counts.c, schema.nodes.c
_SELECT = select(_c.content).where(_c.name == bindparam("name"), _c.counted_at > bindparam("since"))
_ANY = select(_c.name).limit(1)
_DELETE = delete(schema.counts)
# A smaller fleet is counted in some milliseconds, whenever it is looked at.
LARGE_FLEET_NODES: Final = 5000
_COUNT_SOME = select(func.count()).select_from(select(_n.uuid).limit(bindparam("most")).subquery("some"))


class CountedAhead(Repository):
    """Each has a name, and the type that it is read as."""

    def get(self, name: str, kind: type[T]) -> T | None:
        """Return what was counted within the last minutes, if anything."""
        row = self._tx.run(_SELECT, {"name": name, "since": self._tx.now - _MAX_AGE_SECONDS}).first()
        return None if row is None else json_safety.decode_own(row[0], kind)

    def put(self, name: str, counts: msgspec.Struct) -> None:
        row = {"name": name, "content": msgspec.json.encode(counts).decode(), "counted_at": self._tx.now}
        self._tx.run(upsert(self._tx.dialect.name, schema.counts), row)

    def is_stored(self) -> bool:
        return self._tx.run(_ANY).first() is not None

    def clear(self) -> None:
        self._tx.run(_DELETE)

    def is_needed(self) -> bool:
        """Return whether the fleet is so large that it is counted ahead."""
        (row,) = self._tx.run(_COUNT_SOME, {"most": LARGE_FLEET_NODES + 1})
        return int(row[0]) > LARGE_FLEET_NODES
