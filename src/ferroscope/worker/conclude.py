"""The end of an attempt: one transaction commits all that it led to, or nothing.

    follow    put the next request on the queue, if any
    commit    write the results and the new state: changes of the node and its ports, the data
    consume   take the request off the queue, or retry later

What follows is carried out in this thread, in the other lane, or by any worker. A place in the other lane is reserved
before the transaction that creates the following request. With a place the claim is kept and handed over inside the
process; without one the request waits, unclaimed, on the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from ferroscope import transition
from ferroscope.contracts.errors import ConflictError, SecretKeyError
from ferroscope.core import bmc_access
from ferroscope.core.delivery import Done, Drop, Fail, Next, Outcome, Retry, Run, advance, is_stale
from ferroscope.core.model import HARDWARE_CHANGED, Claim, Inspection, Node, Request, Severity
from ferroscope.core.node import three_way
from ferroscope.core.notification import EventType
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS, MACHINE, Event, Provision, State, Transition
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import expectations
from ferroscope.worker.attempt import Attempt, Journal, Locked
from ferroscope.worker.process import restore
from ferroscope.worker.run import retry_later
from ferroscope.worker.services import Services

# While one of these is carried out, the clock of the inspection's phase is running.
CLOCKED: Final = frozenset({Event.INSPECT, Event.CONTINUE})
# Changes of the hardware that the timeline has in words.
_MAX_TEXTS: Final = 3
# Causes of a retry that is not counted which people can end.
_SHOWN: Final = frozenset({Reason.STORE_UNAVAILABLE, Reason.ENCRYPTION_KEY_MISSING, Reason.BMC_BUSY})


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


def commit_attempt(
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
        retry = retry_later(reason, str(exc))
        services.persist(lambda tx: conclusion.commit(tx, retry), durable=False)
    except SecretKeyError as exc:  # a rule set a secret
        retry = retry_later(Reason.ENCRYPTION_KEY_MISSING, str(exc))
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
            node = restore(tx, request.payload, node)
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
        if outcome.counted or outcome.reason in _SHOWN:
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
    return any(queued.event is Event.ABORT and queued.inspection == request.inspection for queued in pending)


def has_conflicting_callback(request: Request, pending: Sequence[Request]) -> bool:
    """Whether a different callback arrived while one was processed, or while its machine was being powered off."""
    return request.event in (Event.CONTINUE, Event.FINISH) and any(
        queued.event is Event.CONTINUE and queued.inspection == request.inspection and queued.id != request.id
        for queued in pending
    )


def _ends(event: Event, outcome: Outcome) -> bool:
    """Whether the outcome ends an inspection or a command; a start and a dropped request only move on."""
    return isinstance(outcome, Fail) or (isinstance(outcome, Done) and event is not Event.INSPECT)


def commit_results(
    tx: Transaction,
    attempt: Attempt,
    journal: Journal,
    outcome: Done | Next | Fail | Drop,
    with_task: Container[Event],
    present: tuple[Node, Inspection | None],
) -> Node:
    """Write what ``outcome`` means; return the node as it is stored then.

    ``with_task`` are the events that have a task; any other event that follows only moves the state, here and now.
    ``present`` is the node as it is now, locked, and its inspection. ``ConflictError`` if another node has taken a
    port's MAC or the node's name meanwhile.
    """
    node, inspection = present
    if isinstance(outcome, Drop):
        journal.note("dropped", outcome.message, severity=Severity.WARNING, reason=outcome.reason)
        return _commit_drop(tx, attempt, node)
    if isinstance(outcome, Fail):
        return _commit_failure(tx, attempt, journal, node, inspection, outcome)
    if attempt.request.event is Event.DELETE:
        transition.remove_node(tx, node)
        journal.entries.clear()  # the node's timeline was deleted with it
        return node
    had_rows = node.search_digest is not None
    # An operator may have changed the node while the task worked on its copy: only what the task changed is written.
    node = three_way(attempt.before, attempt.node, node)
    if bmc_access.moved_fields(present[0].driver_info, node.driver_info):  # by rules or hooks
        tx.addresses.set_bmc(node.uuid, bmc_access.literal_addresses(node.driver_info))
    _save_results(tx, attempt, node)
    if attempt.index_rows is not None:
        tx.search_index.replace(node.uuid, attempt.index_rows, had=had_rows)
    if attempt.hardware_changes:
        tx.outbox.add(EventType.HARDWARE_CHANGED, node, inspection, attempt.hardware_changes)
        tx.hardware_changed(attempt.hardware_changes)
        _note_changes(tx, attempt, journal)
    moves = [move for move in _moves(attempt, outcome, with_task) if move.target is not node.state]
    for move in moves:
        node = transition.apply(tx, node, move, inspection)
        journal.note(str(node.state), f"the inspection is {node.state}")
    if attempt.request.event in COMMANDS and node.state is not State.ERROR:
        node = msgspec.structs.replace(node, last_error=None)  # as in Ironic: what failed before works now
    if attempt.request.event is Event.VERIFY and node.provision_state is Provision.VERIFYING:
        return transition.rest(tx, node, Provision.MANAGEABLE)
    return node if moves else tx.nodes.update(node)


def _note_changes(tx: Transaction, attempt: Attempt, journal: Journal) -> None:
    """Record on the inspection how many changes of the hardware it has found, and in its timeline which."""
    texts = [change.text for change in attempt.hardware_changes]
    more = f"; {len(texts) - _MAX_TEXTS} more" if len(texts) > _MAX_TEXTS else ""
    journal.note(HARDWARE_CHANGED, "; ".join(texts[:_MAX_TEXTS]) + more)
    if attempt.request.inspection is not None:
        tx.inspections.update(attempt.request.inspection, changes=len(texts))


def _commit_drop(tx: Transaction, attempt: Attempt, node: Node) -> Node:
    """Clear the target power state that a dropped command had promised, unless another command is pending."""
    if attempt.request.event is not Event.SET_POWER or node.target_power_state is None:
        return node
    if any(queued.event is Event.SET_POWER for queued in tx.requests.pending(node.uuid)):
        return node
    return tx.nodes.update(msgspec.structs.replace(node, target_power_state=None))


def _moves(attempt: Attempt, outcome: Done | Next, with_task: Container[Event]) -> list[Transition]:
    # A command does not change the state: an inspection may have started while it ran.
    decision = attempt.decision
    if not isinstance(decision, Run) or attempt.request.event in COMMANDS:
        return []
    moves = [decision.transition]
    if isinstance(outcome, Next) and outcome.event not in with_task:
        moves.append(advance(decision.transition.target, outcome.event))
    return moves


def _commit_failure(
    tx: Transaction, attempt: Attempt, journal: Journal, node: Node, inspection: Inspection | None, outcome: Fail
) -> Node:
    """Move the node to its error state; of what the task changed, only what it observed is kept."""
    node = msgspec.structs.replace(node, power_state=attempt.node.power_state)
    node = with_deviations(attempt, node)
    journal.note("failed", outcome.message, severity=Severity.ERROR, reason=outcome.reason)
    if attempt.request.event is Event.SET_PASSWORD:
        # What the task has proven: which password the BMC accepts.
        proven = three_way(attempt.before, attempt.node, node)
        node = msgspec.structs.replace(node, driver_info=proven.driver_info, internal=proven.internal)
    if attempt.request.event in COMMANDS:
        return transition.fail_command(tx, node, outcome)
    decision = attempt.decision
    if isinstance(decision, Run) and decision.transition.target is State.ERROR:
        return transition.apply(tx, node, decision.transition, inspection, failure=outcome)
    return transition.fail(tx, node, outcome, inspection)


def with_deviations(attempt: Attempt, node: Node) -> Node:
    """Return the node with what the task found to deviate; the same object if that has not changed."""
    return node if attempt.deviations is None else expectations.with_deviations(node, attempt.deviations) or node


def _save_results(tx: Transaction, attempt: Attempt, node: Node) -> None:
    changes = attempt.port_changes
    if changes.removed:
        tx.ports.remove(changes.removed)
    if changes.added:
        tx.ports.add(changes.added)
    for port in changes.updated.values():
        tx.ports.update(port)
    if attempt.parts and node.inspection:
        tx.data.save(node.inspection, node.uuid, attempt.parts)
