"""Queues a ``timeout`` request for inspections whose machine or BMC took too long, and ends maintenance in time.

The timeout of the current phase counts, which does not run while the inspection waits for us; the worker checks it
again. Running this twice at once is harmless: a pending request is not queued again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from ferroscope import transition
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.delivery import IllegalEventError, is_overdue
from ferroscope.core.model import Entry, Node
from ferroscope.core.states import Event
from ferroscope.db import Fence, Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope_client.core.states import State
from ferroscope_client.core.values import many

_log = structlog.get_logger(__name__)


_IN_MAINTENANCE: Final = Query(filters={"maintenance": True}, present=("maintenance_until",))
# Nodes in memory at the same time: each may have a megabyte of notes and extra.
_PAGE_NODES: Final = 50


def _read_maintained(query: Query, tx: Transaction) -> tuple[float, Sequence[Node]]:
    return tx.now, tx.nodes.list(query)


def _is_over(node: Node, now: float) -> bool:
    until = node.attributes.get("maintenance_until")
    return bool(node.maintenance and until and datetime.fromisoformat(until).timestamp() <= now)


class Timeouts:
    """A ``PeriodicTask``; ``timeout`` is in seconds per phase."""

    name = "periodic/timeouts"
    only_fenced = True

    def __init__(self, store: Store, *, timeout: float, period: float, process: str) -> None:
        self.period = period
        self._store = store
        self._timeout = timeout
        self._process = process

    def step(self, leadership: StepLeadership) -> str:
        overdue = 0
        for uuid in self._store.read(self._suspects):
            leadership.keep_alive()
            overdue += self._store.write(partial(self._time_out, uuid, leadership.fence))
        ended = 0
        for uuid in self._over():
            leadership.keep_alive()
            ended += self._store.write(partial(self._end_maintenance, uuid, leadership.fence))
        more = f", ended the maintenance of {many(ended, 'node')}" if ended else ""
        return f"found {many(overdue, 'overdue inspection')}{more}"

    def _suspects(self, tx: Transaction) -> list[str]:
        """Return the nodes to check: by the clock, and those that a release without that clock has written."""
        before = tx.now - self._timeout
        clocks = tx.inspections.list(Query(before={"clock_since": before}))
        waits = {"finished_at": None, "state": State.WAITING}
        still = tx.inspections.list(Query(filters=waits, before={"waiting_since": before}))
        return list(dict.fromkeys(inspection.node for inspection in (*clocks, *still)))

    def _over(self) -> Iterator[str]:
        """Yield the nodes whose maintenance is to end by now."""
        marker = None
        while True:
            query = msgspec.structs.replace(_IN_MAINTENANCE, limit=_PAGE_NODES, marker=marker)
            try:
                now, page = self._store.read(partial(_read_maintained, query))
            except NotFoundError:  # the last node was deleted meanwhile; the others follow in the next step
                return
            yield from [node.uuid for node in page if _is_over(node, now)]
            if len(page) < _PAGE_NODES:
                return
            marker = page[-1].uuid

    def _end_maintenance(self, uuid: str, fence: Fence, tx: Transaction) -> bool:
        fence(tx)
        try:
            node = tx.nodes.get(uuid, lock=True)
        except NotFoundError:
            return False
        if not _is_over(node, tx.now):
            return False
        attributes = {name: value for name, value in node.attributes.items() if not name.startswith("maintenance_")}
        tx.nodes.update(msgspec.structs.replace(node, maintenance=False, attributes=attributes))
        text = f"the maintenance ended as scheduled at {node.attributes['maintenance_until']}"
        tx.journal.append([Entry(node=uuid, step="maintenance", message=text, process=self._process)])
        return True

    def _time_out(self, uuid: str, fence: Fence, tx: Transaction) -> bool:
        fence(tx)
        try:
            node = tx.nodes.get(uuid, lock=True)
            if node.inspection is None or not is_overdue(tx.inspections.get(node.inspection), tx.now, self._timeout):
                return False
            transition.submit(tx, node, Event.TIMEOUT, process=self._process)
        except (NotFoundError, IllegalEventError):
            _log.debug("no longer overdue", node=uuid)
            return False
        return True
