"""Inspections and their data in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from ferroscope.adapters.memory.objects import MemoryObjects
from ferroscope.adapters.memory.pages import ordering, page
from ferroscope.adapters.memory.rows import Rows
from ferroscope.adapters.memory.tables import copy
from ferroscope.domain.model import Inspection
from ferroscope.domain.states import TERMINAL, State
from ferroscope.ports.data import Held, Part
from ferroscope.ports.errors import ConflictError, NotFoundError
from ferroscope.ports.store import Query


class MemoryInspections:
    """``ports.store.Inspections``."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now

    def add(self, inspection: Inspection) -> None:
        if inspection.uuid in self._rows.inspections:
            raise ConflictError("uuid", inspection.uuid)
        self._rows.inspections.put(inspection.uuid, copy(inspection))
        self._rows.inspections_of_node.add(inspection.node, inspection.uuid)

    def get(self, uuid: str) -> Inspection:
        return copy(self._stored(uuid))

    def update(self, uuid: str, **changes: Any) -> None:
        known = self._rows.inspections.get(uuid)
        if known is not None:
            self._rows.inspections.put(uuid, copy(msgspec.structs.replace(known, **changes)))

    def remove_ended(self, before: float, limit: int) -> int:
        return self._remove_those(lambda one: (one.finished_at or before) < before, limit)

    def remove_surplus(self, number: int, limit: int) -> int:
        return self._remove_those(lambda one: self._newer(one) >= number, limit)

    def _newer(self, one: Inspection) -> int:
        others = (self._stored(uuid) for uuid in self._rows.inspections_of_node.of(one.node))
        return sum((other.started_at, other.uuid) > (one.started_at, one.uuid) for other in others)

    def _remove_those(self, wanted: Callable[[Inspection], bool], limit: int) -> int:
        newest = {node.inspection for node in self._rows.nodes.values()}
        ended = [
            (one.finished_at, one.uuid, one.node)
            for one in self._rows.inspections.values()
            if one.finished_at is not None
            and wanted(one)
            and one.uuid not in newest
            and (one.state is not State.FINISHED or self._superseded(one))
        ]
        for _, uuid, node in sorted(ended)[:limit]:
            self._remove(uuid, node)
        return min(limit, len(ended))

    def _superseded(self, one: Inspection) -> bool:
        others = (self._stored(uuid) for uuid in self._rows.inspections_of_node.of(one.node))
        return any(other.state is State.FINISHED and other.started_at > one.started_at for other in others)

    def _remove(self, uuid: str, node: str) -> None:
        self._rows.inspections.drop(uuid)
        self._rows.inspections_of_node.discard(node, uuid)
        for key in self._rows.data_of_node.of(node):
            if key[0] == uuid:
                self._rows.data.drop(key)
                self._rows.data_at.drop(key)
                self._rows.data_of_node.discard(node, key)
        MemoryObjects(self._rows, self._now).discard(uuid, get_args(Part))
        for entry in self._rows.entries_of_node.of(node):
            known = self._rows.entries.get(entry)
            if known is not None and known.inspection == uuid:
                self._rows.entries.drop(entry)
                self._rows.entries_of_node.discard(node, entry)

    def list(self, query: Query) -> Sequence[Inspection]:
        marker = None if query.marker is None else self._stored(query.marker)
        node = query.filters.get("node")
        if isinstance(node, str):
            rows = [self._stored(uuid) for uuid in self._rows.inspections_of_node.of(node)]
        else:
            rows = list(self._rows.inspections.values())
        # An inspection is created when it starts.
        sort_key = "started_at" if query.sort_key == "created_at" else query.sort_key
        return page(rows, query, marker=marker, key=ordering(sort_key, "uuid"))

    def _stored(self, uuid: str) -> Inspection:
        inspection = self._rows.inspections.get(uuid)
        if inspection is None:
            raise NotFoundError("inspection", uuid)
        return inspection


class MemoryInspectionData:
    """``ports.store.InspectionData``."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now

    def save(self, inspection: str, node: str, parts: dict[Part, bytes]) -> None:
        for part, content in parts.items():
            key = (inspection, part)
            if key not in self._rows.data:
                self._rows.data_of_node.add(node, key)
            self._rows.data.put(key, bytes(content))
            self._rows.data_at.put(key, self._now)

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        found = {part: self._rows.data.get((inspection, part)) for part in parts}
        return {part: content for part, content in found.items() if content is not None}

    def held(self, limit: int, *, after: tuple[str, str] = ("", "")) -> Sequence[Held]:
        later = sorted(key for key in self._rows.data if key > after)
        found = []
        for key in later:
            inspection = self._rows.inspections.get(key[0])
            if inspection is not None and inspection.state in TERMINAL:
                found.append(self._held(key, inspection.node))
            if len(found) == limit:
                break
        return found

    def of_node(self, node: str) -> Sequence[Held]:
        return [self._held(key, node) for key in sorted(self._rows.data_of_node.of(node))]

    def remove_logs(self, before: float, limit: int) -> int:
        for one in self._rows.objects.values():
            if one.part == "logs" and one.state == "stored" and one.at < before:
                MemoryObjects(self._rows, self._now).discard(one.inspection, ("logs",))
        old = [key for key in self._rows.data if key[1] == "logs" and (self._rows.data_at.get(key) or 0.0) < before]
        for key in old[:limit]:
            inspection = self._rows.inspections.get(key[0])
            self.drop(self._held(key, inspection.node if inspection is not None else ""))
        return len(old[:limit])

    def drop(self, held: Held) -> bool:
        key = (held.inspection, held.part)
        if self._rows.data_at.get(key) != held.at:
            return False
        self._rows.data.drop(key)
        self._rows.data_at.drop(key)
        self._rows.data_of_node.discard(held.node, key)
        return True

    def _held(self, key: tuple[str, Part], node: str) -> Held:
        return Held(inspection=key[0], part=key[1], node=node, at=self._rows.data_at.get(key) or 0.0)
