"""How a worker carries out one request. Read it from top to bottom: the methods stand in the order in which they run.

    get       claim a due request                             \
    lock      lock its node against all other writers          | prepare_claimed(): one transaction,
    decide    let the state machine take the event             | which the queue begins with the claim
    save      save the target state of a strict event         /
    run       run the event's task; it commits nothing
    follow    put the next request on the queue, if any       \
    commit    write the results and the new state              | commit(): one transaction
    consume   take the request off the queue, or retry later  /

A worker may be killed or frozen between any two lines. Before the last transaction has been committed, the request is
still on the queue and is delivered again as soon as its claim expires; after that it is gone, together with everything
that it led to. Every transaction checks the claim first, so a worker that lost it writes nothing.
Source: the worker of the high-availability specification for ironic-inspector.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog

from ferroscope import transition
from ferroscope.contracts import errors
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.store import EVERYTHING
from ferroscope.core import delivery
from ferroscope.core.delivery import Decision, Done, Drop, Fail, Outcome, Retry, Run
from ferroscope.core.lanes import lane_of
from ferroscope.core.losses import count_attempts, deaths, describe_delivery, review_losses
from ferroscope.core.model import Claim, Request
from ferroscope.core.states import Event, Transition
from ferroscope.db import Queue, Transaction
from ferroscope.worker import results
from ferroscope.worker.attempt import Attempt, Locked
from ferroscope.worker.machine import power_off_quietly, undo_start_quietly
from ferroscope.worker.services import INTERRUPTIONS, RETRY_SECONDS, ReadsAhead, SameThread, Services, Task, outcome_of
from ferroscope.worker.slots import Slot, Slots
from ferroscope.worker.tasks import is_still_overdue
from ferroscope_client.core.obstacles import Lane
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import MACHINE, State
from ferroscope_client.core.values import many

T = TypeVar("T")

# Seconds for which a worker leaves a node alone whose state only a newer release knows.
_UNKNOWN_STATE_DELAY_SECONDS: Final = 30.0

_log = structlog.get_logger(__name__)


class UnknownStateError(Exception):
    """The node is in a state that this release does not know."""


class Worker:
    """Carries out requests. It keeps no state about any of them, so one instance serves all threads of a process.

    ``lanes``: the slots of each lane; without them, one thread does everything.
    """

    def __init__(
        self, services: Services, queue: Queue, tasks: Mapping[Event, Task], drivers: Mapping[str, Bmc]
    ) -> None:
        self.services, self.queue, self.tasks, self.drivers = services, queue, tasks, drivers
        self.lanes: Mapping[Lane, Slots] = {}

    def step(self) -> str:
        """Carry out one request, and what follows from it, in this thread; return what happened."""
        services = self.services
        timeout = services.settings.worker.get_timeout
        claimed = self.queue.get_with(services.member, timeout, services.stop, EVERYTHING, self.prepare_claimed)
        if claimed is None:
            return "no request is due"
        result, follow = self.carry_out(*claimed)
        while follow is not None:
            result, follow = self.carry_out(follow.claim, follow)
        return result

    def carry_out(
        self, claim: Claim, handed: Locked | None = None, slot: Slot | None = None
    ) -> tuple[str, Locked | None]:
        """Carry out a claimed request; return what happened, and what follows in this thread under the same claim.

        ``handed`` is a node that was locked and saved before: with the claim, or by the request from which this one
        follows.
        """
        request, clock, meter = claim.request, self.services.clock, self.services.meter
        task_name = f"{request.event} of node {request.node}"
        began = clock.monotonic()
        try:
            attempt = self.begin_attempt(*self.lock_and_decide(claim, handed), slot)
            outcome = self.run(attempt)
            follow = self.commit(attempt, outcome)
        except errors.NotFoundError:
            return f"found no node for {task_name}: {self.give_up(claim)}", None
        except UnknownStateError as exc:
            return f"deferred {task_name}: {exc}; {self.defer(claim)}", None
        except errors.ClaimLostError:
            meter.record_attempt(request.event, "lost", clock.monotonic() - began)
            return f"lost {task_name} to another worker", None
        result = type(outcome).__name__.lower()
        if attempt.trail is not None:
            attempt.trail.record_end(result, str(getattr(outcome, "reason", "")))
        meter.record_attempt(request.event, result, clock.monotonic() - began)
        _log.debug("request carried out", request=request.event, node=request.node, outcome=result)
        return f"carried out {task_name}: {result}", follow

    # lock, decide, save

    def lock_and_decide(self, claim: Claim, handed: Locked | None) -> tuple[Locked, Decision]:
        if handed is not None:
            decision = handed.decision or self.decide(handed)
            is_saved = handed.decision is not None
            if is_saved or not isinstance(decision, Run) or not decision.transition.strict or decision.rerun:
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
            request = review_losses(claim.request, tx.members.list(left=True), tx.now)
            locked = msgspec.structs.replace(locked, claim=msgspec.structs.replace(claim, request=request))
        decision = self.decide(locked, overdue=is_still_overdue(tx, locked, self.services.settings.inspector.timeout))
        return self.save(tx, locked, decision), decision

    def lock(self, tx: Transaction, claim: Claim) -> Locked:
        """Lock the node of a claim against all other writers; return it with its newest inspection.

        What the task will begin with is read under the same lock.
        """
        now, request = self.services.clock.monotonic(), claim.request
        locked, task = tx.nodes.locked_later(request.node), self.tasks.get(request.event)
        read = task.ahead(tx, request) if isinstance(task, ReadsAhead) else None
        node, inspection = locked.get()
        if not isinstance(node.state, State):
            raise UnknownStateError(f"the state {node.state} of its node is unknown to this release")
        return Locked(claim, node, inspection, now, read=read)

    def decide(self, locked: Locked, *, overdue: bool = True) -> Decision:
        """Let the state machine take the event."""
        return delivery.decide(locked.node, locked.claim.request, self.services.delivery, overdue=overdue)

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
        if claim.request.event in results.CLOCKED and inspection is not None:
            changes = {"clock_since": tx.now} if waited is None else {"clock_since": tx.now, "queued": waited}
            tx.inspections.update(inspection.uuid, **changes)
            return msgspec.structs.replace(locked, inspection=msgspec.structs.replace(inspection, **changes))
        return locked

    def begin_attempt(self, locked: Locked, decision: Decision, slot: Slot | None = None) -> Attempt:
        """Return what the task works on, and tell the slot that it starts."""
        attempt = Attempt(locked, decision, self.services, bmc=self.drivers.get(locked.node.driver))
        if slot is not None:
            slot.begin_attempt(attempt)
        return attempt

    # run

    def run(self, attempt: Attempt) -> Outcome:
        """Run the task of the event; a request that is not carried out only cleans up after its inspection."""
        event, decision = attempt.request.event, attempt.decision
        if isinstance(decision, Run):
            outcome = self.run_task(attempt, decision)
        elif deaths(attempt.request) > attempt.settings.worker.max_attempts:
            return decision  # cleaning up took the worker along, too
        else:
            outcome = decision
            # Refusing it may end an inspection, whose machine is then powered off; but only in the lane that waits for
            # BMCs (see ``results.following_request``), and not if stored data was processed. A start is undone below.
            ends = attempt.before.state in MACHINE and lane_of(event) is Lane.BMC and event is not Event.INSPECT
            if isinstance(decision, Fail) and ends:
                outcome = _clean_up(power_off_quietly, attempt, decision)
        if isinstance(outcome, Fail) and event is Event.INSPECT:
            outcome = _clean_up(undo_start_quietly, attempt, outcome)
        return outcome

    def run_task(self, attempt: Attempt, decision: Run) -> Outcome:
        """Run the task; ``ClaimLostError``, after which nothing may be written: all else becomes an outcome.

        A retry after the last attempt becomes a failure.
        """
        if decision.undone:
            return _leave_undone(attempt, decision.undone, Reason.ATTEMPTS_EXHAUSTED)
        request, task = attempt.request, self.tasks.get(attempt.request.event)
        again = describe_delivery(request) if attempt.rerun else ""
        if again:
            attempt.note("delivered again", again)
        try:
            # An event without a task only moves the state, as a restored row or another release may request.
            outcome = Done() if task is None else task(attempt)
        except INTERRUPTIONS as exc:
            outcome = outcome_of(attempt, exc)
        except errors.ClaimLostError:
            raise
        except Exception as exc:  # noqa: BLE001  # the boundary: a bug in a task must not end the worker's thread
            _log.exception("task failed", request=request.event, node=attempt.node.uuid)
            outcome = Retry(RETRY_SECONDS, Reason.INTERNAL, f"{type(exc).__name__} in {request.event}")
        if not isinstance(outcome, Retry):
            return outcome
        if outcome.reason in (Reason.REGISTRY_UNAVAILABLE, Reason.NODE_LOCKED):  # for hours, with many deliveries
            attempt.journal.entries = [entry for entry in attempt.journal.entries if entry[1].message != again]
        if not outcome.counted:
            return outcome
        following = msgspec.structs.replace(request, attempt=request.attempt + 1)
        ending = delivery.decide_exhausted(attempt.before, following, self.services.delivery)
        if isinstance(ending, Run):
            return _leave_undone(attempt, f"{outcome.message}; {ending.undone}", outcome.reason)
        if isinstance(ending, Fail) and ending.reason is Reason.ATTEMPTS_EXHAUSTED:
            return Fail(outcome.reason, f"{outcome.message}; gave up after {many(count_attempts(request), 'attempt')}")
        return ending or outcome

    # follow, commit, consume

    def commit(self, attempt: Attempt, outcome: Outcome) -> Locked | None:
        """Commit all that the attempt led to, or nothing; return what follows in this thread.

        The place for what follows is reserved first: inside the transaction it would be too late to wait for one. With
        a place the claim is kept, and handed over inside the process. Without one the request waits on the queue.
        """
        attempt.journal.begin_writing()
        follows = results.following_request(attempt, outcome, self.tasks)
        # A crash of the database may undo a step on the way, which is then repeated; but not data, nor an end, on which
        # others act as soon as they see it.
        durable = bool(attempt.parts) or (follows is None and results.is_end(attempt.request.event, outcome))
        place = None if follows is None else self.reserve(attempt.request.event, follows)
        kept = None
        try:
            end = partial(self.end, attempt=attempt, outcome=outcome, follows=follows, keep=place is not None)
            kept = self.persist(end, durable=durable)
        except (errors.ConflictError, errors.SecretKeyError) as exc:
            # Another node took a MAC, or a name that a rule gave to this one, while the task ran; or a rule set a
            # secret, and there is no key. Start over.
            reason = Reason.ENCRYPTION_KEY_MISSING
            if isinstance(exc, errors.ConflictError):
                reason = Reason.PORT_CONFLICT if exc.field == "address" else Reason.NAME_TAKEN
            retry = Retry(RETRY_SECONDS, reason, str(exc))
            self.persist(lambda tx: self.end(tx, attempt, retry), durable=False)
        finally:
            if place is not None and kept is None:
                place.release()
        return kept if place is None or kept is None else place.take(kept)

    def reserve(self, after: Event, request: Request) -> Slot | SameThread | None:
        """Reserve a place for what follows from an event; None if there is none now or the process is stopping."""
        if after is Event.REAPPLY or not self.lanes:  # what follows from it calls no BMC
            return SameThread()
        if self.services.stop.is_set():
            return None
        slot = self.lanes[lane_of(request.event)].enter(request, claimed=False)
        return slot if isinstance(slot, Slot) else None

    def end(
        self, tx: Transaction, attempt: Attempt, outcome: Outcome, follows: Request | None = None, *, keep: bool = False
    ) -> Locked | None:
        """Write results, state, what follows, and the request's end; ``ClaimLostError``, ``ConflictError``.

        Return what follows if this worker keeps the claim (``keep``).
        """
        attempt.journal.rewind()
        if isinstance(outcome, Retry):
            results.put_back(tx, attempt, outcome)
            return None
        request, now = attempt.request, self.services.clock.monotonic()
        # Requests that arrived while the task ran may change what becomes of this one. Where none could, the request is
        # consumed at once, which checks the claim as ``hold`` does and saves a round trip.
        finishing = request.event is Event.FINISH and not isinstance(outcome, Drop)
        checks_pending = follows is not None or finishing
        if checks_pending:
            tx.requests.hold(attempt.claim)
        else:
            tx.requests.consume(attempt.claim)
        locked = tx.nodes.locked_later(request.node)
        if finishing:
            tx.macs.ahead(request.node)
        # Read under the node's lock, as requests are put under it: one that is being put just now must not be missed.
        pending = tx.requests.pending_later(request.node).get() if checks_pending else ()
        node, inspection = locked.get()
        if (drop := results.find_reason_to_drop(node, request, outcome, follows, pending)) is not None:
            outcome, follows = drop, None
            if drop.reason is Reason.CONFLICTING_CALLBACK:  # nothing of this one remains
                node = results.restore_node(tx, request.payload, node)
        claim = None
        if follows:
            claim = results.put_following(tx, attempt.claim, follows, pending, keep=keep)
        elif checks_pending:
            tx.requests.consume(attempt.claim)
        if follows and isinstance(outcome, Fail):
            # The request to ``fail`` ends the inspection, after the machine was powered off.
            if (changed := results.with_deviations(attempt, node)) is not node:
                node = tx.nodes.update(changed)
        else:
            node = results.write_outcome(tx, attempt, outcome, self.tasks, (node, inspection))
        attempt.journal.write(tx)
        return None if claim is None else Locked(claim, node, attempt.inspection, now)

    def persist(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Write, however long the database is away; raise ``StoreError`` only if the process is stopping.

        It repeats ``work`` after an unknown outcome, too: under its claim, ``work`` sees what was committed before.
        """
        while True:
            try:
                return self.services.store.write(work, durable=durable)
            except errors.StoreError:
                if self.services.stop.wait(RETRY_SECONDS):
                    raise

    # Requests that cannot be carried out here

    def give_up(self, claim: Claim) -> str:
        """The request's node is unknown: try again later, and consume the request in the end; return what was done."""
        if count_attempts(claim.request) < self.services.settings.worker.max_attempts:
            return self._unless_lost(lambda tx: tx.requests.retry(claim, RETRY_SECONDS), "will try again")
        return self._unless_lost(lambda tx: tx.requests.consume(claim), "gave up")

    def defer(self, claim: Claim) -> str:
        """Leave the request to a worker of a newer release; return what was done."""
        delay = _UNKNOWN_STATE_DELAY_SECONDS
        done = "left to a worker of a newer release"
        return self._unless_lost(lambda tx: tx.requests.retry(claim, delay, counted=False), done)

    def _unless_lost(self, work: Callable[[Transaction], object], done: str) -> str:
        try:
            self.persist(work, durable=False)
        except errors.ClaimLostError:
            return "the request was deleted with its node"
        return done

    def _has_begun(self, tx: Transaction, claim: Claim) -> bool:
        """Whether this very attempt has saved its state already."""
        pending = () if claim.request.begun else tx.requests.pending(claim.request.node)
        return any(request.begun for request in pending if request.id == claim.request.id)


def _seconds_waited(tx: Transaction, locked: Locked) -> float | None:
    """Return for how long the inspection has waited for workers, with this request; None if it is stored already."""
    request, inspection = locked.claim.request, locked.inspection
    if inspection is None or request.inspection != inspection.uuid or request.attempt > 1:
        return None
    return inspection.queued + max(0.0, tx.now - request.created_at)


def _clean_up(action: Callable[[Attempt], None], attempt: Attempt, outcome: Outcome) -> Outcome:
    """Run ``action``, which talks to the BMC after the task; return ``outcome``, or what interrupted the action."""
    try:
        action(attempt)
    except INTERRUPTIONS as exc:  # else the claim would be kept although no thread carries it out
        return outcome_of(attempt, exc)
    return outcome


def _leave_undone(attempt: Attempt, message: str, reason: Reason) -> Done:
    """Take the transition although its task did not succeed: what was processed is kept, and the rest is recorded."""
    attempt.warn("not carried out", message, reason=reason)
    return Done()
