"""All changes of a node's state, and the events that tell other systems of them.

The API submits: it checks the event and writes the state and the request. A worker applies: it saves the target state
of a transition. Both run in a transaction that the caller has opened, and record each step in the journal.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.contracts.telemetry import Moved
from ferroscope.core import callback_secret, ironic_nodes
from ferroscope.core.delivery import (
    Fail,
    IllegalEventError,
    NotInspectableError,
    TooManyCommandsError,
    advance,
    check_inspectable,
    take,
)
from ferroscope.core.lanes import bmc_of
from ferroscope.core.model import Document, Entry, Inspection, Node, Request, Severity
from ferroscope.core.notification import EventType
from ferroscope.core.states import COMMANDS, SHOWS_FAILED_COMMAND, Event, Transition
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope_client.core.explanations import hint
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import (
    ACTIVE,
    AT_REST,
    CLEARS_ERROR,
    INITIAL,
    MAY_BOOT,
    OF_STATE,
    RESTING,
    TERMINAL,
    Provision,
    State,
)
from ferroscope_client.core.values import storable

# A second request for one of these is merged with the pending one: its result is the same.
_MERGED = frozenset({Event.ABORT, Event.TIMEOUT, Event.DELETE})
# Commands of a node that wait, such as for its BMC. Whoever looks for the next request reads all of them.
MAX_WAITING_COMMANDS: Final = 16
# Seconds between the starts of a node's inspections, at least.
_MIN_GAP_SECONDS: Final = 0.001


def add_node(tx: Transaction, node: Node) -> None:
    """Store a new node; ``ConflictError`` if its UUID or name is in use."""
    tx.nodes.add(node)
    tx.outbox.add(EventType.DISCOVERED if node.auto_discovered else EventType.CREATED, node)


def remove_node(tx: Transaction, node: Node) -> None:
    """Delete the node, which is locked, and all its data."""
    tx.nodes.remove(node.uuid)
    tx.outbox.add(EventType.DELETED, node)


def start(
    tx: Transaction,
    node: Node,
    *,
    inspection: str,
    process: str,
    manage_boot: bool = True,
    secret: str | None = None,
    secret_delivery: str | None = None,
) -> Node:
    """Start an inspection: set ``starting`` and queue an ``inspect`` request, in this transaction.

    ``inspection`` is the UUID of the new inspection, ``secret`` is what its callback has to present. A node that is
    already starting is returned unchanged, so concurrent starts are merged; refused if it is about to be aborted. If
    the node is waiting for its machine, the new inspection replaces the one that waits. Raises ``IllegalEventError`` or
    ``NotInspectableError``.
    """
    transition = check_inspectable(node)
    if node.state is State.STARTING:
        if any(request.event is Event.ABORT for request in tx.requests.pending(node.uuid)):
            raise NotInspectableError(
                f"the inspection of node {node.uuid} is being aborted; start another one when it has ended"
            )
        return node
    replaced = _end_replaced(tx, node, by=inspection, process=process) if node.state is State.WAITING else None
    new = Inspection(
        uuid=inspection,
        node=node.uuid,
        state=transition.target,
        started_at=tx.now,
        manage_boot=manage_boot,
        secret=secret,
        secret_delivery=secret_delivery,
    )
    node = _add(tx, node, transition, new, replaced)
    tx.requests.put(request_for(node, Event.INSPECT))
    tx.journal.append([step(node, "requested", "inspection requested", process=process)])
    return node


def _end_replaced(tx: Transaction, node: Node, *, by: str, process: str) -> Inspection:
    """End the node's inspection, whose machine has not called back, because the inspection ``by`` replaces it.

    What is left of it on the queue is dropped when it is delivered, and its secret is not valid any more. Its machine
    is powered off when the new inspection starts it. Raises ``NotInspectableError`` if its data has arrived.
    """
    old = tx.inspections.get(str(node.inspection))
    if old.digest is not None:
        raise NotInspectableError(
            f"the machine of node {node.uuid} has called back, and its data is about to be processed; "
            "wait for the end of the inspection, or abort it"
        )
    failure = Fail(Reason.RESTARTED, f"replaced by the inspection {by}")
    tx.journal.append([step(node, "replaced", failure.message, process=process, reason=failure.reason)])
    old = _save_inspection(tx, old, State.ERROR, failure, None)
    tx.outbox.add(EventType.FAILED, node, old)
    return old


def enroll(tx: Transaction, node: Node, message: str, *, inspection: str, process: str) -> Node:
    """Start an inspection that the machine initiated by sending its data: set ``enrolling``.

    The node's provision state is kept until the inspection ends. Raises ``IllegalEventError``.
    """
    transition = take(node, Event.ENROLL)
    new = Inspection(uuid=inspection, node=node.uuid, state=transition.target, started_at=tx.now, manage_boot=False)
    node = _add(tx, node, transition, new)
    tx.journal.append([step(node, "called", message, process=process)])
    return node


def reapply(tx: Transaction, node: Node, new: Inspection, *, process: str) -> Node:
    """Start ``new``, an inspection of existing data: set ``reapplying`` and queue a ``reapply`` request.

    The caller stores its data. Raises ``IllegalEventError``, or ``NotInspectableError`` while another reapply is in
    progress.
    """
    transition = take(node, Event.REAPPLY)
    if node.state is State.REAPPLYING:
        raise NotInspectableError(
            f"stored data of node {node.uuid} is already being processed; wait until that has finished"
        )
    node = _add(tx, node, transition, new)
    tx.requests.put(request_for(node, Event.REAPPLY))
    tx.journal.append([step(node, "requested", "reapply requested", process=process)])
    return node


def submit(tx: Transaction, node: Node, event: Event, *, process: str, payload: Document | None = None) -> None:
    """Queue ``event`` for the node's current inspection, if its state allows it; a command belongs to no inspection.

    The worker that carries out the request changes the state. Raises ``IllegalEventError``, or ``TooManyCommandsError``
    if the node's BMC does not keep up with its commands.
    """
    take(node, event)
    if event in _MERGED and any(request.event is event for request in tx.requests.pending(node.uuid)):
        return
    if event in COMMANDS:
        waiting = sum(request.event in COMMANDS for request in tx.requests.pending(node.uuid))
        if waiting >= MAX_WAITING_COMMANDS:
            raise TooManyCommandsError(
                f"{waiting} commands already wait for node {node.uuid}: repeat this one when they have been carried out"
            )
    request = request_for(node, event, payload)
    tx.requests.put(request)
    entry = step(node, "requested", f"{event} requested", process=process)
    tx.journal.append([msgspec.structs.replace(entry, inspection=request.inspection)])


def request_for(node: Node, event: Event, payload: Document | None = None) -> Request:
    """Return the request for ``event`` on the node and, unless it is a command, on its current inspection."""
    address = bmc_of(node.driver, node.driver_info)
    bmc, network = (None, None) if address is None else (address.bmc, address.network)
    inspection = None if event in COMMANDS else node.inspection
    return Request(node=node.uuid, event=event, inspection=inspection, payload=payload or {}, bmc=bmc, network=network)


def apply(
    tx: Transaction,
    node: Node,
    transition: Transition,
    inspection: Inspection | None = None,
    *,
    failure: Fail | None = None,
    queued: float | None = None,
) -> Node:
    """Save the target state of ``transition`` on the node and on its current inspection; return the node.

    ``inspection`` is the current inspection, if the caller has already read it under the node's lock. ``queued``: its
    new total of seconds spent waiting for workers, if that has changed.
    """
    if inspection is None and node.inspection is not None:
        inspection = tx.inspections.get(node.inspection)
    node = tx.nodes.update(_with_transition(node, transition, tx.now, failure))
    if inspection is not None:
        inspection = _save_inspection(tx, inspection, transition.target, failure, queued)
        _tell(tx, node, transition, inspection)
    _report_transition(tx, node, transition, inspection if transition.target in RESTING else None)
    return node


def _add(
    tx: Transaction, node: Node, transition: Transition, new: Inspection, replaced: Inspection | None = None
) -> Node:
    """Save a new inspection and make it the node's current one, instead of ``replaced``; return the node."""
    # Later than the one before, also if the clock was ahead then: they are listed in the order of their starts.
    started = max(tx.now, (node.inspection_started_at or 0.0) + _MIN_GAP_SECONDS)
    new = msgspec.structs.replace(new, state=transition.target, started_at=started)
    if (traced := tx.call.traced) is not None:
        new.traceparent, traced.inspection = traced.traceparent or None, new
    tx.inspections.add(new)
    node = msgspec.structs.replace(
        node, inspection=new.uuid, inspection_started_at=started, inspection_finished_at=None
    )
    node = tx.nodes.update(_with_transition(node, transition, tx.now))
    _tell(tx, node, transition, new)
    _report_transition(tx, node, transition, new, replaced)
    return node


def _report_transition(
    tx: Transaction,
    node: Node,
    transition: Transition,
    inspection: Inspection | None,
    replaced: Inspection | None = None,
) -> None:
    """Report the transition; notify the PXE filters if it changes whether the machine may boot."""
    tx.transitions.append(Moved(transition, node, inspection, replaced))
    booting = transition.target in MAY_BOOT
    if booting is not (transition.source in MAY_BOOT):
        tx.macs.changed(node.uuid, booting=booting)


def _tell(tx: Transaction, node: Node, transition: Transition, inspection: Inspection) -> None:
    """Add the event of this transition to the outbox, if it has one."""
    source, target = transition.source, transition.target
    if source is target or not tx.subscriptions:
        return
    if target in ACTIVE and (source in RESTING or target in INITIAL):
        tx.outbox.add(EventType.STARTED, node, inspection)
    elif target is State.WAITING:
        tx.outbox.add(EventType.WAITING, node, inspection)
    elif target is State.FINISHED:
        tx.outbox.add(EventType.FINISHED, node, inspection)
    elif target is State.ERROR:
        tx.outbox.add(EventType.ABORTED if inspection.reason == Reason.ABORTED else EventType.FAILED, node, inspection)


def _with_transition(node: Node, transition: Transition, now: float, failure: Fail | None = None) -> Node:
    target = transition.target
    changes: dict[str, Any] = {"state": target, "provision_updated_at": now}
    # An inspection that the machine initiated, or a reapply, does not change the provision state of a node at rest.
    keeps = node.provision_state in AT_REST and transition.event is not Event.INSPECT
    if target in OF_STATE and not keeps:
        # The state of a node of an attached Ironic has not changed there.
        finished = ironic_nodes.ATTACHED in node.internal and target is State.FINISHED
        changes["provision_state"] = ironic_nodes.provision_state(node) if finished else OF_STATE[target]
        changes["target_provision_state"] = None if target is State.FINISHED else str(Provision.MANAGEABLE)
    if target in TERMINAL:
        changes["inspection_finished_at"] = now
        changes |= machine_identity.without_hold(node)
    if failure is not None:
        changes["last_error"] = explain(failure)
    elif target in CLEARS_ERROR:
        changes["last_error"] = None
    return msgspec.structs.replace(node, **changes)


def fail(tx: Transaction, node: Node, failure: Fail, inspection: Inspection | None = None) -> Node:
    """End the node's inspection in error; if none is active, only record the reason."""
    try:
        transition = advance(node.state, Event.FAIL)
    except IllegalEventError:
        return fail_command(tx, node, failure)
    return apply(tx, node, transition, inspection, failure=failure)


def fail_command(tx: Transaction, node: Node, failure: Fail) -> Node:
    """Record that a command failed, without affecting an inspection that was started meanwhile."""
    node = msgspec.structs.replace(node, target_power_state=None)
    if node.state not in SHOWS_FAILED_COMMAND:
        return tx.nodes.update(node)
    node = msgspec.structs.replace(node, last_error=explain(failure))
    if node.provision_state is Provision.VERIFYING:
        return rest(tx, node, Provision.ENROLL)
    return tx.nodes.update(node)


def explain(failure: Fail) -> str:
    """Return the failure for ``last_error``: the message, the reason code, and what to do."""
    code = f" ({failure.reason})"
    return f"{failure.message}{'' if code in failure.message else code}. {hint(failure.reason)}"


def rest(tx: Transaction, node: Node, provision_state: Provision, target: str | None = None) -> Node:
    """Set the provision state of a node that is not being inspected."""
    changed = msgspec.structs.replace(
        node, provision_state=provision_state, target_provision_state=target, provision_updated_at=tx.now
    )
    return tx.nodes.update(changed)


def step(
    node: Node,
    name: str,
    message: str,
    *,
    process: str,
    severity: Severity = Severity.INFO,
    reason: str | None = None,
    detail: Document | None = None,
) -> Entry:
    """Return a journal entry for the node's current inspection."""
    return Entry(
        node=node.uuid,
        inspection=node.inspection,
        step=name,
        message=message,
        process=process,
        severity=severity,
        reason=reason,
        detail=detail or {},
    )


def _save_inspection(
    tx: Transaction, inspection: Inspection, target: State, failure: Fail | None, queued: float | None
) -> Inspection:
    changes: dict[str, Any] = {"state": target, "clock_since": None}
    if target is State.WAITING:
        changes["waiting_since"] = tx.now
        if inspection.digest is None:  # otherwise its callback has already arrived
            changes["clock_since"] = tx.now
    if target is State.PROCESSING:
        changes["clock_since"] = changes["processing_since"] = tx.now
    if target in TERMINAL:
        changes["finished_at"] = tx.now
        if inspection.secret is not None:
            changes["secret"] = callback_secret.ended_secret(inspection.secret)
    if queued is not None:
        changes["queued"] = queued
    changes["reason"] = str(failure.reason) if failure else None
    changes["error"] = storable(failure.message) if failure else None
    tx.inspections.update(inspection.uuid, **changes)
    return msgspec.structs.replace(inspection, **changes)
