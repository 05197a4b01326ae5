"""What an attempt led to, written down: the node's and its ports' changes, the data, the state.

Called inside the transaction that also ends the request, so it happens once or not at all. It
changes nothing outside and decides nothing: the outcome says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import msgspec
import structlog

from ferroscope import transition
from ferroscope.contracts.errors import BmcError, ClaimLostError, StoreUnavailableError
from ferroscope.contracts.store import Transaction
from ferroscope.core.delivery import Decision, Done, Drop, Fail, Next, Outcome, Retry, Run, advance
from ferroscope.core.model import Inspection, Node, Request, Severity
from ferroscope.core.node import three_way
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS, Event, Provision, State, Transition
from ferroscope.worker.context import StoppedError, SupersededError, TaskContext


def commit_results(
    tx: Transaction,
    context: TaskContext,
    decision: Decision,
    outcome: Done | Next | Fail | Drop,
    with_task: Container[Event],
    present: tuple[Node, Inspection | None],
) -> Node:
    """Write down what ``outcome`` means and return the node as it is stored then.

    ``with_task`` are the events that have a task of their own; any other that follows only moves
    the state, here and now. ``present`` is the node as it is now, locked, and its inspection.
    ``ConflictError`` where a port's MAC was taken meanwhile.
    """
    node, inspection = present
    if isinstance(outcome, Drop):
        context.note("dropped", outcome.message, severity=Severity.WARNING, reason=outcome.reason)
        return _settle_drop(tx, context, node)
    if isinstance(outcome, Fail):
        return _settle_failure(tx, context, node, inspection, decision, outcome)
    if context.request.event is Event.DELETE:
        tx.nodes.remove(node.uuid)
        context.notes.clear()  # its journal went with it
        return node
    had_rows = node.search_digest is not None
    node = three_way(context.before, context.node, node)
    _save_results(tx, context, node)
    if context.index_rows is not None:
        tx.search_index.replace(node.uuid, context.index_rows, had=had_rows)
    moves = [move for move in _moves(context, decision, outcome, with_task) if move.target is not node.state]
    for move in moves:
        node = transition.apply(tx, node, move, inspection)
        context.note(str(node.state), f"the inspection is {node.state}")
    if context.request.event is Event.VERIFY and node.provision_state is Provision.VERIFYING:
        return transition.rest(tx, node, Provision.MANAGEABLE)
    return node if moves else tx.nodes.update(node)


def _settle_drop(tx: Transaction, context: TaskContext, node: Node) -> Node:
    """Nobody will bring about the power state that a dropped command promised, unless another one does."""
    if context.request.event is not Event.SET_POWER or node.target_power_state is None:
        return node
    if any(other.event is Event.SET_POWER for other in tx.requests.pending(node.uuid)):
        return node
    return tx.nodes.update(msgspec.structs.replace(node, target_power_state=None))


def _moves(
    context: TaskContext, decision: Decision, outcome: Done | Next, with_task: Container[Event]
) -> list[Transition]:
    # A command leaves the state alone: an inspection may have been started while it ran.
    if not isinstance(decision, Run) or context.request.event in COMMANDS:
        return []
    moves = [decision.transition]
    if isinstance(outcome, Next) and outcome.event not in with_task:
        moves.append(advance(decision.transition.target, outcome.event))
    return moves


def _settle_failure(
    tx: Transaction,
    context: TaskContext,
    node: Node,
    inspection: Inspection | None,
    decision: Decision,
    outcome: Fail,
) -> Node:
    """A failed attempt changes nothing on the node but its state, the reason, and its real power state."""
    node = msgspec.structs.replace(node, power_state=context.node.power_state)
    context.note("failed", outcome.message, severity=Severity.ERROR, reason=outcome.reason)
    if context.request.event in COMMANDS:
        return transition.fail_command(tx, node, outcome)
    if isinstance(decision, Run) and decision.transition.target is State.ERROR:
        return transition.apply(tx, node, decision.transition, inspection, failure=outcome)
    return transition.fail(tx, node, outcome, inspection)


def _save_results(tx: Transaction, context: TaskContext, node: Node) -> None:
    changes = context.port_changes
    if changes.removed:
        tx.ports.remove(changes.removed)
    if changes.added:
        tx.ports.add(changes.added)
    for port in changes.updated.values():
        tx.ports.update(port)
    if context.parts and node.inspection:
        tx.data.save(node.inspection, node.uuid, context.parts)


# One attempt of one request: whatever its task does, what comes of it is an outcome.
#
# Only a claim that was lost goes on as an error: then nothing may be written any more. Nothing is
# committed here; ``loop`` does that with the outcome.

Task = Callable[[TaskContext], Outcome]

_log = structlog.get_logger(__name__)


def attempt(task: Task, context: TaskContext, *, rerun: bool) -> Outcome:
    """Run the task; ``ClaimLostError``. What was the last attempt and would be tried again is a failure."""
    if rerun:
        context.note("delivered again", f"attempt {context.request.attempt} of {context.request.event}")
    outcome = _run(task, context)
    if isinstance(outcome, Retry) and outcome.counted and _is_last(context):
        return Fail(outcome.reason, f"{outcome.message}; gave up after {context.request.attempt} attempts")
    return outcome


def again(context: TaskContext, reason: Reason, message: str) -> Retry:
    """Return that the request is to be tried again, after the usual while."""
    return Retry(context.settings.worker.retry_delay, reason, message)


def later(context: TaskContext, error: BmcError) -> Retry:
    """Return that the BMC is to be asked again: twice as late with each attempt, and not before it is left alone."""
    pause = context.settings.worker.retry_delay * 2.0 ** (context.request.attempt - 1)
    return Retry(max(pause, context.watch.pause()), error.reason, str(error))


def interrupted() -> Retry:
    """Return that the process was asked to stop: another one goes on at once, and no attempt is counted."""
    return Retry(0.0, Reason.INTERRUPTED, "the worker was asked to stop", counted=False)


def without_store(context: TaskContext, error: StoreUnavailableError) -> Retry:
    """Return that it goes on when the database is back: no fault of the inspection's, whose time-out is its end."""
    _log.warning("the database is unavailable to a task", request=context.request.event, error=str(error))
    delay = context.settings.worker.retry_delay
    return Retry(delay, Reason.STORE_UNAVAILABLE, str(error), counted=False)


def tidied(context: TaskContext, outcome: Outcome, tidy: Callable[[TaskContext], None]) -> Outcome:
    """Return ``outcome`` after ``tidy``, which speaks to the BMC; else what becomes of the request.

    It runs outside of a task, so what ends a task early must not end the worker's thread here.
    """
    try:
        tidy(context)
    except StoppedError:
        return interrupted()
    except SupersededError as exc:  # whoever ends the inspection tidies up, too
        return Drop(Reason.STALE_REQUEST, str(exc))
    except StoreUnavailableError as exc:  # else the claim would be kept, and nobody at it
        return without_store(context, exc)
    return outcome


def aborted(context: TaskContext, pending: Sequence[Request]) -> bool:
    """Whether somebody wants the inspection aborted whose data has just been processed."""
    if context.request.event not in (Event.CONTINUE, Event.REAPPLY):
        return False
    return any(other.event is Event.ABORT and other.inspection == context.request.inspection for other in pending)


def contradicted(context: TaskContext, pending: Sequence[Request]) -> bool:
    """Whether a different callback came while the machine of a processed one was powered off."""
    mine = context.request
    return mine.event is Event.FINISH and any(
        other.event is Event.CONTINUE and other.inspection == mine.inspection and other.id != mine.id
        for other in pending
    )


def _run(task: Task, context: TaskContext) -> Outcome:
    event = context.request.event
    try:
        return task(context)
    except StoppedError:
        return interrupted()
    except BmcError as exc:
        return later(context, exc) if exc.transient else Fail(exc.reason, str(exc))
    except SupersededError as exc:
        return Drop(Reason.STALE_REQUEST, str(exc))
    except ClaimLostError:
        raise
    except StoreUnavailableError as exc:
        return without_store(context, exc)
    except Exception as exc:  # noqa: BLE001  # the boundary: a task's bug must not take the worker along
        _log.exception("task failed", request=event, node=context.node.uuid)
        return again(context, Reason.INTERNAL, f"{type(exc).__name__} in {event}")


def _is_last(context: TaskContext) -> bool:
    return context.request.attempt >= context.settings.worker.max_attempts
