"""Inspections that have been in one state for too long get a ``timeout`` request.

Running it twice at once is harmless: a request that is pending already is not put again.
"""

from __future__ import annotations

from functools import partial

import structlog

from ferroscope import transition
from ferroscope.domain.machine import IllegalEventError
from ferroscope.domain.states import Event, State
from ferroscope.ports.clock import StopFlag
from ferroscope.ports.errors import NotFoundError, StoreUnavailableError
from ferroscope.ports.store import Query, Store, Transaction

_log = structlog.get_logger(__name__)

_WATCHED = (State.STARTING, State.WAITING, State.PROCESSING)


class Timeouts:
    """``run`` looks every ``period`` seconds (0: never) until ``stop`` is set."""

    def __init__(self, store: Store, *, timeout: float, period: float, stop: StopFlag, process: str) -> None:
        self._store = store
        self._timeout = timeout
        self._period = period
        self._stop = stop
        self._process = process
        self.sentence = "has not looked for overdue inspections yet"

    def run(self) -> None:
        if not self._period:
            self.sentence = "is disabled"
            return
        while not self._stop.wait(self._period):
            try:
                self.sentence = self.step()
            except StoreUnavailableError as exc:
                self.sentence = f"waits for the database: {exc}"

    def step(self) -> str:
        """Look once; return what was found."""
        overdue = self._store.read(self._overdue)
        for uuid in overdue:
            self._store.write(partial(self._time_out, uuid))
        return f"found {len(overdue)} overdue inspections"

    def _overdue(self, tx: Transaction) -> list[str]:
        query = Query(filters={"state": _WATCHED}, before={"provision_updated_at": tx.now - self._timeout})
        return [node.uuid for node in tx.nodes.list(query)]

    def _time_out(self, uuid: str, tx: Transaction) -> None:
        try:
            node = tx.nodes.get(uuid, lock=True)
            if node.state in _WATCHED and (node.provision_updated_at or 0.0) < tx.now - self._timeout:
                transition.submit(tx, node, Event.TIMEOUT, process=self._process)
        except (NotFoundError, IllegalEventError):
            _log.debug("no longer overdue", node=uuid)
