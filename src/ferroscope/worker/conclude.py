"""The end of an attempt: one transaction commits all that it led to, or nothing.

    follow    put the next request on the queue, if any
    commit    write the results and the new state
    consume   take the request off the queue, or retry later

What follows is carried out in this thread, in the other lane, or by any worker. A place in the other lane is reserved
before the transaction that creates the following request. With a place the claim is kept and handed over inside the
process; without one the request waits, unclaimed, on the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final, Protocol

from ferroscope import transition
from ferroscope.contracts.errors import ConflictError, SecretKeyError
from ferroscope.core.delivery import Done, Drop, Fail, Next, Outcome, Retry, is_stale
from ferroscope.core.model import Claim, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MACHINE, Event
from ferroscope.db.transaction import Transaction
from ferroscope.worker import undo
from ferroscope.worker.attempt import Attempt, Locked
from ferroscope.worker.commit import commit_results, with_deviations
from ferroscope.worker.journal import Journal
from ferroscope.worker.run import retry_later
from ferroscope.worker.services import Services

# While one of these is carried out, the clock of the inspection's phase is running.
CLOCKED: Final = frozenset({Event.INSPECT, Event.CONTINUE})


class Place(Protocol):
    """A reserved place for the request that follows."""

    def take(self, locked: Locked) -> Locked | None:
        """Hand ``locked`` over; return it if the caller has to carry it out itself."""

    def release(self) -> None:
        """Give the place up: nothing follows after all."""


class SameThread:
    """The thread that carried out a request carries out the following one, too."""

    def take(self, locked: Locked) -> Locked | None:
        return locked

    def release(self) -> None: ...


# Returns a place for the request that follows from an event; None if there is none now.
Reserve = Callable[[Event, Request], Place | None]


def concluded(
    attempt: Attempt,
    journal: Journal,
    services: Services,
    outcome: Outcome,
    tasks: Container[Event],
    reserve: Reserve,
) -> Locked | None:
    """Commit what the attempt led to; return what follows in this thread.

    The place for what follows is reserved first: inside the transaction it would be too late to wait for one.
    """
    conclusion = Conclusion(attempt, journal, services, tasks)
    journal.begin_writing()
    follows = following(attempt, outcome, tasks)
    # A crash of the database may undo a step on the way, which is then repeated; but not data, nor an end, on which
    # others act as soon as they see it.
    durable = bool(attempt.parts) or (follows is None and _ends(attempt.request.event, outcome))
    place = None if follows is None else reserve(attempt.request.event, follows)
    kept = None
    try:
        commit = partial(conclusion.commit, outcome=outcome, follows=follows, keep=place is not None)
        kept = services.persist(commit, durable=durable)
    except ConflictError as exc:
        # Another node took a MAC, or a name that a rule gave to this one, while the task ran: start over.
        reason = Reason.PORT_CONFLICT if exc.field == "address" else Reason.NAME_TAKEN
        retry = retry_later(services, reason, str(exc))
        services.persist(lambda tx: conclusion.commit(tx, retry), durable=False)
    except SecretKeyError as exc:  # a rule set a secret
        retry = retry_later(services, Reason.ENCRYPTION_KEY_MISSING, str(exc))
        services.persist(lambda tx: conclusion.commit(tx, retry), durable=False)
    finally:
        if place is not None and kept is None:
            place.release()
    return kept if place is None or kept is None else place.take(kept)


class Conclusion:
    """The transaction that ends an attempt; ``tasks`` are the events that have one."""

    def __init__(self, attempt: Attempt, journal: Journal, services: Services, tasks: Container[Event]) -> None:
        self._attempt, self._journal, self._services, self._tasks = attempt, journal, services, tasks

    def commit(
        self, tx: Transaction, outcome: Outcome, follows: Request | None = None, *, keep: bool = False
    ) -> Locked | None:
        """Commit results, state, what follows, and the request's end; ``ClaimLostError``.

        Return what follows if this worker keeps the claim (``keep``).
        """
        entries = len(self._journal.entries)
        try:
            if isinstance(outcome, Retry):
                self._retry(tx, outcome)
                return None
            return self._end(tx, outcome, follows, keep=keep)
        finally:
            del self._journal.entries[entries:]  # the store may run the transaction again

    def _end(
        self, tx: Transaction, outcome: Done | Next | Fail | Drop, follows: Request | None, *, keep: bool
    ) -> Locked | None:
        attempt, request = self._attempt, self._attempt.request
        claim, now = None, self._services.clock.monotonic()
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
        if is_stale(node, request):
            # Another inspection was started meanwhile: this one has ended, and must not end that one.
            outcome, follows = Drop(Reason.STALE_REQUEST, "the inspection was replaced meanwhile"), None
        if follows and is_aborted(request, pending):
            outcome = Drop(Reason.ABORTED, "an abort was requested meanwhile; the results are discarded")
            follows = None
        failed = isinstance(outcome, Drop) or (isinstance(outcome, Fail) and follows)
        if not failed and has_conflicting_callback(request, pending):
            # The request of the other callback ends the inspection: nothing of this one remains.
            outcome = Drop(
                Reason.CONFLICTING_CALLBACK, "a different callback arrived meanwhile; the results are discarded"
            )
            follows = None
            node = undo.restore(tx, request.payload, node)
        if follows:
            claim = put_following(tx, attempt.claim, follows, pending, keep=keep)
        elif checks_pending:
            tx.requests.consume(attempt.claim)
        if follows and isinstance(outcome, Fail):
            # The request to ``fail`` ends the inspection, after the machine was powered off.
            if (changed := with_deviations(attempt, node)) is not node:
                node = tx.nodes.update(changed)
        else:
            node = commit_results(tx, attempt, self._journal, outcome, self._tasks, (node, inspection))
        self._journal.write(tx)
        return None if claim is None else Locked(claim, node, attempt.inspection, now)

    def _retry(self, tx: Transaction, outcome: Retry) -> None:
        """Leave the request on the queue for later and release the node."""
        request = self._attempt.request
        tx.requests.retry(self._attempt.claim, outcome.after, counted=outcome.counted)
        if request.event in CLOCKED and request.inspection is not None:
            tx.inspections.update(request.inspection, clock_since=None)
        if outcome.counted or outcome.reason is Reason.STORE_UNAVAILABLE:
            detail = {"after": outcome.after}
            self._journal.note(
                "retry", outcome.message, severity=Severity.WARNING, reason=outcome.reason, detail=detail
            )
        self._journal.write(tx)


def following(attempt: Attempt, outcome: Outcome, with_task: Container[Event]) -> Request | None:
    """Return the request that follows from an outcome, if any.

    A failed callback leaves the machine powered on, even if its workers all died before they saved the state: a request
    to ``fail`` powers it off in the lane that waits for BMCs.
    """
    if isinstance(outcome, Next) and outcome.event in with_task:
        return transition.request_for(attempt.before, outcome.event, outcome.payload)
    is_callback = attempt.request.event is Event.CONTINUE and attempt.before.state in MACHINE
    if isinstance(outcome, Fail) and is_callback:
        payload = {"reason": str(outcome.reason), "message": outcome.message}
        return transition.request_for(attempt.before, Event.FAIL, payload)
    return None


def put_following(
    tx: Transaction, claim: Claim, request: Request, pending: Sequence[Request], *, keep: bool
) -> Claim | None:
    """Put the following request on the queue instead of the present one; return its claim if this worker keeps it.

    It is kept if there is a place for it (``keep``) and no other request waits for the node. A ``fail`` always takes
    the place of the present request: nothing that waits may come in between. The inspection's clock stops here: its
    end is decided, or it waits for us.
    """
    if request.inspection is not None:
        tx.inspections.update(request.inspection, clock_since=None)
    failing = request.event is Event.FAIL
    if keep and (failing or len(pending) == 1):
        return tx.requests.put(request, instead_of=claim)
    if failing and (new := tx.requests.put(request, instead_of=claim)) is not None:
        tx.requests.retry(new, 0.0, counted=False)
        return None
    tx.requests.consume(claim)
    tx.requests.put(request)
    return None


def is_aborted(request: Request, pending: Sequence[Request]) -> bool:
    """Whether an abort was requested for the inspection whose data has just been processed."""
    if request.event not in (Event.CONTINUE, Event.REAPPLY):
        return False
    return any(other.event is Event.ABORT and other.inspection == request.inspection for other in pending)


def has_conflicting_callback(request: Request, pending: Sequence[Request]) -> bool:
    """Whether a different callback arrived while one was processed, or while its machine was being powered off."""
    return request.event in (Event.CONTINUE, Event.FINISH) and any(
        other.event is Event.CONTINUE and other.inspection == request.inspection and other.id != request.id
        for other in pending
    )


def _ends(event: Event, outcome: Outcome) -> bool:
    """Whether the outcome ends an inspection or a command; a start and a dropped request only move on."""
    return isinstance(outcome, Fail) or (isinstance(outcome, Done) and event is not Event.INSPECT)
