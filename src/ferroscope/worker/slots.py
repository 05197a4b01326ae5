"""The slots of a lane: what is running in them, and when there is room for more.

A slot is kept after its attempt only if something follows in the same thread. An attempt that was ``abandoned`` (a hook
that does not return) has no slot any more, whatever its thread still does.
"""

from __future__ import annotations

import random
import threading
from typing import Final

import structlog

from ferroscope.contracts.errors import ClaimLostError, NotFoundError, StoreUnavailableError
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.core.values import many
from ferroscope.db.transaction import Transaction
from ferroscope.telemetry.finding import Finding
from ferroscope.transition import request_for, step
from ferroscope.worker.admission import Admission, BmcRequest, Breakers, Refusal
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.bmc import BmcObserver, Unobserved
from ferroscope.worker.conclude import CLOCKED
from ferroscope.worker.loop import Worker

_NAMED: Final = 3
# Silent BMCs whose machines a problem leads to.
_FOUND: Final = 40
_FULL: Final = Refusal(0.0, Reason.BMC_BUSY, "no free slot")


class Slot(BmcRequest):
    """The work of one thread: the ``claim`` that it holds, and the present ``attempt``."""

    def __init__(self, request: Request, slots: Slots) -> None:
        super().__init__(request)
        self._slots = slots
        self.claim: Claim | None = None
        self.attempt: Attempt | None = None
        self.since = slots.clock.monotonic()

    def attempt_started(self, attempt: Attempt) -> None:
        attempt.bmc_observer = self._slots.observer(self)
        self.attempt, self.claim = attempt, attempt.claim
        self.since = self._slots.clock.monotonic()

    @property
    def description(self) -> str:
        """What is running in it."""
        doing = self.attempt.doing if self.attempt is not None else ""
        request = self.request if self.attempt is None else self.attempt.request
        return f"{request.event} of node {request.node}" + (f" in {doing}" if doing else "")


class Slots:
    """The slots of the compute lane."""

    def __init__(self, number: int, *, clock: Clock, stop: StopFlag) -> None:
        self.number = number
        self.clock = clock
        self.changed = threading.Condition()
        self._stop = stop
        self._busy: set[Slot] = set()
        self._abandoned: set[Slot] = set()

    def free(self) -> int:
        """Return how many slots are free; the caller holds the lock."""
        return self.number - len(self._busy)

    def wait_for_room(self, timeout: float) -> tuple[str, ...] | None:
        """Wait for a free slot; return the networks to claim nothing from, None if there was no slot in time."""
        with self.changed:
            if self.changed.wait_for(lambda: self._stop.is_set() or self.free() > 0, timeout):
                return self.crowded()
            return None

    def crowded(self) -> tuple[str, ...]:
        return ()

    def enter(self, request: Request, *, claimed: bool) -> Slot | Refusal:
        """Give the request a slot. One that is ``claimed`` already gets one even if the last slot was taken since."""
        with self.changed:
            if not claimed and self.free() <= 0:
                return _FULL
            refusal = self.refusal(request)
            if refusal is not None:
                return refusal
            slot = Slot(request, self)
            self._busy.add(slot)
            return slot

    def refusal(self, _request: Request) -> Refusal | None:
        return None

    def leave(self, slot: Slot) -> None:
        """Free the slot."""
        with self.changed:
            self._busy.discard(slot)
            self._abandoned.discard(slot)
            self.changed.notify_all()

    def abandon(self, slot: Slot) -> None:
        """Free the slot although its thread is still running."""
        with self.changed:
            if slot in self._busy:
                self._busy.discard(slot)
                self._abandoned.add(slot)
            self.changed.notify_all()

    def busy(self) -> list[Slot]:
        with self.changed:
            return list(self._busy)

    def wake(self) -> None:
        """Wake all threads that wait for a slot."""
        with self.changed:
            self.changed.notify_all()

    def drain(self, timeout: float) -> list[Slot]:
        """Wait until no slot is busy; return those that still are."""
        with self.changed:
            self.changed.wait_for(lambda: not self._busy, max(0.0, timeout))
            return list(self._busy)

    def observer(self, _slot: Slot) -> BmcObserver:
        return Unobserved()

    def status(self) -> str:
        """Return how full the lane is, and what does not return."""
        text = f"{len(self._busy)} of {many(self.number, 'slot')} busy"
        with self.changed:
            stuck = sorted(self._abandoned, key=lambda slot: slot.since)
        if stuck:
            ago = self.clock.monotonic() - stuck[0].since
            text += f", {len(stuck)} abandoned ({stuck[0].description}, running for {ago:.0f} s)"
        return text

    def counts(self) -> dict[str, int]:
        """Return the number of slots, of busy ones, and of abandoned attempts (``given_up``)."""
        with self.changed:
            return {"slots": self.number, "busy": len(self._busy), "given_up": len(self._abandoned)}

    def problem(self) -> Finding | None:
        """Return what an operator should look into."""
        with self.changed:
            stuck = sorted(self._abandoned, key=lambda slot: slot.since)
        if not stuck:
            return None
        summary = f"abandoned because it does not return: {stuck[0].description}" + _and_more(len(stuck) - 1)
        return Finding("attempt-hangs", "wrong", summary, "fix the hook, and restart this worker to end its thread")


class BmcSlots(Slots):
    """The slots of the lane that waits for BMCs, see ``Admission``."""

    def __init__(self, number: int, per_bmc: int, *, clock: Clock, stop: StopFlag) -> None:
        super().__init__(number, clock=clock, stop=stop)
        self.breakers = Breakers(lambda: random.random())  # noqa: S311  # jitter, no secret
        self._admission = Admission(number, per_bmc, self.breakers, self._busy)

    def free(self) -> int:
        return self._admission.free(self.clock.monotonic())

    def crowded(self) -> tuple[str, ...]:
        return self._admission.crowded(self.clock.monotonic())

    def refusal(self, request: Request) -> Refusal | None:
        return self._admission.refusal(request, self.clock.monotonic())

    def observer(self, slot: Slot) -> BmcObserver:
        return _SlotObserver(self, slot)

    def status(self) -> str:
        now = self.clock.monotonic()
        with self.changed:
            silent = sum(slot.is_silent(now) for slot in self._busy)
            open_breakers = sorted(self.breakers.open(now), key=lambda one: one[1])
            text = f"{len(self._busy) - silent} of {many(self.number, 'slot')} busy"
        if silent:
            text += f", {silent} waiting for silent BMCs"
        if open_breakers:
            named = ", ".join(f"{bmc} (in {pause:.0f} s)" for bmc, pause in open_breakers[:_NAMED])
            text += f"; BMCs that did not respond, to be tried again: {named}{_and_more(len(open_breakers) - _NAMED)}"
        return text

    def counts(self) -> dict[str, int]:
        """``silent_bmcs`` are those with an open circuit breaker."""
        with self.changed:
            silent = len(list(self.breakers.open(self.clock.monotonic())))
        return super().counts() | {"silent_bmcs": silent}

    def problem(self) -> Finding | None:
        with self.changed:
            nodes = self.breakers.nodes(self.clock.monotonic())
        if not nodes:
            return super().problem()
        silent = sorted(nodes)
        summary = f"BMCs that do not respond: {', '.join(silent[:_NAMED])}{_and_more(len(silent) - _NAMED)}"
        advice = "check the network and the BMCs; other BMCs are not delayed"
        # A query has a limited length.
        found = dict.fromkeys(nodes[bmc] for bmc in silent[:_FOUND])
        return Finding("bmc-silent", "note", summary, advice, f"uuid in ({', '.join(found)})")


def _and_more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


class _SlotObserver:
    """Reports one attempt's BMC calls to its slot and to the circuit breakers."""

    def __init__(self, slots: BmcSlots, slot: Slot) -> None:
        self._slots = slots
        self._slot = slot

    def call_started(self) -> None:
        self._slot.calling_since = self._slots.clock.monotonic()

    def call_ended(self, *, answered: bool) -> None:
        self._slot.calling_since = None
        bmc = self._slot.request.bmc
        if bmc is None:
            return
        with self._slots.changed:
            if answered:
                self._slots.breakers.answered(bmc)
            else:
                self._slots.breakers.failed(bmc, self._slot.request.node, self._slots.clock.monotonic())

    def retry_after(self) -> float:
        bmc = self._slot.request.bmc
        with self._slots.changed:
            return 0.0 if bmc is None else self._slots.breakers.pause(bmc, self._slots.clock.monotonic())


_log = structlog.get_logger(__name__)

# Seconds between two checks, and after which an attempt is checked: the slowest inventory takes a fraction of that.
_CHECK_INTERVAL: Final = 1.0
_LONG: Final = 5.0
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
            if slot.claim is not None and slot.attempt is not None and took > _LONG:
                self._check(slot, slot.claim, took)

    def _check(self, slot: Slot, claim: Claim, took: float) -> None:
        if slot not in self._logged:
            self._logged.add(slot)
            _log.warning("an attempt is taking long", attempt=slot.description, seconds=round(took, 1))
        pending = self._worker.store.read(lambda tx: tx.requests.pending(claim.request.node))
        ended = any(_ends(other, claim.request) for other in pending)
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
        _log.warning("could not release the request; it is released when this process has left", error=str(exc))


def _ends(other: Request, request: Request) -> bool:
    if other.event is Event.DELETE:
        return other.id != request.id
    return other.event in _ENDS and other.inspection == request.inspection
