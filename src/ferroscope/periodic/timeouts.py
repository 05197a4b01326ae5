"""Inspections that have been in one state for too long get a ``timeout`` request.

Running it twice at once is harmless: a request that is pending already is not put again.
"""

from __future__ import annotations

from functools import partial

import structlog

from ferroscope import transition
from ferroscope.domain.machine import IllegalEventError
from ferroscope.domain.states import Event, State
from ferroscope.ports.errors import NotFoundError
from ferroscope.ports.store import Fence, Leadership, Query, Store, Transaction

_log = structlog.get_logger(__name__)

_WATCHED = (State.STARTING, State.WAITING, State.PROCESSING)


class Timeouts:
    """A ``PeriodicTask``; ``timeout`` is in seconds without a change of state."""

    name = "periodic/timeouts"

    def __init__(self, store: Store, *, timeout: float, period: float, process: str) -> None:
        self.period = period
        self._store = store
        self._timeout = timeout
        self._process = process

    def step(self, leadership: Leadership) -> str:
        overdue = self._store.read(self._overdue)
        for uuid in overdue:
            leadership.keep_alive()
            self._store.write(partial(self._time_out, uuid, leadership.fence))
        return f"found {len(overdue)} overdue inspections"

    def _overdue(self, tx: Transaction) -> list[str]:
        query = Query(filters={"state": _WATCHED}, before={"provision_updated_at": tx.now - self._timeout})
        return [node.uuid for node in tx.nodes.list(query)]

    def _time_out(self, uuid: str, fence: Fence, tx: Transaction) -> None:
        fence(tx)
        try:
            node = tx.nodes.get(uuid, lock=True)
            if node.state in _WATCHED and (node.provision_updated_at or 0.0) < tx.now - self._timeout:
                transition.submit(tx, node, Event.TIMEOUT, process=self._process)
        except (NotFoundError, IllegalEventError):
            _log.debug("no longer overdue", node=uuid)
