"""Attempts that do not return: they are abandoned after their time, and released when the process stops."""

from __future__ import annotations

from typing import Final

import structlog

from ferroscope.contracts.errors import ClaimLostError, NotFoundError, StoreUnavailableError
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.db.transaction import Transaction
from ferroscope.transition import request_for, step
from ferroscope.worker.conclude import CLOCKED
from ferroscope.worker.loop import Worker
from ferroscope.worker.slots import Slot, Slots

_log = structlog.get_logger(__name__)

# Seconds between two checks, and after which an attempt is checked: the slowest inventory takes a fraction of that.
_CHECK_INTERVAL: Final = 1.0
_LONG_SECONDS: Final = 5.0
_ENDS: Final = frozenset({Event.ABORT, Event.TIMEOUT, Event.DELETE})


class Supervisor:
    """For the lane of ``slots``; an attempt is ended after ``timeout`` seconds if nothing else ends it."""

    def __init__(self, slots: Slots, worker: Worker, *, timeout: float) -> None:
        self._slots = slots
        self._worker = worker
        self._timeout = timeout
        self._logged: set[Slot] = set()

    def run(self) -> None:
        """Check until the process stops."""
        stop = self._worker.stop
        try:
            while not stop.wait(_CHECK_INTERVAL):
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
        """Check all attempts once."""
        now = self._worker.clock.monotonic()
        busy = self._slots.busy()
        self._logged.intersection_update(busy)
        for slot in busy:
            took = now - slot.since
            if slot.claim is not None and slot.attempt is not None and took > _LONG_SECONDS:
                self._check(slot, slot.claim, took)

    def _check(self, slot: Slot, claim: Claim, took: float) -> None:
        if slot not in self._logged:
            self._logged.add(slot)
            _log.warning("an attempt is taking long", attempt=slot.description, seconds=round(took, 1))
        pending = self._worker.store.read(lambda tx: tx.requests.pending(claim.request.node))
        ended = any(_ends(queued, claim.request) for queued in pending)
        if not ended and took <= self._timeout:
            return
        try:
            self._worker.store.write(lambda tx: self._revoke(tx, slot, claim, ended=ended))
        except (ClaimLostError, NotFoundError):
            _log.debug("the attempt ended in this moment", attempt=slot.description)
            return
        self._slots.abandon(slot)
        _log.error("abandoned an attempt that does not return", attempt=slot.description, seconds=round(took, 1))

    def _revoke(self, tx: Transaction, slot: Slot, claim: Claim, *, ended: bool) -> None:
        request = claim.request
        tx.requests.consume(claim)
        node = tx.nodes.get(request.node, lock=True)
        doing = slot.attempt.doing if slot.attempt is not None else ""
        message = f"abandoned {request.event}, which did not return" + (f" from {doing}" if doing else "")
        process = self._worker.services.process
        tx.journal.append([step(node, "given up", message, process=process, severity=Severity.WARNING)])
        if ended or node.inspection != request.inspection:
            return
        late = "processing hangs" + (f" in {doing}" if doing else "") + f", ended after {self._timeout:g} s"
        tx.requests.put(request_for(node, Event.FAIL, {"reason": str(Reason.PROCESSING_TIMEOUT), "message": late}))


def release_claim(worker: Worker, slot: Slot) -> None:
    """Release, when the process stops, a claim whose attempt is still running; the attempt is not counted."""
    claim = slot.claim
    if claim is None:
        return
    if slot.attempt is not None:
        slot.attempt.revoke()
    request = claim.request
    _log.warning(
        "still running at the end of [worker] graceful_timeout; request released",
        request=request.id,
        what=slot.description,
        attempt=request.attempt,
    )

    def work(tx: Transaction) -> None:
        tx.requests.retry(claim, 0.0, counted=False)
        if request.event in CLOCKED and request.inspection is not None:
            tx.inspections.update(request.inspection, clock_since=None)

    try:
        worker.store.write(work, durable=False)
    except (ClaimLostError, StoreUnavailableError) as exc:
        _log.warning("could not release the request; it is released when this process ends", error=str(exc))


def _ends(queued: Request, request: Request) -> bool:
    if queued.event is Event.DELETE:
        return queued.id != request.id
    return queued.event in _ENDS and queued.inspection == request.inspection
