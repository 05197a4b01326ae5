"""The lanes of one process: threads that are started on demand, and who claims for them.

One dispatcher for each lane claims requests, and only while the lane has a slot: hundreds of threads that
wait for BMCs shall not all poll the database. See ADR 023.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from ferroscope.config.options import WorkerSettings
from ferroscope.contracts.errors import ClaimLostError, NotFoundError, StoreUnavailableError
from ferroscope.contracts.queue import Take
from ferroscope.contracts.store import Transaction
from ferroscope.core.lanes import Lane, lane_of
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.states import Event
from ferroscope.telemetry.finding import Finding
from ferroscope.transition import step
from ferroscope.worker.admission import Refusal
from ferroscope.worker.loop import Worker
from ferroscope.worker.onward import Here, Locked, Onward
from ferroscope.worker.slots import BmcSlots, Slot, Slots
from ferroscope.worker.supervisor import Supervisor, give_back
from ferroscope.worker.threads import Threads

# Seconds for which a dispatcher waits at a stretch for a slot, and for a request while a network is left out.
_ROOM: Final = 0.5
_BMC_SLOTS: Final = 128
_LEAST_BMC_SLOTS: Final = 64

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Claims the requests of one lane and gives each a thread. ``status`` always says what the lane is at."""

    def __init__(self, lane: Lane, slots: Slots, worker: Worker) -> None:
        self.lane = lane
        self.slots = slots
        self._worker = worker
        self._threads = Threads(f"worker-{lane}", failed=worker.stop.set)
        self._said = "idle"

    @property
    def status(self) -> str:
        return f"{self.slots.status()}; {self._said}"

    def run(self) -> None:
        """Claim until the stop flag is set; a fault of the loop itself stops the process.

        What the process held is then free, and a poisonous request ends after its last attempt.
        """
        worker, stop = self._worker, self._worker.stop
        try:
            while not stop.is_set():
                try:
                    self._said = self.step()
                except StoreUnavailableError as exc:
                    self._said = f"waits for the database: {exc}"
                    _log.warning("the database is unavailable", error=str(exc))
                    stop.wait(worker.settings.worker.retry_delay)
        except Exception:
            stop.set()
            _log.exception("the worker's loop failed; stopping the process")
            raise
        finally:
            stop.set()
            self._threads.close()

    def step(self) -> str:
        """Claim one request as soon as there is a slot for it; return what happened."""
        without = self.slots.wait_for_room(_ROOM)
        if without is None:
            return "waits for a slot"
        worker = self._worker
        timeout = worker.settings.worker.get_timeout
        take = Take(self.lane, without)
        claim = worker.queue.get(worker.member, min(_ROOM, timeout) if without else timeout, worker.stop, take)
        if claim is None:
            return "idle"
        what = f"{claim.request.event} of node {claim.request.node}"
        slot = self.slots.enter(claim.request, claimed=True)
        if isinstance(slot, Refusal):
            self._put_back(claim, slot)
            return f"put {what} back: {slot.message}"
        self.begin(slot, claim)
        return f"claimed {what}"

    def begin(self, slot: Slot, claim: Claim, handed: Locked | None = None) -> None:
        """Carry the claimed request out in ``slot``, in a thread of its own."""
        slot.claim = claim
        self._threads.submit(partial(self._carry_out, slot, claim, handed))

    def _carry_out(self, slot: Slot, claim: Claim, handed: Locked | None) -> None:
        try:
            said, follow = self._worker.carry_out(claim, handed, slot)
            while follow is not None:
                said, follow = self._worker.carry_out(follow.claim, follow, slot)
            self._said = said
        finally:
            self.slots.leave(slot)

    def _put_back(self, claim: Claim, refusal: Refusal) -> None:
        """Leave the request for later: that was no attempt. Of a silent BMC the node's timeline tells."""

        def work(tx: Transaction) -> None:
            tx.requests.retry(claim, refusal.after, counted=False)
            if refusal.told:
                node, detail = tx.nodes.get(claim.request.node), {"after": round(refusal.after, 1)}
                entry = step(
                    node,
                    "bmc",
                    refusal.message,
                    process=self._worker.process,
                    severity=Severity.WARNING,
                    reason=refusal.reason,
                    detail=detail,
                )
                tx.journal.append([entry])

        try:
            self._worker.persist(work, durable=False)
        except (ClaimLostError, NotFoundError) as exc:
            _log.debug("lost before it was put back", node=claim.request.node, error=str(exc))


class _Place:
    """A slot in another lane, for what follows."""

    def __init__(self, dispatcher: Dispatcher, slot: Slot) -> None:
        self._dispatcher = dispatcher
        self._slot = slot

    def take(self, locked: Locked) -> None:
        self._dispatcher.begin(self._slot, locked.claim, locked)

    def release(self) -> None:
        self._dispatcher.slots.leave(self._slot)


class WorkerPool:
    """Both lanes of one process, and what looks after them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        settings = worker.settings.worker
        compute = Slots(compute_threads(settings), clock=worker.clock, stop=worker.stop)
        bmc = BmcSlots(bmc_slots(settings), clock=worker.clock, stop=worker.stop)
        self._lanes = {
            Lane.COMPUTE: Dispatcher(Lane.COMPUTE, compute, worker),
            Lane.BMC: Dispatcher(Lane.BMC, bmc, worker),
        }
        supervisor = Supervisor(compute, worker, timeout=worker.settings.inspector.timeout)
        worker.reserve = self.reserve
        loops = {f"worker-{lane}": one.run for lane, one in self._lanes.items()} | {"supervisor": supervisor.run}
        self._mains = [threading.Thread(target=run, name=name, daemon=True) for name, run in loops.items()]

    def loops(self) -> Mapping[str, Callable[[], str]]:
        """Return, by the name of each lane's loop, what says what it is at."""
        return {f"worker-{lane}": partial(getattr, one, "status") for lane, one in self._lanes.items()}

    def problems(self) -> Mapping[str, Callable[[], Finding | None]]:
        """Return, by the same names, what says what somebody should look into."""
        return {f"worker-{lane}": one.slots.problem for lane, one in self._lanes.items()}

    def lanes(self) -> dict[str, dict[str, int]]:
        """Return how full each lane is, by its name."""
        return {str(lane): one.slots.counts() for lane, one in self._lanes.items()}

    def start(self) -> None:
        for thread in self._mains:
            thread.start()

    def reserve(self, after: Event, request: Request) -> Onward | None:
        """Reserve a place for what follows; None where there is none now, or the process shall stop."""
        if after is Event.REAPPLY:  # what follows from it asks no BMC
            return Here()
        dispatcher = self._lanes[lane_of(request.event)]
        slot = None if self._worker.stop.is_set() else dispatcher.slots.enter(request, claimed=False)
        return _Place(dispatcher, slot) if isinstance(slot, Slot) else None

    def join(self, timeout: float) -> bool:
        """Wait for all that is under way to end after the stop flag was set; whether it did in ``timeout`` seconds.

        What is left then is logged and given back: that was no attempt.
        """
        clock = self._worker.clock
        until = clock.monotonic() + timeout
        for lane in self._lanes.values():
            lane.slots.wake()
        for thread in self._mains:
            thread.join(max(0.0, until - clock.monotonic()))
        left = [slot for lane in self._lanes.values() for slot in lane.slots.drain(until - clock.monotonic())]
        for slot in left:
            give_back(self._worker, slot)
        return not left


def compute_threads(settings: WorkerSettings) -> int:
    """Return how many threads compute: as many as there are processors to run them, where nobody says otherwise."""
    return settings.threads or _processors()


def bmc_slots(settings: WorkerSettings) -> int:
    """Return how many requests wait for BMCs at the same time."""
    return settings.bmc_slots or max(_LEAST_BMC_SLOTS, _BMC_SLOTS * _processors())


def _processors() -> int:
    return len(os.sched_getaffinity(0))
