"""Inspection data that contradicts the node's last inspection is held until an operator approves or rejects it.

The machine gets the same answer as always, and waits; see ``hardware.machine_identity`` for what contradicts.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal.callback_body import Parsed
from ferroscope.api.http.route import ApiContext
from ferroscope.contracts.store import Transaction
from ferroscope.core import lookup
from ferroscope.core.model import Document, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import Difference, MachineIdentity

_HELD: Final = "held"
_APPROVED: Final = "approved"
_REJECTED: Final = "rejected"
# The record of the collector extra-hardware; decoding all of them would cost more than the rest of the callback.
_UUID: Final = re.compile(rb'\[\s*"system"\s*,\s*"product"\s*,\s*"uuid"\s*,\s*"([0-9A-Fa-f-]{32,36})"')


def identity(parsed: Parsed) -> MachineIdentity:
    """Return the identity of the machine that sent this callback."""
    found = _UUID.search(parsed.parts.get("unprocessed", b""))
    return machine_identity.identify(parsed.system_vendor, found[1].decode() if found else None, parsed.evidence.macs)


def contradictions(context: ApiContext, node: Node, now: MachineIdentity) -> tuple[Difference, ...]:
    """Return how the data contradicts the node's last inspection; nothing if that is not to be checked."""
    before = machine_identity.stored(node.internal.get(machine_identity.IDENTITY))
    if before is None or not context.settings.inspector.hold_contradicting_data:
        return ()
    return machine_identity.contradictions(before, now)


def refused(node: Node, differences: tuple[Difference, ...]) -> lookup.Refused:
    """Return the refusal of contradicting data after other data of the same inspection."""
    message = f"contradicts the last inspection: {machine_identity.explain(differences)}"
    return lookup.Refused(Reason.DATA_CONTRADICTS, f"callback {message}", (node.uuid,))


def place(
    context: ApiContext, tx: Transaction, node: Node, payload: Document, differences: tuple[Difference, ...]
) -> None:
    """Hold the data, which has been stored; ``payload`` is that of the request that processes it."""
    source = str(payload.get("source") or "")
    message = machine_identity.explain(differences)
    record = {"at": tx.now, "source": source, "message": message, "payload": payload}
    record["differences"] = [msgspec.structs.asdict(one) for one in differences]
    tx.nodes.update(msgspec.structs.replace(node, **machine_identity.with_hold(node, record)))
    entry = transition.step(
        node,
        _HELD,
        f"the data{f' from {source}' if source else ''} contradicts the last inspection and waits for approval: "
        f"{message}",
        process=context.process,
        severity=Severity.WARNING,
        reason=str(Reason.DATA_CONTRADICTS),
        detail={"source": source} if source else None,
    )
    tx.journal.append([entry])


def lift(tx: Transaction, node: Node) -> Node:
    """Return the node without its hold, if it has one: data that does not contradict has arrived."""
    fields = machine_identity.without_hold(node)
    return tx.nodes.update(msgspec.structs.replace(node, **fields)) if fields else node


def approve(context: ApiContext, tx: Transaction, node: Node, record: Document) -> Node:
    """Process the held data."""
    node = lift(tx, node)
    _note(context, tx, node, _APPROVED, "the held data was approved by an operator")
    transition.submit(tx, node, Event.CONTINUE, process=context.process, payload=dict(record.get("payload") or {}))
    return node


def reject(context: ApiContext, tx: Transaction, node: Node, record: Document) -> None:
    """Drop the held data and end the inspection."""
    node = lift(tx, node)
    _note(context, tx, node, _REJECTED, "the held data was rejected by an operator")
    for part in tx.data.of_node(node.uuid):
        if part.inspection == node.inspection:
            tx.data.drop(part)
    message = f"the data was rejected by an operator: {record.get('message')}"
    payload = {"reason": str(Reason.DATA_REJECTED), "message": message}
    transition.submit(tx, node, Event.FAIL, process=context.process, payload=payload)


def _note(context: ApiContext, tx: Transaction, node: Node, step: str, message: str) -> None:
    tx.journal.append([transition.step(node, step, message, process=context.process)])
