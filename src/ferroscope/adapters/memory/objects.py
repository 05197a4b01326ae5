"""What is in the object stores, and what searches look at, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ferroscope.adapters.memory.rows import Rows
from ferroscope.domain import search
from ferroscope.domain.facts import Fact
from ferroscope.ports.data import ObjectState, Part, StoredObject
from ferroscope.ports.errors import ConflictError
from ferroscope.ports.facts import Match


class MemoryObjects:
    """``ports.store.Objects``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now

    def add(self, objects: Iterable[StoredObject]) -> None:
        for one in objects:
            if one.key in self._rows.objects:
                raise ConflictError("key", one.key)
            self._rows.objects.put(one.key, msgspec.structs.replace(one, state="uploading", at=self._now))
            self._rows.objects_of_node.add(one.node, one.key)

    def keep(self, one: StoredObject) -> bool:
        known = self._rows.objects.get(one.key)
        if known is None or known.state != "uploading":
            return False
        self._rows.objects.put(one.key, msgspec.structs.replace(one, state="stored", at=self._now))
        return True

    def find(self, inspection: str, parts: Sequence[Part]) -> Sequence[StoredObject]:
        return [
            one for one in self._all() if one.inspection == inspection and one.part in parts and one.state == "stored"
        ]

    def of_node(self, node: str) -> Sequence[StoredObject]:
        found = (self._rows.objects.get(key) for key in sorted(self._rows.objects_of_node.of(node)))
        return [one for one in found if one is not None and one.state == "stored"]

    def discard(self, inspection: str, parts: Sequence[Part]) -> None:
        self.discard_keys([one.key for one in self.find(inspection, parts)])

    def discard_keys(self, keys: Iterable[str]) -> None:
        for key in keys:
            known = self._rows.objects.get(key)
            if known is not None and known.state != "discarded":
                self._rows.objects.put(key, msgspec.structs.replace(known, state="discarded", at=self._now))

    def give_up(self, before: float) -> int:
        late = [one.key for one in self._all() if one.state == "uploading" and one.at < before]
        self.discard_keys(late)
        return len(late)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            known = self._rows.objects.get(key)
            if known is not None and known.state == "discarded":
                self._rows.objects.drop(key)
                self._rows.objects_of_node.discard(known.node, key)

    def _all(self) -> list[StoredObject]:
        return sorted(self._rows.objects.values(), key=lambda one: one.key)

    def list(self, state: ObjectState, limit: int, *, backend: str = "", after: str = "") -> Sequence[StoredObject]:
        found = [one for one in self._all() if one.state == state and one.key > after and backend in ("", one.backend)]
        return found[:limit]


class MemoryFacts:
    """``ports.store.Facts``."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def replace(self, node: str, facts: Sequence[Fact], *, had: bool) -> None:
        self._rows.facts.put(node, tuple(facts))

    def of(self, node: str) -> Sequence[Fact]:
        return sorted(self._rows.facts.get(node) or (), key=lambda fact: (fact.kind, fact.position))

    def search(self, query: search.Query, limit: int, *, after: str = "") -> Sequence[Match]:
        found = [
            Match(node.uuid, node.name, str(node.provision_state), node.maintenance, dict(node.hardware))
            for node in self._rows.nodes.values()
            if (node.facts is not None or not search.about_hardware(query))
            and node.uuid > after
            and search.matches(query, self._rows.facts.get(node.uuid) or (), node)
        ]
        return sorted(found, key=lambda match: match.uuid)[:limit]

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Fact]]:
        found = {node: [fact for fact in self.of(node) if fact.kind in kinds] for node in nodes}
        return {node: facts for node, facts in found.items() if facts}
