"""Commits the results of an attempt: changes of the node and its ports, the data, the new state.

Called inside the transaction that also ends the request, so it happens exactly once or not at all. It decides nothing:
the outcome says what to do.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.core.delivery import Done, Drop, Fail, Next, Run, advance
from ferroscope.core.model import HARDWARE_CHANGED, Inspection, Node, Severity
from ferroscope.core.node import three_way
from ferroscope.core.notification import Kind
from ferroscope.core.states import COMMANDS, Event, Provision, State, Transition
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import expectations
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.journal import Journal

# Changes of the hardware that the timeline has in words.
_TEXTS: Final = 3


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
    _save_results(tx, attempt, node)
    if attempt.index_rows is not None:
        tx.search_index.replace(node.uuid, attempt.index_rows, had=had_rows)
    if attempt.hardware_changes:
        tx.outbox.add(Kind.HARDWARE_CHANGED, node, inspection, attempt.hardware_changes)
        tx.hardware_changed(attempt.hardware_changes)
        _note_changes(tx, attempt, journal)
    moves = [move for move in _moves(attempt, outcome, with_task) if move.target is not node.state]
    for move in moves:
        node = transition.apply(tx, node, move, inspection)
        journal.note(str(node.state), f"the inspection is {node.state}")
    if attempt.request.event is Event.VERIFY and node.provision_state is Provision.VERIFYING:
        return transition.rest(tx, node, Provision.MANAGEABLE)
    return node if moves else tx.nodes.update(node)


def _note_changes(tx: Transaction, attempt: Attempt, journal: Journal) -> None:
    """Record on the inspection how many changes of the hardware it has found, and in its timeline which."""
    texts = [change.text for change in attempt.hardware_changes]
    more = f"; {len(texts) - _TEXTS} more" if len(texts) > _TEXTS else ""
    journal.note(HARDWARE_CHANGED, "; ".join(texts[:_TEXTS]) + more)
    if attempt.request.inspection is not None:
        tx.inspections.update(attempt.request.inspection, changes=len(texts))


def _commit_drop(tx: Transaction, attempt: Attempt, node: Node) -> Node:
    """Clear the target power state that a dropped command had promised, unless another command is pending."""
    if attempt.request.event is not Event.SET_POWER or node.target_power_state is None:
        return node
    if any(other.event is Event.SET_POWER for other in tx.requests.pending(node.uuid)):
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
    return node if attempt.deviations is None else expectations.noted(node, attempt.deviations) or node


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
