"""A database with inspections, and what moves their data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.remote import ObjectStore
from ferroscope.contracts.store import packed
from ferroscope.core.model import Inspection, Node
from ferroscope.db import Transaction
from ferroscope.periodic.archiving import Archiving
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope.storage.mover import Mover
from ferroscope.storage.reader import Archive, locate
from ferroscope_client.core.states import State
from tests.support import examples

ALL = ("inventory", "plugin_data", "unprocessed")


class Site:
    """A database with inspections, and what moves their data."""

    def __init__(self, url: str, object_stores: dict[str, ObjectStore]) -> None:
        self.settings = Settings(database=DatabaseSettings(connection=url))
        self.backend: Backend = open_backend(self.settings, clock=SystemClock(), stop=threading.Event(), listen=False)
        self.store = self.backend.store
        self.archive = Archive(self.store, object_stores)
        self.mover = Mover(self.store, self.archive, process="test")
        self.nodes: list[Node] = []

    def task(self, keep: str, **more: Any) -> Archiving:
        return Archiving(
            self.store, self.mover, keep=keep, period=5.0, clock=SystemClock(), **{"longest_pause": 0.2, **more}
        )

    def inspected(self, number: int, *, state: State = State.FINISHED, node: Node | None = None) -> list[Inspection]:
        """Store this many inspections with data, each of a node of its own unless one is given."""
        made = []
        for _ in range(number):
            owner = node or examples.node()
            one = examples.inspection(owner, state=state, finished_at=time.time())
            self.store.write(lambda tx, owner=owner, one=one: self._add(tx, owner, one, new=node is None))  # type: ignore[misc]
            made.append(one)
        return made

    def _add(self, tx: Transaction, node: Node, one: Inspection, *, new: bool) -> None:
        if new:
            tx.nodes.add(node)
            self.nodes.append(node)
        tx.inspections.add(one)
        tx.data.save(one.uuid, node.uuid, packed({part: content(one, part) for part in ALL}))  # type: ignore[misc]

    def here(self, one: Inspection) -> list[str]:
        return sorted(self.store.read(lambda tx: locate(tx, one.uuid, ALL)).here)  # type: ignore[arg-type]

    def elsewhere(self, one: Inspection) -> list[str]:
        found = self.store.read(lambda tx: locate(tx, one.uuid, ALL))  # type: ignore[arg-type]
        return sorted(one.part for one in found.elsewhere)

    def check(self, inspections: list[Inspection]) -> None:
        """Every part of every inspection can be read, and is what was stored."""
        for one in inspections:
            assert self.archive.load(one.uuid, ALL) == {part: content(one, part) for part in ALL}  # type: ignore[arg-type]

    def discarded(self) -> list[str]:
        return [one.key for one in self.store.read(lambda tx: tx.objects.list("discarded", 1000))]


def content(one: Inspection, part: str) -> bytes:
    return msgspec.json.encode({"of": one.uuid, "part": part, "much": "x" * 5000})


def run(task: Archiving, until: Callable[[], bool], seconds: float = 60.0) -> str:
    """Run the task's steps until something is so; return its last status."""
    end = time.monotonic() + seconds
    status = ""
    while not until():
        assert time.monotonic() < end, status
        status = task.step(examples.UNLED)
        time.sleep(0.05)
    return status
