"""How a worker carries out one request. Read it from top to bottom: the methods stand in the order in which they run.

    get       claim a due request                             \
    lock      lock its node against all other writers          | prepare_claimed(): one transaction,
    decide    let the state machine take the event             | which the queue begins with the claim
    save      save the target state of a strict event         /
    run       run the event's task; it commits nothing
    follow    put the next request on the queue, if any       \
    commit    write the results and the new state              | conclude.py: one transaction
    consume   take the request off the queue, or retry later  /

A worker may be killed or frozen between any two lines. Before the last transaction has been committed, the request is
still on the queue and is delivered again as soon as its claim expires; after that it is gone, together with everything
that it led to. Every transaction checks the claim first, so a worker that lost it writes nothing.
Source: the worker of the high-availability specification for ironic-inspector.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
import structlog

from ferroscope import transition
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import ClaimLostError, NotFoundError
from ferroscope.contracts.images import Images, Unchecked
from ferroscope.contracts.queue import EVERYTHING, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.delivery import Decision, Run, decide, is_overdue
from ferroscope.core.losses import count_attempts, review_losses
from ferroscope.core.model import Claim
from ferroscope.core.states import WORKED_ON, Event, State, Transition
from ferroscope.db.queue import Queue
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.references import SecretReader
from ferroscope.storage.reader import Archive
from ferroscope.worker.attempt import Attempt, Locked
from ferroscope.worker.conclude import CLOCKED, Reserve, SameThread, commit_attempt
from ferroscope.worker.endings import Endings
from ferroscope.worker.run import ReadsAhead, Task, run
from ferroscope.worker.services import POWER_POLL_SECONDS, RETRY_SECONDS, PowerTimes, Services

# Seconds for which a node is left alone whose state only a newer release knows.
_UNKNOWN_STATE_DELAY: Final = 30.0

_log = structlog.get_logger(__name__)


class UnknownStateError(Exception):
    """The node is in a state that this release does not know."""


class AttemptObserver(Protocol):
    """Learns which attempt a thread is carrying out; it may set who observes its BMC calls."""

    def attempt_started(self, attempt: Attempt) -> None: ...


class Worker:
    """Carries out requests. It keeps no state about any of them, so one instance serves all threads of a process.

    ``reserve`` returns a place for the request that follows from an event; None if there is none now. For
    ``claim_valid_for`` see ``Services``.
    """

    def __init__(
        self,
        *,
        store: Store,
        queue: Queue,
        tasks: Mapping[Event, Task],
        drivers: Mapping[str, Bmc],
        settings: Settings,
        clock: Clock,
        stop: StopFlag,
        member: str,
        process: str,
        meter: Meter = SILENT,
        archive: Archive | None = None,
        reserve: Reserve = lambda _event, _request: SameThread(),
        claim_valid_for: Callable[[float], float] = lambda _confirmed_at: math.inf,
        secrets: SecretReader | None = None,
        power_times: PowerTimes | None = None,
        images: Images | None = None,
        power_poll_seconds: float = POWER_POLL_SECONDS,
    ) -> None:
        self.services = Services(
            store=store,
            archive=archive or Archive(store, {}),
            settings=settings,
            clock=clock,
            stop=stop,
            process=process,
            endings=Endings(store, clock),
            claim_valid_for=claim_valid_for,
            secrets=secrets or SecretReader(),
            power_times=power_times,
            tracer=meter.tracer,
            images=images or Unchecked(),
            power_poll_seconds=power_poll_seconds,
        )
        self.store, self.settings, self.clock, self.stop = store, settings, clock, stop
        self.queue = queue
        self.tasks = tasks
        self.drivers = drivers
        self.member = member
        self.meter = meter
        self.delivery = settings.worker.delivery()
        self.reserve = reserve

    def step(self) -> str:
        """Take one request, carry out it and what follows from it in this thread; return what happened."""
        timeout = self.settings.worker.get_timeout
        claimed = self.queue.get_with(self.member, timeout, self.stop, EVERYTHING, self.prepare_claimed)
        if claimed is None:
            return "no request is due"
        result, follow = self.carry_out(*claimed)
        while follow is not None:
            result, follow = self.carry_out(follow.claim, follow)
        return result

    def get(self) -> Claim | None:
        """Claim a request; None if none was due in time or the process is stopping."""
        return self.queue.get(self.member, self.settings.worker.get_timeout, self.stop)

    def carry_out(
        self, claim: Claim, handed: Locked | None = None, observer: AttemptObserver | None = None
    ) -> tuple[str, Locked | None]:
        """Carry out a claimed request; return what happened, and what follows in this thread under the same claim.

        ``handed`` is a node that was locked and saved before: with the claim, or by the request from which this one
        follows.
        """
        request = claim.request
        task_name = f"{request.event} of node {request.node}"
        began = self.clock.monotonic()
        try:
            attempt = self.begin_attempt(*self.lock_and_decide(claim, handed), observer)
            outcome = run(attempt, self.tasks)
            follow = commit_attempt(attempt, outcome, self.tasks, self.reserve)
        except NotFoundError:
            return f"found no node for {task_name}: {self.give_up(claim)}", None
        except UnknownStateError as exc:
            return f"deferred {task_name}: {exc}; {self.defer(claim)}", None
        except ClaimLostError:
            self.meter.record_attempt(request.event, "lost", self.clock.monotonic() - began)
            return f"lost {task_name} to another worker", None
        result = type(outcome).__name__.lower()
        if attempt.trail is not None:
            attempt.trail.record_end(result, str(getattr(outcome, "reason", "")))
        self.meter.record_attempt(request.event, result, self.clock.monotonic() - began)
        _log.debug("request carried out", request=request.event, node=request.node, outcome=result)
        return f"carried out {task_name}: {result}", follow

    # lock, decide, save

    def lock_and_decide(self, claim: Claim, handed: Locked | None) -> tuple[Locked, Decision]:
        """Return what is locked and what to do with it."""
        if handed is not None and handed.decision is not None:
            return handed, handed.decision
        if handed is not None:
            decision = self.decide(handed)
            if not _must_be_saved_first(decision):
                return handed, decision
        tries = itertools.count()
        return self.services.persist(lambda tx: self.prepare(tx, claim, repeated=next(tries) > 0), durable=False)

    def prepare_claimed(self, tx: Transaction, claim: Claim) -> Locked:
        """Lock, decide and save in the transaction of the claim: one commit for both."""
        locked, decision = self.prepare(tx, claim)
        return msgspec.structs.replace(locked, decision=decision)

    def prepare(self, tx: Transaction, claim: Claim, *, repeated: bool = False) -> tuple[Locked, Decision]:
        """Lock, decide and save, in one transaction; ``repeated``: an earlier try may have been committed."""
        tx.requests.hold(claim)
        locked = self.lock(tx, claim)
        if repeated and self._has_begun(tx, claim):
            # Only the answer to the commit was lost. The event must not be taken a second time: it would be illegal in
            # the state that it has led to.
            present = locked.node.state
            saved = Transition(source=present, event=claim.request.event, target=present, strict=True)
            return locked, Run(saved, rerun=claim.request.attempt > 1)
        if claim.request.lost:
            request = review_losses(claim.request, tx.members.list(left=True), tx.now)
            locked = msgspec.structs.replace(locked, claim=msgspec.structs.replace(claim, request=request))
        overdue = _is_still_overdue(tx, locked, self.settings.inspector.timeout)
        decision = self.decide(locked, overdue=overdue)
        return self.save(tx, locked, decision), decision

    def lock(self, tx: Transaction, claim: Claim) -> Locked:
        """Lock the node of a claim against all other writers; return it with its newest inspection.

        What the task will begin with is read under the same lock.
        """
        now, request = self.clock.monotonic(), claim.request
        locked, task = tx.nodes.locked_later(request.node), self.tasks.get(request.event)
        read = task.ahead(tx, request) if isinstance(task, ReadsAhead) else None
        node, inspection = locked.get()
        if not isinstance(node.state, State):
            raise UnknownStateError(f"the state {node.state} of its node is unknown to this release")
        return Locked(claim, node, inspection, now, read=read)

    def decide(self, locked: Locked, *, overdue: bool = True) -> Decision:
        """Let the state machine take the event."""
        return decide(locked.node, locked.claim.request, self.delivery, overdue=overdue)

    def save(self, tx: Transaction, locked: Locked, decision: Decision) -> Locked:
        """Save the target state of a strict event before its task runs, and start the clock of a phase.

        Reentrant events are saved after their task, with its results.
        """
        if not isinstance(decision, Run):
            return locked
        claim, inspection = locked.claim, locked.inspection
        waited = _seconds_waited(tx, locked)
        strict = decision.transition.strict
        if strict:
            tx.requests.hold(claim, begun=True)
        # Else it was saved before: by an earlier attempt, or together with the request.
        if strict and not claim.request.begun and decision.transition.target is not locked.node.state:
            node = transition.apply(tx, locked.node, decision.transition, inspection, queued=waited)
            return msgspec.structs.replace(locked, node=node)
        if claim.request.event in CLOCKED and inspection is not None:
            changes = {"clock_since": tx.now} if waited is None else {"clock_since": tx.now, "queued": waited}
            tx.inspections.update(inspection.uuid, **changes)
            return msgspec.structs.replace(locked, inspection=msgspec.structs.replace(inspection, **changes))
        return locked

    def begin_attempt(self, locked: Locked, decision: Decision, observer: AttemptObserver | None = None) -> Attempt:
        """Return what the task works on, and tell the observer that the attempt starts."""
        attempt = Attempt(locked, decision, self.services, bmc=self.drivers.get(locked.node.driver))
        if observer is not None:
            observer.attempt_started(attempt)
        return attempt

    # Requests that cannot be carried out here

    def give_up(self, claim: Claim) -> str:
        """The request's node is unknown: try again later, and consume the request in the end; return what was done."""

        def work(tx: Transaction) -> str:
            if count_attempts(claim.request) < self.settings.worker.max_attempts:
                tx.requests.retry(claim, RETRY_SECONDS)
                return "will try again"
            tx.requests.consume(claim)
            return "gave up"

        return self._unless_lost(work)

    def defer(self, claim: Claim) -> str:
        """Leave the request to a worker of a newer release; return what was done."""

        def work(tx: Transaction) -> str:
            tx.requests.retry(claim, _UNKNOWN_STATE_DELAY, counted=False)
            return "left to a worker of a newer release"

        return self._unless_lost(work)

    def _unless_lost(self, work: Callable[[Transaction], str]) -> str:
        try:
            return self.services.persist(work, durable=False)
        except ClaimLostError:
            return "the request was deleted with its node"

    def _has_begun(self, tx: Transaction, claim: Claim) -> bool:
        """Whether this very attempt has saved its state already."""
        if claim.request.begun:
            return False
        return any(
            request.begun for request in tx.requests.pending(claim.request.node) if request.id == claim.request.id
        )


def _must_be_saved_first(decision: Decision) -> bool:
    """Whether the target state has to be saved before the task runs."""
    return isinstance(decision, Run) and decision.transition.strict and not decision.rerun


def _seconds_waited(tx: Transaction, locked: Locked) -> float | None:
    """Return for how long the inspection has waited for workers, with this request; None if that is known already."""
    request, inspection = locked.claim.request, locked.inspection
    if inspection is None or request.inspection != inspection.uuid or request.attempt > 1:
        return None
    return inspection.queued + max(0.0, tx.now - request.created_at)


def _is_still_overdue(tx: Transaction, locked: Locked, timeout: float) -> bool:
    """Whether a request to time out still applies; True for all other requests."""
    request, inspection = locked.claim.request, locked.inspection
    if request.event is not Event.TIMEOUT or inspection is None:
        return True
    if is_overdue(inspection, tx.now, timeout):
        return True
    if locked.node.state not in WORKED_ON:
        return False
    # The attempt that worked on it may have left the end to this request. If there is no other, it must not be lost.
    others = tx.requests.pending(locked.node.uuid)
    return not any(queued.id != request.id and queued.inspection == request.inspection for queued in others)
