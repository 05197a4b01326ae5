"""Looks after what computes: a hook that does not return must not hold its node.

No thread can be ended from outside. So where an inspection is to end, or has had its time, the claim is taken
away in a transaction of its own: the node is free, another thread takes the place, and whatever the stuck one
does when it ever returns is refused by the fence.
"""

from __future__ import annotations

from typing import Final

import structlog

from ferroscope.contracts.errors import ClaimLostError, NotFoundError, StoreUnavailableError
from ferroscope.contracts.store import Transaction
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.transition import request_for, step
from ferroscope.worker.loop import Worker
from ferroscope.worker.onward import CLOCKED
from ferroscope.worker.slots import Slot, Slots

_log = structlog.get_logger(__name__)

# Seconds between two looks, and after which an attempt is looked at: the slowest inventory takes a fraction of that.
_PERIOD: Final = 1.0
_LONG: Final = 5.0
_ENDS: Final = frozenset({Event.ABORT, Event.TIMEOUT, Event.DELETE})


class Supervisor:
    """Of the lane ``slots``; ``timeout`` in seconds ends an attempt that nobody else asks to end."""

    def __init__(self, slots: Slots, worker: Worker, *, timeout: float) -> None:
        self._slots = slots
        self._worker = worker
        self._timeout = timeout
        self._told: set[Slot] = set()

    def run(self) -> None:
        """Look until the process stops."""
        stop = self._worker.stop
        try:
            while not stop.wait(_PERIOD):
                try:
                    self.step()
                except StoreUnavailableError as exc:
                    _log.warning("the database is unavailable", error=str(exc))
        except Exception:
            _log.exception("the worker's supervisor failed; stopping the process")
            raise
        finally:
            stop.set()

    def step(self) -> None:
        """Look once."""
        now = self._worker.clock.monotonic()
        busy = self._slots.busy()
        self._told.intersection_update(busy)
        for slot in busy:
            took = now - slot.since
            if slot.claim is not None and slot.context is not None and took > _LONG:
                self._look(slot, slot.claim, took)

    def _look(self, slot: Slot, claim: Claim, took: float) -> None:
        if slot not in self._told:
            self._told.add(slot)
            _log.warning("an attempt takes long", what=slot.what, seconds=round(took, 1))
        pending = self._worker.store.read(lambda tx: tx.requests.pending(claim.request.node))
        ended = any(_ends(other, claim.request) for other in pending)
        if not ended and took <= self._timeout:
            return
        try:
            self._worker.store.write(lambda tx: self._take_away(tx, slot, claim, ended=ended))
        except (ClaimLostError, NotFoundError):
            _log.debug("it ended at this moment", what=slot.what)
            return
        self._slots.abandon(slot)
        _log.error("gave up an attempt that does not return", what=slot.what, seconds=round(took, 1))

    def _take_away(self, tx: Transaction, slot: Slot, claim: Claim, *, ended: bool) -> None:
        request = claim.request
        tx.requests.consume(claim)
        node = tx.nodes.get(request.node, lock=True)
        doing = slot.context.doing if slot.context is not None else ""
        message = f"gave up {request.event}, which did not return" + (f" from {doing}" if doing else "")
        process = self._worker.process
        tx.journal.append([step(node, "given up", message, process=process, severity=Severity.WARNING)])
        if ended or node.inspection != request.inspection:
            return
        late = f"processing took longer than {self._timeout:g} s" + (f"; it hangs in {doing}" if doing else "")
        tx.requests.put(request_for(node, Event.FAIL, {"reason": str(Reason.PROCESSING_TIMEOUT), "message": late}))


def give_back(worker: Worker, slot: Slot) -> None:
    """Give back, at the end of the process, what is still under way; it was no attempt, and its results are refused."""
    claim = slot.claim
    if claim is None:
        return
    if slot.context is not None:
        slot.context.give_back()
    request = claim.request
    _log.warning(
        "still running at the end of [worker] graceful_timeout; given back",
        request=request.id,
        what=slot.what,
        attempt=request.attempt,
    )

    def work(tx: Transaction) -> None:
        tx.requests.retry(claim, 0.0, counted=False)
        if request.event in CLOCKED and request.inspection is not None:
            tx.inspections.update(request.inspection, clock_since=None)

    try:
        worker.store.write(work, durable=False)
    except (ClaimLostError, StoreUnavailableError) as exc:
        _log.warning("could not give it back; it is free when this process has left", error=str(exc))


def _ends(other: Request, request: Request) -> bool:
    if other.event is Event.DELETE:
        return other.id != request.id
    return other.event in _ENDS and other.inspection == request.inspection
