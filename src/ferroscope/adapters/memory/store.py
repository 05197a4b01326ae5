"""The store in memory: one writer at a time, and a write that fails leaves nothing behind.

Readers wait for the writer, so that each sees whole transactions only. There is no deadlock and
no serialization failure here, so ``work`` runs exactly once. Nothing survives the process.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ferroscope.adapters.memory.discovery import MemoryDiscoveries, MemoryRejections
from ferroscope.adapters.memory.figures import MemoryFigures
from ferroscope.adapters.memory.inspections import MemoryInspectionData, MemoryInspections
from ferroscope.adapters.memory.journal import MemoryJournal, MemoryMembers
from ferroscope.adapters.memory.leases import MemoryClockSteps, MemoryLeases
from ferroscope.adapters.memory.macs import MemoryMacs
from ferroscope.adapters.memory.nodes import MemoryAddresses, MemoryNodes
from ferroscope.adapters.memory.objects import MemoryFacts, MemoryObjects
from ferroscope.adapters.memory.ports import MemoryPorts
from ferroscope.adapters.memory.requests import MemoryRequests
from ferroscope.adapters.memory.rows import Rows
from ferroscope.adapters.memory.rules import MemoryRules
from ferroscope.adapters.memory.tables import UndoLog
from ferroscope.domain.model import Claim
from ferroscope.ports.bus import Bus, Channel
from ferroscope.ports.clock import Clock
from ferroscope.ports.meter import SILENT, Meter, Moved
from ferroscope.ports.queue import Take
from ferroscope.ports.store import Transaction

T = TypeVar("T")


def _random_identifier() -> str:
    return str(uuid.uuid4())


class MemoryTransaction:
    """``ports.store.Transaction``, at one moment of the injected clock."""

    def __init__(self, rows: Rows, now: float, identifier: Callable[[], str]) -> None:
        self.now = now
        self.inspections = MemoryInspections(rows, now)
        self.macs = MemoryMacs(rows, now)
        self.ports = MemoryPorts(rows, now, self.macs)
        self.nodes = MemoryNodes(rows, now, self.ports)
        self.requests = MemoryRequests(rows, now, identifier)
        self.data = MemoryInspectionData(rows, now)
        self.objects = MemoryObjects(rows, now)
        self.facts = MemoryFacts(rows)
        self.journal = MemoryJournal(rows, now, identifier)
        self.addresses = MemoryAddresses(rows)
        self.leases = MemoryLeases(rows, now, identifier)
        self.members = MemoryMembers(rows, now, self.leases)
        self.clock_steps = MemoryClockSteps(rows, now)
        self.discoveries = MemoryDiscoveries(rows)
        self.rejections = MemoryRejections(rows, now)
        self.figures = MemoryFigures(rows)
        self.rules = MemoryRules(rows, now)
        self.transitions: list[Moved] = []

    def moved(self, moved: Moved) -> None:
        """See ``ports.store.Transaction``."""
        self.transitions.append(moved)


class MemoryStore:
    """``ports.store.Store``.

    ``clock.time()`` is the database's clock. ``bus`` hears of requests that became ready.
    ``identifier`` makes the tokens of claims and the UUIDs of journal entries.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        clock: Clock,
        identifier: Callable[[], str] = _random_identifier,
        meter: Meter = SILENT,
    ) -> None:
        self._clock = clock
        self._bus = bus
        self._identifier = identifier
        self._meter = meter
        self._log = UndoLog()
        self._rows = Rows(self._log)
        self._lock = threading.Lock()
        self._owner: int | None = None

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        with self._alone():
            transaction = self._transaction()
            self._log.begin()
            try:
                result = work(transaction)
            except BaseException:
                self._log.roll_back()
                raise
            self._log.commit()
        for moved in transaction.transitions:
            self._meter.moved(moved)
        if transaction.requests.ready or transaction.members.left:
            self._bus.publish(Channel.REQUESTS)
        if transaction.leases.released:
            self._bus.publish(Channel.LEASES)
        for channel in transaction.macs.told:
            self._bus.publish(channel)
        return result

    def read(self, work: Callable[[Transaction], T]) -> T:
        with self._alone():
            return work(self._transaction())

    def claim(self, holder: str, take: Take) -> Claim | None:
        """Claim a request for the member ``holder``: the store's half of ``Queue.get``."""
        with self._alone():
            self._log.begin()
            claim = self._transaction().requests.claim(holder, take)
            self._log.commit()
            return claim

    def _transaction(self) -> MemoryTransaction:
        return MemoryTransaction(self._rows, self._clock.time(), self._identifier)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread has a transaction under way: use that, transactions do not nest")
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None
