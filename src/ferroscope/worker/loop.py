"""How a worker carries out one request. Read it from top to bottom: the methods stand in the order in which they run.

    get       claim a due request                             \
    lock      lock its node against all other writers          | prepare_claimed(): one transaction,
    decide    let the state machine take the event             | which the queue begins with the claim
    save      save the target state of a strict event         /
    run       run the event's task; it commits nothing
    follow    put the next request on the queue, if any       \
    commit    write the results and the new state              | conclude(): one transaction
    consume   take the request off the queue, or retry later  /

A worker may be killed or frozen between any two lines. Before ``conclude`` has committed, the request is still on the
queue and is delivered again as soon as its claim expires; after that it is gone, together with everything that it led
to. Every transaction checks the claim first, so a worker that lost it writes nothing.
Source: the worker of the high-availability specification for ironic-inspector.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.config.options import Settings
from ferroscope.contracts.attached import Attached
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import (
    ClaimLostError,
    ConflictError,
    NotFoundError,
    SecretKeyError,
    StoreUnavailableError,
)
from ferroscope.contracts.images import Images, Unchecked
from ferroscope.contracts.queue import EVERYTHING, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.delivery import Decision, Done, Drop, Fail, Next, Outcome, Retry, Run, decide, is_stale
from ferroscope.core.lanes import Lane, lane_of
from ferroscope.core.losses import counted, deaths, reviewed
from ferroscope.core.model import Claim, Node, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MACHINE, Event, State, Transition
from ferroscope.db.queue import Queue
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.references import SecretReader
from ferroscope.storage.reader import Archive
from ferroscope.worker import undo
from ferroscope.worker.attempt import Attempt, Services
from ferroscope.worker.bmc import BmcObserver
from ferroscope.worker.boot import power_off_quietly, undo_start_quietly
from ferroscope.worker.commit import commit_results, with_deviations
from ferroscope.worker.context import TaskContext
from ferroscope.worker.follow import (
    CLOCKED,
    Locked,
    Place,
    SameThread,
    following_request,
    has_conflicting_callback,
    is_aborted,
    is_still_overdue,
    put_following,
)
from ferroscope.worker.run import Task, clean_up, leave_undone, move, retry_later, run_task

T = TypeVar("T")

# Seconds for which a node is left alone whose state only a newer release knows.
_UNKNOWN_STATE_DELAY: Final = 30.0

_log = structlog.get_logger(__name__)


class UnknownStateError(Exception):
    """The node is in a state that this release does not know."""


class AttemptObserver(Protocol):
    """Learns which attempt a thread is carrying out, and observes its BMC calls."""

    def attempt_started(self, context: TaskContext) -> None: ...

    @property
    def bmc_observer(self) -> BmcObserver | None: ...


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
        reserve: Callable[[Event, Request], Place | None] = lambda _event, _request: SameThread(),
        claim_valid_for: Callable[[float], float] = lambda _confirmed_at: math.inf,
        secrets: SecretReader | None = None,
        attached: Attached | None = None,
        images: Images | None = None,
    ) -> None:
        self.services = Services(
            store=store,
            archive=archive or Archive(store, {}),
            settings=settings,
            clock=clock,
            stop=stop,
            process=process,
            claim_valid_for=claim_valid_for,
            secrets=secrets or SecretReader(),
            attached=attached or Attached(),
            tracer=meter.tracer,
            images=images or Unchecked(),
        )
        self.store, self.settings, self.clock, self.stop = store, settings, clock, stop
        self.queue = queue
        self.tasks = tasks
        self.drivers = drivers
        self.member = member
        self.meter = meter
        self.reserve = reserve

    def step(self) -> str:
        """Take one request, carry out it and what follows from it in this thread; return what happened."""
        timeout = self.settings.worker.get_timeout
        found = self.queue.get_with(self.member, timeout, self.stop, EVERYTHING, self.prepare_claimed)
        if found is None:
            return "no request is due"
        result, follow = self.carry_out(*found)
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
        what = f"{request.event} of node {request.node}"
        began = self.clock.monotonic()
        try:
            locked, decision = self.prepared(claim, handed)
            context = self.context(locked, decision, observer)
            outcome = self.run(context, decision)
            follow = self.concluded(context, decision, outcome)
        except NotFoundError:
            return f"found no node for {what}: {self.give_up(claim)}", None
        except UnknownStateError as exc:
            return f"deferred {what}: {exc}; {self.defer(claim)}", None
        except ClaimLostError:
            self.meter.carried_out(request.event, "lost", self.clock.monotonic() - began)
            return f"lost {what} to another worker", None
        result = type(outcome).__name__.lower()
        if context.trail is not None:
            context.trail.ended(result, str(getattr(outcome, "reason", "")))
        self.meter.carried_out(request.event, result, self.clock.monotonic() - began)
        _log.debug("request carried out", request=request.event, node=request.node, outcome=result)
        return f"carried out {what}: {result}", follow

    # lock, decide, save

    def prepared(self, claim: Claim, handed: Locked | None) -> tuple[Locked, Decision]:
        """Return what is locked and what to do with it."""
        if handed is not None and handed.decision is not None:
            return handed, handed.decision
        if handed is not None:
            decision = self.decide(handed.node, claim.request)
            if not _must_be_saved_first(decision):
                return handed, decision
        tries = itertools.count()
        return self.persist(lambda tx: self.prepare(tx, claim, repeated=next(tries) > 0), durable=False)

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
            request = reviewed(claim.request, tx.members.list(left=True), tx.now)
            locked = msgspec.structs.replace(locked, claim=msgspec.structs.replace(claim, request=request))
        overdue = is_still_overdue(tx, locked, self.settings.inspector.timeout)
        decision = self.decide(locked.node, locked.claim.request, overdue=overdue)
        return self.save(tx, locked, decision), decision

    def lock(self, tx: Transaction, claim: Claim) -> Locked:
        """Lock the node of a claim against all other writers; return it with its newest inspection."""
        now = self.clock.monotonic()
        node, inspection = tx.nodes.locked(claim.request.node)
        if not isinstance(node.state, State):
            raise UnknownStateError(f"the state {node.state} of its node is unknown to this release")
        return Locked(claim, node, inspection, now)

    def decide(self, node: Node, request: Request, *, overdue: bool = True) -> Decision:
        """Let the state machine take the event."""
        return decide(node, request, self.settings.worker.delivery(), overdue=overdue)

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

    # run

    def context(self, locked: Locked, decision: Decision, observer: AttemptObserver | None = None) -> TaskContext:
        """Return what the task works on, and tell the observer that the attempt starts."""
        rerun = isinstance(decision, Run) and decision.rerun
        attempt = Attempt(locked.claim, locked.inspection, self.services, rerun=rerun, confirmed_at=locked.confirmed_at)
        context = TaskContext(
            attempt,
            self.services,
            locked.node,
            locked.inspection,
            bmc=self.drivers.get(locked.node.driver),
            observer=None if observer is None else observer.bmc_observer,
        )
        if observer is not None:
            observer.attempt_started(context)
        return context

    def run(self, context: TaskContext, decision: Decision) -> Outcome:
        """Run the task; a request that is not carried out only cleans up after its inspection."""
        event = context.request.event
        if isinstance(decision, Run) and decision.undone:
            return leave_undone(context, decision.undone, Reason.ATTEMPTS_EXHAUSTED)
        if isinstance(decision, Run):
            outcome = run_task(self.tasks.get(event, move), context)
        elif deaths(context.request) > self.settings.worker.max_attempts:
            return decision  # cleaning up took the worker along, too
        else:
            outcome = decision
            # Refusing it may end an inspection, whose machine is then powered off; but only in the lane that waits for
            # BMCs (see ``following_request``), and not if stored data was processed. A start is undone below.
            ends = context.before.state in MACHINE and lane_of(event) is Lane.BMC and event is not Event.INSPECT
            if isinstance(decision, Fail) and ends:
                outcome = clean_up(context, decision, power_off_quietly)
        if isinstance(outcome, Fail) and event is Event.INSPECT:
            outcome = clean_up(context, outcome, undo_start_quietly)
        return outcome

    # follow, commit, consume

    def concluded(self, context: TaskContext, decision: Decision, outcome: Outcome) -> Locked | None:
        """Commit what the attempt led to; return what follows in this thread.

        The place for what follows is reserved first: inside the transaction it would be too late to wait for one.
        """
        context.journal.begin_writing()
        follows = following_request(context, outcome, self.tasks)
        # A crash of the database may undo a step on the way, which is then repeated; but not data, nor an end, on which
        # others act as soon as they see it.
        durable = bool(context.parts) or (follows is None and _ends(context.request.event, outcome))
        place = None if follows is None else self.reserve(context.request.event, follows)
        kept = None
        try:
            kept = self.persist(
                lambda tx: self.conclude(tx, context, decision, outcome, follows, keep=place is not None),
                durable=durable,
            )
        except ConflictError as exc:
            # Another node took a MAC, or a name that a rule gave to this one, while the task ran: start over.
            reason = Reason.PORT_CONFLICT if exc.field == "address" else Reason.NAME_TAKEN
            retry = retry_later(context, reason, str(exc))
            self.persist(lambda tx: self.conclude(tx, context, decision, retry), durable=False)
        except SecretKeyError as exc:  # a rule set a secret
            retry = retry_later(context, Reason.ENCRYPTION_KEY_MISSING, str(exc))
            self.persist(lambda tx: self.conclude(tx, context, decision, retry), durable=False)
        finally:
            if place is not None and kept is None:
                place.release()
        return kept if place is None or kept is None else place.take(kept)

    def conclude(
        self,
        tx: Transaction,
        context: TaskContext,
        decision: Decision,
        outcome: Outcome,
        follows: Request | None = None,
        *,
        keep: bool = False,
    ) -> Locked | None:
        """Commit all that an attempt led to in one transaction: results, state, what follows, the request's end.

        Return what follows if this worker keeps the claim (``keep``).
        """
        entries = len(context.journal.entries)
        try:
            if isinstance(outcome, Retry):
                self.retry(tx, context, outcome)
                return None
            return self._conclude(tx, context, decision, outcome, follows, keep=keep)
        finally:
            del context.journal.entries[entries:]  # the store may run the transaction again

    def _conclude(
        self,
        tx: Transaction,
        context: TaskContext,
        decision: Decision,
        outcome: Done | Next | Fail | Drop,
        follows: Request | None,
        *,
        keep: bool,
    ) -> Locked | None:
        claim, now = None, self.clock.monotonic()
        # Requests that arrived while the task ran may change what becomes of this one. Where none could, the request is
        # consumed at once, which checks the claim as ``hold`` does and saves a round trip.
        finishing = context.request.event is Event.FINISH and not isinstance(outcome, Drop)
        checks_pending = follows is not None or finishing
        if checks_pending:
            tx.requests.hold(context.attempt.claim)
        else:
            self.consume(tx, context.attempt.claim)
        locked = tx.nodes.locked_later(context.before.uuid)
        # Read under the node's lock, as requests are put under it: one that is being put just now must not be missed.
        pending = tx.requests.pending_later(context.before.uuid).get() if checks_pending else ()
        present = locked.get()
        if is_stale(present[0], context.request):
            # Another inspection was started meanwhile: this one has ended, and must not end that one.
            outcome, follows = Drop(Reason.STALE_REQUEST, "the inspection was replaced meanwhile"), None
        if follows and is_aborted(context, pending):
            outcome = Drop(Reason.ABORTED, "an abort was requested meanwhile; the results are discarded")
            follows = None
        failed = isinstance(outcome, Drop) or (isinstance(outcome, Fail) and follows)
        if not failed and has_conflicting_callback(context, pending):
            # The request of the other callback ends the inspection: nothing of this one remains.
            outcome = Drop(
                Reason.CONFLICTING_CALLBACK, "a different callback arrived meanwhile; the results are discarded"
            )
            follows = None
            present = undo.restore(tx, context.request.payload, present[0]), present[1]
        if follows:
            claim = put_following(tx, context, follows, pending, keep=keep)
        elif checks_pending:
            self.consume(tx, context.attempt.claim)
        if follows and isinstance(outcome, Fail):
            node, _ = present  # the request to ``fail`` ends the inspection, after the machine was powered off
            if (changed := with_deviations(context, node)) is not node:
                node = tx.nodes.update(changed)
        else:
            node = commit_results(tx, context, decision, outcome, self.tasks, present)
        context.save_progress(tx)
        return None if claim is None else Locked(claim, node, context.inspection, now)

    def consume(self, tx: Transaction, claim: Claim) -> None:
        """Take the request off the queue, which releases the node. ``ClaimLostError``."""
        tx.requests.consume(claim)

    def retry(self, tx: Transaction, context: TaskContext, outcome: Retry) -> None:
        """Leave the request on the queue for later and release the node. ``ClaimLostError``."""
        tx.requests.retry(context.attempt.claim, outcome.after, counted=outcome.counted)
        if context.request.event in CLOCKED and context.request.inspection is not None:
            tx.inspections.update(context.request.inspection, clock_since=None)
        if outcome.counted or outcome.reason is Reason.STORE_UNAVAILABLE:
            detail = {"after": outcome.after}
            context.note("retry", outcome.message, severity=Severity.WARNING, reason=outcome.reason, detail=detail)
        context.save_progress(tx)

    # Requests that cannot be carried out here

    def give_up(self, claim: Claim) -> str:
        """The request's node is unknown: try again later, and consume the request in the end; return what was done."""

        def work(tx: Transaction) -> str:
            if counted(claim.request) < self.settings.worker.max_attempts:
                tx.requests.retry(claim, self.settings.worker.retry_delay)
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
            return self.persist(work, durable=False)
        except ClaimLostError:
            return "the request was deleted with its node"

    def persist(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Write, however long the database is away; raise ``StoreUnavailableError`` only if the process is stopping."""
        while True:
            try:
                return self.store.write(work, durable=durable)
            except StoreUnavailableError:
                if self.stop.wait(self.settings.worker.retry_delay):
                    raise

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


def _ends(event: Event, outcome: Outcome) -> bool:
    """Whether the outcome ends an inspection or a command; a start and a dropped request only move on."""
    return isinstance(outcome, Fail) or (isinstance(outcome, Done) and event is not Event.INSPECT)


def _seconds_waited(tx: Transaction, locked: Locked) -> float | None:
    """Return for how long the inspection has waited for workers, with this request; None if that is known already."""
    request, inspection = locked.claim.request, locked.inspection
    if inspection is None or request.inspection != inspection.uuid or request.attempt > 1:
        return None
    return inspection.queued + max(0.0, tx.now - request.created_at)
