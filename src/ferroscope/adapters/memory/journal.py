"""The event journal and the party in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ferroscope.adapters.memory.leases import MemoryLeases
from ferroscope.adapters.memory.pages import page
from ferroscope.adapters.memory.rows import Rows
from ferroscope.adapters.memory.tables import copy
from ferroscope.domain.model import Entry, Member
from ferroscope.ports.errors import NotFoundError
from ferroscope.ports.store import Query


class MemoryJournal:
    """``ports.store.Journal``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float, identifier: Callable[[], str]) -> None:
        self._rows = rows
        self._now = now
        self._identifier = identifier

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._rows.last_entry += 1
            kept = msgspec.structs.replace(
                entry,
                id=self._rows.last_entry,
                at=entry.at or self._now,
                uuid=entry.uuid or self._identifier(),
            )
            self._rows.entries.put(kept.uuid, copy(kept))
            self._rows.entries_of_node.add(kept.node, kept.uuid)

    def list(self, query: Query) -> Sequence[Entry]:
        marker = None if query.marker is None else self._stored(query.marker)
        node = query.filters.get("node")
        if isinstance(node, str):
            rows = [self._stored(uuid) for uuid in self._rows.entries_of_node.of(node)]
        else:
            rows = list(self._rows.entries.values())
        return page(rows, query, marker=marker, key=_by_id)

    def remove_old(self, before: float, limit: int) -> int:
        old = [
            entry for entry in self._rows.entries.values() if entry.inspection is None and (entry.at or 0.0) < before
        ]
        for entry in sorted(old, key=_by_id)[:limit]:
            self._rows.entries.drop(entry.uuid)
            self._rows.entries_of_node.discard(entry.node, entry.uuid)
        return min(limit, len(old))

    def _stored(self, uuid: str) -> Entry:
        entry = self._rows.entries.get(uuid)
        if entry is None:
            raise NotFoundError("entry", uuid)
        return entry


class MemoryMembers:
    """``ports.store.Members``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float, leases: MemoryLeases) -> None:
        self._rows = rows
        self._now = now
        self._leases = leases
        self.left = False

    def beat(self, member: Member, ttl: float) -> None:
        known = self._rows.members.get(member.id)
        started_at = known.started_at if known else self._now
        alive = msgspec.structs.replace(member, started_at=started_at, expires_at=self._now + ttl, ttl=ttl)
        self._rows.members.put(member.id, alive)

    def leave(self, ident: str) -> None:
        self._rows.members.drop(ident)
        self._leases.free(ident)
        self.left = True

    def list(self) -> Sequence[Member]:
        return sorted(self._rows.members.values(), key=lambda member: (member.started_at, member.id))


def _by_id(entry: Entry) -> tuple[int]:
    return (entry.id,)
