"""The lanes of a worker process: a dispatcher for each claims requests, and a supervisor ends attempts that hang.

A dispatcher claims only while its lane has a free slot: hundreds of threads that wait for BMCs must not all poll the
database. See ADR 023.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from ferroscope.config.options import Settings, WorkerSettings
from ferroscope.contracts.errors import ClaimLostError, NotFoundError, StoreError
from ferroscope.contracts.store import Take
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.transition import request_for, step
from ferroscope.worker.attempt import Locked
from ferroscope.worker.loop import Worker
from ferroscope.worker.results import CLOCKED
from ferroscope.worker.services import RETRY_SECONDS
from ferroscope.worker.slots import BmcSlots, Refusal, Slot, Slots, Threads
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.obstacles import Lane
from ferroscope_client.core.reasons import Reason

# Longest time in seconds that a dispatcher waits for a slot, or for a request while a network is excluded.
_MAX_WAIT_SECONDS: Final = 0.5
_BMC_SLOTS_PER_PROCESSOR: Final = 128
_MIN_THREADS: Final = 4
_MIN_BMC_SLOTS: Final = 64
# An Ironic serves few requests at a time, however many workers wait for it.
_ATTACHED_SLOTS: Final = 16

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Claims the requests of one lane and runs each in a thread. ``status`` says what the lane is doing."""

    def __init__(self, lane: Lane, slots: Slots, worker: Worker) -> None:
        self.lane, self.slots, self._worker = lane, slots, worker
        slots.threads = Threads(f"worker-{lane}")
        slots.work = self._carry_out
        self._last = "idle"

    @property
    def status(self) -> str:
        return f"{self.slots.status()}; {self._last}"

    def run(self) -> None:
        """Claim until the stop flag is set; an unexpected error stops the process.

        Its claims then expire, and a request that caused the error ends after its last attempt.
        """
        stop = self._worker.services.stop
        try:
            while not stop.is_set():
                try:
                    self._last = self.step()
                except StoreError as exc:
                    self._last = f"waiting for the database: {exc}"
                    _log.warning("the database is unavailable", error=str(exc))
                    stop.wait(RETRY_SECONDS)
        except Exception:
            stop.set()
            _log.exception("the worker's loop failed; stopping the process")
            raise
        finally:
            stop.set()
            self.slots.threads.close()

    def step(self) -> str:
        """Claim one request as soon as there is a slot for it; return what happened."""
        without = self.slots.wait_for_room(_MAX_WAIT_SECONDS)
        if without is None:
            return "waiting for a slot"
        worker, services = self._worker, self._worker.services
        if services.claim_valid_for(services.clock.monotonic()) <= 0:
            # Others would release the claim at once: after an outage, until the first heartbeat has got through.
            services.stop.wait(min(_MAX_WAIT_SECONDS, services.heartbeat_seconds))
            return "waiting for a heartbeat"
        timeout = services.settings.worker.get_timeout
        wait = min(_MAX_WAIT_SECONDS, timeout) if without else timeout
        entry = _SlotEntry(self.slots, worker)
        locked = None
        try:
            claimed = worker.queue.get_with(services.member, wait, services.stop, Take(self.lane, without), entry)
            if claimed is None:
                return "idle"
            claim, locked = claimed
        finally:
            if locked is None:
                entry.leave()
        task_name = f"{claim.request.event} of node {claim.request.node}"
        slot = entry.slot or self.slots.enter(claim.request, claimed=True)
        if isinstance(slot, Refusal):
            self._put_back(claim, slot)
            return f"put {task_name} back: {slot.message}"
        self.slots.begin(slot, claim, locked)
        return f"claimed {task_name}"

    def _carry_out(self, slot: Slot, claim: Claim, handed: Locked | None) -> None:
        try:
            self._last, follow = self._worker.carry_out(claim, handed, slot)
            while follow is not None:
                self._last, follow = self._worker.carry_out(follow.claim, follow, slot)
        except StoreError as exc:  # only while the process is stopping; the request is delivered again
            _log.warning("the database is unavailable", error=str(exc))
        except BaseException:
            self._worker.services.stop.set()
            _log.exception("a worker's thread failed; stopping the process")
            raise
        finally:
            self.slots.leave(slot)

    def _put_back(self, claim: Claim, refusal: Refusal) -> None:
        """Put the request back for later; it is not counted as an attempt. A silent BMC is noted on the timeline."""

        def work(tx: Transaction) -> None:
            tx.requests.retry(claim, refusal.after, counted=False)
            if refusal.noted:
                node, detail = tx.nodes.get(claim.request.node), {"after": round(refusal.after, 1)}
                entry = step(
                    node,
                    "bmc",
                    refusal.message,
                    process=self._worker.services.process,
                    severity=Severity.WARNING,
                    reason=refusal.reason,
                    detail=detail,
                )
                tx.journal.append([entry])

        try:
            self._worker.persist(work, durable=False)
        except (ClaimLostError, NotFoundError) as exc:
            _log.debug("lost before it was put back", node=claim.request.node, error=str(exc))


class _SlotEntry:
    """Gives a request a slot and prepares it, in the transaction of its claim; without a slot it is only claimed."""

    def __init__(self, slots: Slots, worker: Worker) -> None:
        self.slot: Slot | None = None
        self._slots = slots
        self._worker = worker

    def __call__(self, tx: Transaction, claim: Claim) -> Locked | None:
        self.leave()  # the transaction may be run again, and find another request
        slot = self._slots.enter(claim.request, claimed=True)
        if isinstance(slot, Refusal):
            return None
        self.slot = slot
        return self._worker.prepare_claimed(tx, claim)

    def leave(self) -> None:
        if self.slot is not None:
            self._slots.leave(self.slot)
            self.slot = None


class WorkerPool:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        settings, clock, stop = worker.services.settings, worker.services.clock, worker.services.stop
        compute = Slots(compute_threads(settings.worker), clock=clock, stop=stop)
        bmc = BmcSlots(bmc_slots(settings), settings.worker.requests_per_bmc, clock=clock, stop=stop)
        self._lanes = {
            Lane.COMPUTE: Dispatcher(Lane.COMPUTE, compute, worker),
            Lane.BMC: Dispatcher(Lane.BMC, bmc, worker),
        }
        supervisor = AttemptSupervisor(compute, worker, timeout=settings.inspector.timeout)
        worker.lanes = {lane: dispatcher.slots for lane, dispatcher in self._lanes.items()}
        loops = {f"worker-{lane}": dispatcher.run for lane, dispatcher in self._lanes.items()}
        loops["supervisor"] = supervisor.run
        self._mains = [threading.Thread(target=run, name=name, daemon=True) for name, run in loops.items()]

    def loops(self) -> Mapping[str, Callable[[], str]]:
        """Return the status of each lane's loop, by its name, as functions."""
        return {f"worker-{lane}": partial(getattr, worker_lane, "status") for lane, worker_lane in self._lanes.items()}

    def problems(self) -> Mapping[str, Callable[[], Finding | None]]:
        """Return what an operator should look into, by the same names, as functions."""
        return {f"worker-{lane}": worker_lane.slots.problem for lane, worker_lane in self._lanes.items()}

    def lanes(self) -> dict[str, dict[str, int]]:
        """Return the counts of each lane, by its name."""
        return {str(lane): worker_lane.slots.counts() for lane, worker_lane in self._lanes.items()}

    def start(self) -> None:
        for thread in self._mains:
            thread.start()

    def join(self, timeout: float) -> bool:
        """After the stop flag was set, wait for running attempts; return whether all ended in ``timeout`` seconds.

        Those that did not are logged and their requests released, without counting an attempt.
        """
        clock = self._worker.services.clock
        until = clock.monotonic() + timeout
        for lane in self._lanes.values():
            lane.slots.wake()
        for thread in self._mains:
            thread.join(max(0.0, until - clock.monotonic()))
        left = [slot for lane in self._lanes.values() for slot in lane.slots.drain(until - clock.monotonic())]
        for slot in left:
            release_claim(self._worker, slot)
        return not left


def compute_threads(settings: WorkerSettings) -> int:
    """Return the number of compute threads: one for each processor; at least four, as they wait for the database."""
    return settings.threads or max(_MIN_THREADS, _processors())


def bmc_slots(settings: Settings) -> int:
    if settings.worker.bmc_slots:
        return settings.worker.bmc_slots
    if settings.registry.backend != "embedded":
        return _ATTACHED_SLOTS
    return max(_MIN_BMC_SLOTS, _BMC_SLOTS_PER_PROCESSOR * _processors())


def _processors() -> int:
    return len(os.sched_getaffinity(0))


# Seconds between two checks of the supervisor, and after which it checks an attempt: the slowest inventory takes a
# fraction of that.
_CHECK_INTERVAL_SECONDS: Final = 1.0
_LONG_SECONDS: Final = 5.0
_ENDING_EVENTS: Final = frozenset({Event.ABORT, Event.TIMEOUT, Event.DELETE})


class AttemptSupervisor:
    """For the lane of ``slots``; an attempt is ended after ``timeout`` seconds if nothing else ends it."""

    def __init__(self, slots: Slots, worker: Worker, *, timeout: float) -> None:
        self._slots = slots
        self._worker = worker
        self._timeout = timeout
        self._logged: set[Slot] = set()

    def run(self) -> None:
        stop = self._worker.services.stop
        try:
            while not stop.wait(_CHECK_INTERVAL_SECONDS):
                try:
                    self.step()
                except StoreError as exc:
                    _log.warning("the database is unavailable", error=str(exc))
        except Exception:
            _log.exception("the worker's supervisor failed; stopping the process")
            raise
        finally:
            stop.set()

    def step(self) -> None:
        now = self._worker.services.clock.monotonic()
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
        pending = self._worker.services.store.read(lambda tx: tx.requests.pending(claim.request.node))
        ended = any(_ends(queued, claim.request) for queued in pending)
        if not ended and took <= self._timeout:
            return
        try:
            self._worker.services.store.write(lambda tx: self._revoke(tx, slot, claim, ended=ended))
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
        worker.services.store.write(work, durable=False)
    except (ClaimLostError, StoreError) as exc:
        _log.warning("could not release the request; it is released when this process ends", error=str(exc))


def _ends(queued: Request, request: Request) -> bool:
    if queued.event is Event.DELETE:
        return queued.id != request.id
    return queued.event in _ENDING_EVENTS and queued.inspection == request.inspection
