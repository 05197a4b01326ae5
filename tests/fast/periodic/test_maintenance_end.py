"""Maintenance that ends by itself: in time, once, and only the one that has such an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.db.nodes import Nodes
from ferroscope.periodic.timeouts import _PAGE_NODES, Timeouts, _read_maintained
from tests.support import examples
from tests.support.manual_clock import ManualClock
from tests.support.stores import open_store


class Site:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = open_store(clock=self.clock)
        self.task = Timeouts(self.store, timeout=60.0, period=1.0, process="p")
        self.lost = False
        self.leadership: Any = SimpleNamespace(fence=self.fence, keep_alive=lambda: None)

    def fence(self, _tx: Any) -> None:
        if self.lost:
            raise LeaseLostError("lost")

    def add(self, ends_in: float | None, *, maintenance: bool = True) -> str:
        attributes = {"maintenance_reason": "fan", "description": "mine"}
        if ends_in is not None:
            attributes["maintenance_until"] = datetime.fromtimestamp(self.clock.now + ends_in, UTC).isoformat()
        node = examples.node(maintenance=maintenance, attributes=attributes)
        self.store.write(lambda tx: tx.nodes.add(node))
        return node.uuid

    def node(self, uuid: str) -> Node:
        return self.store.read(lambda tx: tx.nodes.get(uuid))

    def step(self) -> str:
        return self.task.step(self.leadership)


def test_it_ends_when_it_is_over_and_the_timeline_says_so() -> None:
    site = Site()
    early, late, never = site.add(10.0), site.add(100.0), site.add(None)
    assert "maintenance" not in site.step()
    site.clock.now += 20.0
    assert "ended the maintenance of 1 node" in site.step()
    assert (site.node(early).maintenance, site.node(early).attributes) == (False, {"description": "mine"})
    assert (site.node(late).maintenance, site.node(never).maintenance) == (True, True)
    (entry,) = site.store.read(lambda tx: tx.journal.list(Query(filters={"node": early}, sort_key="id")))
    assert entry.step == "maintenance"
    assert "maintenance" not in site.step()


def test_somebody_who_extends_it_meanwhile_is_respected() -> None:
    site = Site()
    uuid = site.add(10.0)
    site.clock.now += 20.0
    read = site.store.read

    def extended(work: Any) -> Any:
        found = read(work)
        node = site.node(uuid) if getattr(work, "func", None) is _read_maintained else None
        if node is not None:
            later = datetime.fromtimestamp(site.clock.now + 50.0, UTC).isoformat()
            changed = msgspec.structs.replace(node, attributes=node.attributes | {"maintenance_until": later})
            site.store.write(lambda tx: tx.nodes.update(changed))
        return found

    site.task._store = SimpleNamespace(read=extended, write=site.store.write)  # type: ignore[assignment]
    site.step()
    assert site.node(uuid).maintenance


def test_a_leader_that_lost_its_lease_ends_nothing() -> None:
    site = Site()
    uuid = site.add(-10.0)
    site.lost = True
    with pytest.raises(LeaseLostError):
        site.step()
    assert site.node(uuid).maintenance


def test_all_of_many_end_and_few_are_in_memory_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    site, read = Site(), []
    real = Nodes.list

    def counted(nodes: Nodes, query: Query) -> Sequence[Node]:
        found = real(nodes, query)
        read.append(len(found))
        return found

    monkeypatch.setattr(Nodes, "list", counted)
    many = [site.add(10.0 if number % 3 else None) for number in range(3 * _PAGE_NODES)]
    site.clock.now += 20.0
    assert f"ended the maintenance of {2 * _PAGE_NODES:,} nodes" in site.step()
    assert max(read) <= _PAGE_NODES
    assert sum(site.node(uuid).maintenance for uuid in many) == _PAGE_NODES
