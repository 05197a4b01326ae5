"""What a worker does with a request: get, lock, decide, save, run, follow, consume or retry; a function each.

Lock, decide and save share one transaction; so do the task's results, the new state, what
follows and the request's end. Whoever dies in between leaves a request that is delivered again.
Source: the HA worker of the HA specification for ironic-inspector.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import ClaimLostError, ConflictError, NotFoundError, StoreUnavailableError
from ferroscope.contracts.later import Later
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Clock, Queue, StopFlag
from ferroscope.contracts.store import Store, Transaction
from ferroscope.core.delivery import Decision, Drop, Fail, Outcome, Retry, Run, decide
from ferroscope.core.lanes import Lane, lane_of
from ferroscope.core.model import Claim, Node, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MACHINE, Event, State, Transition
from ferroscope.storage.reader import Archive
from ferroscope.worker.bmc_calls import Watch
from ferroscope.worker.boot import eject_quietly, power_off_quietly
from ferroscope.worker.commit import Task, aborted, again, attempt, commit_results, contradicted, tidied
from ferroscope.worker.context import TaskContext
from ferroscope.worker.onward import (
    CLOCKED,
    Here,
    Locked,
    Onward,
    Started,
    UnknownStateError,
    follow,
    still_overdue,
    what_follows,
)

T = TypeVar("T")

# Seconds for which a node is left alone whose state only a newer release knows.
_LEFT_ALONE: Final = 30.0

_log = structlog.get_logger(__name__)


class Worker:
    """Carries requests out; it has no state of its own, so one serves all threads of a process.

    ``reserve`` returns a place for what follows from an event, None where there is none now: then it waits
    on the queue for whoever is next. ``sure``: for how many seconds a claim is sure to be this member's that was
    confirmed at that time of the monotonic clock.
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
        reserve: Callable[[Event, Request], Onward | None] = lambda _event, _request: Here(),
        sure: Callable[[float], float] = lambda _confirmed_at: math.inf,
    ) -> None:
        self.store = store
        self.archive = archive
        self.queue = queue
        self.tasks = tasks
        self.drivers = drivers
        self.settings = settings
        self.clock = clock
        self.stop = stop
        self.member = member
        self.process = process
        self.meter = meter
        self.reserve = reserve
        self.sure = sure

    def step(self) -> str:
        """Take one request, carry it and whatever follows from it out; return what happened."""
        claim = self.get()
        if claim is None:
            return "found no request that is due"
        said, follow = self.carry_out(claim)
        while follow is not None:
            said, follow = self.carry_out(follow.claim, follow)
        return said

    def carry_out(
        self, claim: Claim, handed: Locked | None = None, started: Started | None = None
    ) -> tuple[str, Locked | None]:
        """Carry out one claimed request; return what happened and what follows here under the same lock."""
        request = claim.request
        what = f"{request.event} of node {request.node}"
        began = self.clock.monotonic()
        try:
            locked, decision = self.prepared(claim, handed)
            context = self.context(locked, decision, None if started is None else started.watch)
            if started is not None:
                started.carries(context)
            outcome = self.run_task(context, decision) if isinstance(decision, Run) else self.refuse(context, decision)
            if isinstance(outcome, Fail) and claim.request.event is Event.INSPECT:
                outcome = tidied(context, outcome, eject_quietly)
            follow = self.end(context, decision, outcome)
        except NotFoundError:
            return f"found no node for {what}: {self.give_up(claim)}", None
        except UnknownStateError as exc:
            return f"left {what} alone: {exc}; {self.give_up(claim, _LEFT_ALONE)}", None
        except ClaimLostError:
            self.meter.carried_out(request.event, "lost", self.clock.monotonic() - began)
            return f"lost {what} to another worker", None
        said = type(outcome).__name__.lower()
        self.meter.carried_out(request.event, said, self.clock.monotonic() - began)
        _log.debug("request carried out", request=request.event, node=request.node, outcome=said)
        return f"carried out {what}: {said}", follow

    def end(self, context: TaskContext, decision: Decision, outcome: Outcome) -> Locked | None:
        """Commit what the attempt led to; a MAC or a name that was taken meanwhile makes it start over."""
        # Losing the record of a mere move to a power failure only repeats it; data must not be lost.
        durable = bool(context.parts)
        context.began_at = self.clock.monotonic()
        follows = what_follows(context, outcome, self.tasks)
        onward = None if follows is None else self.reserve(context.request.event, follows)
        kept = None
        try:
            kept = self.persist(
                lambda tx: self.conclude(tx, context, decision, outcome, follows, keep=onward is not None),
                durable=durable,
            )
        except ConflictError as exc:
            # Of a node's own unique fields only rules write one: its name.
            reason = Reason.PORT_CONFLICT if exc.field == "address" else Reason.NAME_TAKEN
            retry = again(context, reason, str(exc))
            self.persist(lambda tx: self.conclude(tx, context, decision, retry), durable=False)
        finally:
            if onward is not None and kept is None:
                onward.release()
        return kept if onward is None or kept is None else onward.take(kept)

    def prepared(self, claim: Claim, handed: Locked | None) -> tuple[Locked, Decision]:
        """Return what is locked and what to do; what was handed over is locked and saved already."""
        if handed is None or _is_strict(self.decide(handed.node, claim.request)):
            tries = itertools.count()
            return self.persist(lambda tx: self.prepare(tx, claim, repeated=next(tries) > 0), durable=False)
        return handed, self.decide(handed.node, claim.request)

    def prepare(self, tx: Transaction, claim: Claim, *, repeated: bool = False) -> tuple[Locked, Decision]:
        """Lock, decide and save, in one transaction; ``repeated``: an earlier try may have been committed."""
        tx.requests.hold(claim)
        locked = self.lock(tx, claim)
        if repeated and self._has_begun(tx, claim):
            present = locked.node.state
            saved = Transition(source=present, event=claim.request.event, target=present, strict=True)
            return locked, Run(saved, rerun=claim.request.attempt > 1)
        decision = self.decide(
            locked.node, claim.request, overdue=still_overdue(tx, locked, self.settings.inspector.timeout)
        )
        return self.save(tx, locked, decision), decision

    def context(self, locked: Locked, decision: Decision, watch: Watch | None = None) -> TaskContext:
        """Return what the task works on."""
        return TaskContext(
            claim=locked.claim,
            node=locked.node,
            inspection=locked.inspection,
            rerun=isinstance(decision, Run) and decision.rerun,
            store=self.store,
            bmc=self.drivers.get(locked.node.driver),
            settings=self.settings,
            clock=self.clock,
            stop=self.stop,
            process=self.process,
            archive=self.archive,
            watch=watch,
            confirmed_at=locked.confirmed_at,
            sure=self.sure,
        )

    # The seven steps.

    def get(self) -> Claim | None:
        """Claim a request; None when there was none in time or the process shall stop."""
        return self.queue.get(self.member, self.settings.worker.get_timeout, self.stop)

    def lock(self, tx: Transaction, claim: Claim) -> Locked:
        """Lock the claim's node against everybody else's writes; return it with its newest inspection."""
        now = self.clock.monotonic()
        node, inspection = tx.nodes.locked(claim.request.node)
        if not isinstance(node.state, State):
            raise UnknownStateError(f"its node's state {node.state} is that of a newer release")
        return Locked(claim, node, inspection, now)

    def decide(self, node: Node, request: Request, *, overdue: bool = True) -> Decision:
        """Let the machine take the event."""
        return decide(node, request, self.settings.worker.delivery(), overdue=overdue)

    def save(self, tx: Transaction, locked: Locked, decision: Decision) -> Locked:
        """Save a strict event's target before its task runs.

        Reentrant events are saved after their task, with its results.
        """
        claim, queued = locked.claim, _queued(tx, locked)
        strict = isinstance(decision, Run) and decision.transition.strict
        if strict:
            tx.requests.hold(claim, begun=True)
        if not isinstance(decision, Run):
            return locked
        # Else it was saved before: by an earlier attempt, or with the request.
        if strict and not claim.request.begun and decision.transition.target is not locked.node.state:
            node = transition.apply(tx, locked.node, decision.transition, locked.inspection, queued=queued)
            return msgspec.structs.replace(locked, node=node)
        if claim.request.event in CLOCKED and locked.inspection is not None:
            changes = {"clock_since": tx.now} if queued is None else {"clock_since": tx.now, "queued": queued}
            tx.inspections.update(locked.inspection.uuid, **changes)
            clocked = msgspec.structs.replace(locked.inspection, **changes)
            return msgspec.structs.replace(locked, inspection=clocked)
        return locked

    def run_task(self, context: TaskContext, decision: Run) -> Outcome:
        """Run the task; every failure becomes an outcome."""
        return attempt(self.tasks[context.request.event], context, rerun=decision.rerun)

    def refuse(self, context: TaskContext, decision: Drop | Fail) -> Outcome:
        """A request that is not carried out; where it ends an inspection, its machine is powered off.

        Not by who computes (see ``onward.what_follows``), and not where stored data was processed.
        """
        mine = context.before.state in MACHINE
        if isinstance(decision, Fail) and mine and lane_of(context.request.event) is Lane.BMC:
            return tidied(context, decision, power_off_quietly)
        return decision

    def retry(self, tx: Transaction, context: TaskContext, outcome: Retry) -> None:
        """Leave the request for later and release the node."""
        tx.requests.retry(context.claim, outcome.after, counted=outcome.counted)
        if context.request.event in CLOCKED and context.request.inspection is not None:
            tx.inspections.update(context.request.inspection, clock_since=None)
        if outcome.counted:
            detail = {"after": outcome.after}
            context.note("retry", outcome.message, severity=Severity.WARNING, reason=outcome.reason, detail=detail)
        context.save_notes(tx)

    def consume(self, tx: Transaction, claim: Claim) -> None:
        """Take the request off the queue, which releases the node."""
        tx.requests.consume(claim)

    # What the steps are made of.

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
        """Commit all that an attempt led to: changes, state, what follows, the request's end."""
        noted = len(context.notes)
        claim, now = None, self.clock.monotonic()
        try:
            if isinstance(outcome, Retry):
                self.retry(tx, context, outcome)
                return None
            finishes = context.request.event is Event.FINISH and not isinstance(outcome, Drop)
            looked = follows is not None or finishes
            if looked:  # what else is asked of the node decides how this request ends
                tx.requests.hold(context.claim)
                asked = tx.requests.pending_later(context.before.uuid)
            else:
                self.consume(tx, context.claim)
                asked = Later[Sequence[Request]](tuple)
            present = tx.nodes.locked(context.before.uuid)
            pending = asked.get()
            if follows and aborted(context, pending):
                outcome = Drop(Reason.ABORTED, "an abort was asked for meanwhile, so its results are discarded")
                follows = None
            if contradicted(context, pending):
                # The other callback's own request ends the inspection, as it does while hooks work.
                outcome = Drop(Reason.CONFLICTING_CALLBACK, "a different callback came meanwhile")
            if follows:
                claim = follow(tx, context, follows, pending, keep=keep)
            elif looked:
                self.consume(tx, context.claim)
            if follows and isinstance(outcome, Fail):
                node, _ = present
            else:
                node = commit_results(tx, context, decision, outcome, self.tasks, present)
            context.save_notes(tx)
        finally:
            del context.notes[noted:]  # the transaction may be run again
        return None if claim is None else Locked(claim, node, context.inspection, now)

    def give_up(self, claim: Claim, leave_for: float = 0.0) -> str:
        """An unknown node: try again later, in the end consume the request; or leave it for so many seconds."""

        def work(tx: Transaction) -> str:
            if leave_for:
                tx.requests.retry(claim, leave_for, counted=False)
                return "it is for a newer release"
            if claim.request.attempt < self.settings.worker.max_attempts:
                tx.requests.retry(claim, self.settings.worker.retry_delay)
                return "will look again"
            tx.requests.consume(claim)
            return "gave up"

        try:
            return self.persist(work, durable=False)
        except ClaimLostError:
            return "its requests went with it"

    def persist(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Write, however long the database is away; raise only when the process shall stop."""
        while True:
            try:
                return self.store.write(work, durable=durable)
            except StoreUnavailableError:
                if self.stop.wait(self.settings.worker.retry_delay):
                    raise

    def _has_begun(self, tx: Transaction, claim: Claim) -> bool:
        """Whether this very attempt has saved its state already, and only the answer to that was lost."""
        if claim.request.begun:
            return False
        return any(
            request.begun for request in tx.requests.pending(claim.request.node) if request.id == claim.request.id
        )


def _is_strict(decision: Decision) -> bool:
    """Whether the target state has to be saved before the task runs."""
    return isinstance(decision, Run) and decision.transition.strict and not decision.rerun


def _queued(tx: Transaction, locked: Locked) -> float | None:
    """Return for how long the inspection has waited for workers, with this request's wait; None where that is old."""
    request, inspection = locked.claim.request, locked.inspection
    if inspection is None or request.inspection != inspection.uuid or request.attempt > 1:
        return None
    return inspection.queued + max(0.0, tx.now - request.created_at)
