"""The lanes of a worker process: threads started on demand, and a dispatcher for each lane that claims requests.

A dispatcher claims only while its lane has a free slot; hundreds of threads that wait for BMCs must not all poll the
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
from ferroscope.contracts.queue import Take
from ferroscope.core.finding import Finding
from ferroscope.core.lanes import Lane, lane_of
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.states import Event
from ferroscope.db.transaction import Transaction
from ferroscope.transition import step
from ferroscope.worker.attempt import Locked
from ferroscope.worker.conclude import Place, SameThread
from ferroscope.worker.hanging import Supervisor, release_claim
from ferroscope.worker.loop import Worker
from ferroscope.worker.services import RETRY_SECONDS
from ferroscope.worker.slots import BmcSlots, Refusal, Slot, Slots

# Seconds after which an idle thread ends.
_IDLE_SECONDS: Final = 15.0


class _Slot:
    """The next job of a thread, and the event that wakes it up."""

    def __init__(self, job: Callable[[], None]) -> None:
        self.job: Callable[[], None] | None = job
        self.woken = threading.Event()


class Threads:
    """``failed`` is called if a job raises an unexpected exception: the process has to be restarted."""

    def __init__(self, name: str, failed: Callable[[], object]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Condition()
        self._idle: list[_Slot] = []
        self._started = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run ``job`` in a thread immediately."""
        with self._lock:
            if self._idle:
                slot = self._idle.pop()
                slot.job = job
                slot.woken.set()
                return
            self._started += 1
            name = f"{self._name}-{self._started}"
        slot = _Slot(job)
        threading.Thread(target=lambda: self._main(slot), name=name, daemon=True).start()

    def close(self) -> None:
        """Let idle threads end now, and the others after their job."""
        with self._lock:
            self._closed = True
            for slot in self._idle:
                slot.woken.set()
            self._idle.clear()

    def _main(self, slot: _Slot) -> None:
        while slot.job is not None:
            self._do(slot.job)
            slot.job = None
            slot.woken.clear()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(slot)
            if not slot.woken.wait(_IDLE_SECONDS):
                with self._lock:
                    if slot in self._idle:
                        self._idle.remove(slot)

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except StoreError as exc:  # only while the process is stopping; it is delivered again
            _log.warning("the database is unavailable", error=str(exc))
        except BaseException:
            self._failed()
            _log.exception("a worker's thread failed; stopping the process")
            raise


# Longest time in seconds that a dispatcher waits for a slot, or for a request while a network is excluded.
_LONGEST_WAIT: Final = 0.5
_BMC_SLOTS: Final = 128
_LEAST_THREADS: Final = 4
_LEAST_BMC_SLOTS: Final = 64
# An Ironic serves few requests at a time, whoever waits for it.
_ATTACHED_SLOTS: Final = 16

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Claims the requests of one lane and runs each in a thread. ``status`` says what the lane is doing."""

    def __init__(self, lane: Lane, slots: Slots, worker: Worker) -> None:
        self.lane = lane
        self.slots = slots
        self._worker = worker
        self._threads = Threads(f"worker-{lane}", failed=worker.stop.set)
        self._last = "idle"

    @property
    def status(self) -> str:
        return f"{self.slots.status()}; {self._last}"

    def run(self) -> None:
        """Claim until the stop flag is set; an unexpected error stops the process.

        Its claims then expire, and a request that caused the error ends after its last attempt.
        """
        stop = self._worker.stop
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
            self._threads.close()

    def step(self) -> str:
        """Claim one request as soon as there is a slot for it; return what happened."""
        without = self.slots.wait_for_room(_LONGEST_WAIT)
        if without is None:
            return "waiting for a slot"
        worker = self._worker
        settings = worker.settings.worker
        if worker.services.claim_valid_for(worker.clock.monotonic()) <= 0:
            # Others would release the claim at once: after an outage, until the first heartbeat has got through.
            worker.stop.wait(min(_LONGEST_WAIT, settings.heartbeat_seconds))
            return "waiting for a heartbeat"
        timeout = settings.get_timeout
        take = Take(self.lane, without)
        entry = _Entry(self.slots, worker)
        locked = None
        try:
            wait = min(_LONGEST_WAIT, timeout) if without else timeout
            claimed = worker.queue.get_with(worker.member, wait, worker.stop, take, entry)
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
        self.begin(slot, claim, locked)
        return f"claimed {task_name}"

    def begin(self, slot: Slot, claim: Claim, handed: Locked | None = None) -> None:
        """Carry out the claimed request in ``slot``, in a thread."""
        slot.claim = claim
        self._threads.submit(partial(self._carry_out, slot, claim, handed))

    def _carry_out(self, slot: Slot, claim: Claim, handed: Locked | None) -> None:
        try:
            self._last, follow = self._worker.carry_out(claim, handed, slot)
            while follow is not None:
                self._last, follow = self._worker.carry_out(follow.claim, follow, slot)
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
            self._worker.services.persist(work, durable=False)
        except (ClaimLostError, NotFoundError) as exc:
            _log.debug("lost before it was put back", node=claim.request.node, error=str(exc))


class _Entry:
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


class _ReservedSlot:
    """A slot in another lane, for what follows."""

    def __init__(self, dispatcher: Dispatcher, slot: Slot) -> None:
        self._dispatcher = dispatcher
        self._slot = slot

    def take(self, locked: Locked) -> None:
        self._dispatcher.begin(self._slot, locked.claim, locked)

    def release(self) -> None:
        self._dispatcher.slots.leave(self._slot)


class WorkerPool:
    """Both lanes of a process and their supervisor."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        settings = worker.settings.worker
        compute = Slots(compute_threads(settings), clock=worker.clock, stop=worker.stop)
        bmc = BmcSlots(bmc_slots(worker.settings), settings.requests_per_bmc, clock=worker.clock, stop=worker.stop)
        self._lanes = {
            Lane.COMPUTE: Dispatcher(Lane.COMPUTE, compute, worker),
            Lane.BMC: Dispatcher(Lane.BMC, bmc, worker),
        }
        supervisor = Supervisor(compute, worker, timeout=worker.settings.inspector.timeout)
        worker.reserve = self.reserve
        loops = {f"worker-{lane}": worker_lane.run for lane, worker_lane in self._lanes.items()} | {
            "supervisor": supervisor.run
        }
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

    def reserve(self, after: Event, request: Request) -> Place | None:
        """Reserve a place for what follows; None if there is none now or the process is stopping."""
        if after is Event.REAPPLY:  # what follows from it calls no BMC
            return SameThread()
        dispatcher = self._lanes[lane_of(request.event)]
        slot = None if self._worker.stop.is_set() else dispatcher.slots.enter(request, claimed=False)
        return _ReservedSlot(dispatcher, slot) if isinstance(slot, Slot) else None

    def join(self, timeout: float) -> bool:
        """After the stop flag was set, wait for running attempts; return whether all ended in ``timeout`` seconds.

        Those that did not are logged and their requests released, without counting an attempt.
        """
        clock = self._worker.clock
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
    return settings.threads or max(_LEAST_THREADS, _processors())


def bmc_slots(settings: Settings) -> int:
    """Return how many requests may wait for BMCs at the same time."""
    if settings.worker.bmc_slots:
        return settings.worker.bmc_slots
    if settings.registry.backend != "embedded":
        return _ATTACHED_SLOTS
    return max(_LEAST_BMC_SLOTS, _BMC_SLOTS * _processors())


def _processors() -> int:
    return len(os.sched_getaffinity(0))
