"""The worker's loop: get, lock, decide, save, run, follow, consume or retry; a function each.

Lock, decide and save share one transaction; so do the task's results, the new state, what
follows and the request's end. Whoever dies in between leaves a request that is delivered again.
Source: the HA worker of the HA specification for ironic-inspector.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.archive.reading import Archive
from ferroscope.config.settings import Settings
from ferroscope.domain.decision import Decision, Run, decide
from ferroscope.domain.model import Claim, Inspection, Node, Request, Severity
from ferroscope.domain.outcome import Drop, Fail, Next, Outcome, Retry
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import ACTIVE, Event, Transition
from ferroscope.ports.bmc import Bmc
from ferroscope.ports.clock import Clock, StopFlag
from ferroscope.ports.errors import (
    ClaimLostError,
    ConflictError,
    NotFoundError,
    StoreUnavailableError,
)
from ferroscope.ports.meter import SILENT, Meter
from ferroscope.ports.queue import Queue
from ferroscope.ports.store import Store, Transaction
from ferroscope.worker.attempt import Task, aborted, again, attempt, contradicted, interrupted
from ferroscope.worker.boot import eject_quietly
from ferroscope.worker.context import StoppedError, TaskContext
from ferroscope.worker.power import power_off_quietly
from ferroscope.worker.settle import settle

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class Locked(msgspec.Struct, frozen=True):
    """A node under a claim, as it was when it was locked, and its newest inspection."""

    claim: Claim
    node: Node
    inspection: Inspection | None


class Worker:
    """One thread of the pool. ``sentence`` always says what it did last."""

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
        self.sentence = "has not asked for a request yet"

    def run(self) -> None:
        """Work until the stop flag is set; a fault of the loop itself stops the process.

        What the process held is then free, and a poisonous request ends after its last attempt.
        """
        try:
            while not self.stop.is_set():
                try:
                    self.sentence = self.step()
                except StoreUnavailableError as exc:
                    self.sentence = f"waits for the database: {exc}"
                    _log.warning("the database is unavailable", error=str(exc))
                    self.stop.wait(self.settings.worker.retry_delay)
        except Exception:
            self.stop.set()
            _log.exception("the worker's loop failed; stopping the process")
            raise
        finally:
            self.stop.set()

    def step(self) -> str:
        """Take one request, carry it and whatever follows from it out; return what happened."""
        claim = self.get()
        if claim is None:
            return "found no request that is due"
        said, follow = self.carry_out(claim)
        while follow is not None:
            said, follow = self.carry_out(follow.claim, follow)
        return said

    def carry_out(self, claim: Claim, handed: Locked | None = None) -> tuple[str, Locked | None]:
        """Carry out one claimed request; return what happened and what follows under the same lock."""
        request = claim.request
        what = f"{request.event} of node {request.node}"
        began = self.clock.monotonic()
        try:
            locked, decision = self.prepared(claim, handed)
            context = self.context(locked, decision)
            outcome = self.run_task(context, decision) if isinstance(decision, Run) else self.refuse(context, decision)
            if isinstance(outcome, Fail) and claim.request.event is Event.INSPECT:
                eject_quietly(context)
            follow = self.end(context, decision, outcome)
        except NotFoundError:
            return f"found no node for {what}: {self.give_up(claim)}", None
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
        try:
            return self.persist(lambda tx: self.conclude(tx, context, decision, outcome), durable=durable)
        except ConflictError as exc:
            # Of a node's own unique fields only rules write one: its name.
            reason = Reason.PORT_CONFLICT if exc.field == "address" else Reason.NAME_TAKEN
            retry = again(context, reason, str(exc))
            return self.persist(lambda tx: self.conclude(tx, context, decision, retry), durable=False)

    def prepared(self, claim: Claim, handed: Locked | None) -> tuple[Locked, Decision]:
        """Return what is locked and what to do; what was handed over is locked and saved already."""
        if handed is None or _is_strict(self.decide(handed.node, claim.request)):
            tries = itertools.count()
            return self.persist(lambda tx: self.prepare(tx, claim, repeated=next(tries) > 0), durable=False)
        return handed, self.decide(handed.node, claim.request)

    def prepare(self, tx: Transaction, claim: Claim, *, repeated: bool = False) -> tuple[Locked, Decision]:
        """Lock, decide and save, in one transaction; ``repeated``: an earlier try may have been committed."""
        locked = self.lock(tx, claim)
        if repeated and self._has_begun(tx, claim):
            tx.requests.hold(claim)
            present = locked.node.state
            saved = Transition(source=present, event=claim.request.event, target=present, strict=True)
            return locked, Run(saved, rerun=claim.request.attempt > 1)
        decision = self.decide(locked.node, claim.request)
        return self.save(tx, locked, decision), decision

    def context(self, locked: Locked, decision: Decision) -> TaskContext:
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
        )

    # The seven steps.

    def get(self) -> Claim | None:
        """Claim a request; None when there was none in time or the process shall stop."""
        return self.queue.get(self.member, self.settings.worker.get_timeout, self.stop)

    def lock(self, tx: Transaction, claim: Claim) -> Locked:
        """Lock the claim's node against everybody else's writes; return it with its newest inspection."""
        node = tx.nodes.get(claim.request.node, lock=True)
        inspection = tx.inspections.get(node.inspection) if node.inspection else None
        return Locked(claim, node, inspection)

    def decide(self, node: Node, request: Request) -> Decision:
        """Let the machine take the event."""
        return decide(node, request, self.settings.worker.delivery())

    def save(self, tx: Transaction, locked: Locked, decision: Decision) -> Locked:
        """Make sure that the claim is still mine, and save a strict event's target before its task runs.

        Reentrant events are saved after their task, with its results.
        """
        if not isinstance(decision, Run) or not decision.transition.strict:
            tx.requests.hold(locked.claim)
            return locked
        tx.requests.hold(locked.claim, begun=True)
        if locked.claim.request.begun or decision.transition.target is locked.node.state:
            return locked  # saved before: by an earlier attempt, or with the request
        node = transition.apply(tx, locked.node, decision.transition)
        return msgspec.structs.replace(locked, node=node)

    def run_task(self, context: TaskContext, decision: Run) -> Outcome:
        """Run the task; every failure becomes an outcome."""
        return attempt(self.tasks[context.request.event], context, rerun=decision.rerun)

    def follow(self, tx: Transaction, context: TaskContext, event: Event, pending: Sequence[Request]) -> Claim | None:
        """Put the event that follows on the queue; mine at once, unless others wait for this node."""
        node = context.before
        request = Request(node=node.uuid, event=event, inspection=node.inspection)
        if len(pending) == 1:
            return tx.requests.put(request, instead_of=context.claim)
        tx.requests.consume(context.claim)
        tx.requests.put(request)
        return None

    def refuse(self, context: TaskContext, decision: Drop | Fail) -> Outcome:
        """A request that is not carried out; where it ends an inspection, its machine is powered off."""
        if isinstance(decision, Fail) and context.before.state in ACTIVE:
            try:
                power_off_quietly(context)
            except StoppedError:
                return interrupted()
        return decision

    def retry(self, tx: Transaction, context: TaskContext, outcome: Retry) -> None:
        """Leave the request for later and release the node."""
        tx.requests.retry(context.claim, outcome.after, counted=outcome.counted)
        if outcome.counted:
            detail = {"after": outcome.after}
            context.note("retry", outcome.message, severity=Severity.WARNING, reason=outcome.reason, detail=detail)
        context.save_notes(tx)

    def consume(self, tx: Transaction, claim: Claim) -> None:
        """Take the request off the queue, which releases the node."""
        tx.requests.consume(claim)

    # What the steps are made of.

    def conclude(self, tx: Transaction, context: TaskContext, decision: Decision, outcome: Outcome) -> Locked | None:
        """Commit all that an attempt led to: changes, state, what follows, the request's end."""
        noted = len(context.notes)
        claim = None
        try:
            if isinstance(outcome, Retry):
                self.retry(tx, context, outcome)
                return None
            follows = outcome.event if isinstance(outcome, Next) and outcome.event in self.tasks else None
            finishes = context.request.event is Event.FINISH and not isinstance(outcome, Drop)
            pending = tx.requests.pending(context.before.uuid) if follows or finishes else ()
            if follows and aborted(context, pending):
                outcome = Drop(Reason.ABORTED, "an abort was asked for meanwhile, so its results are discarded")
                follows = None
            if contradicted(context, pending):
                # The other callback's own request ends the inspection, as it does while hooks work.
                outcome = Drop(Reason.CONFLICTING_CALLBACK, "a different callback came meanwhile")
            if follows:
                claim = self.follow(tx, context, follows, pending)
            else:
                self.consume(tx, context.claim)
            node = settle(tx, context, decision, outcome, self.tasks)
            context.save_notes(tx)
        finally:
            del context.notes[noted:]  # the transaction may be run again
        return None if claim is None else Locked(claim, node, context.inspection)

    def give_up(self, claim: Claim) -> str:
        """An unknown node: try again later, in the end consume the request."""

        def work(tx: Transaction) -> str:
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
