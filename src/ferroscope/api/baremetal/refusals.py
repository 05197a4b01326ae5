"""Callbacks that are refused: one answer for all of them, the reason in the log and on timelines.

Whoever calls is anonymous, so nothing of it is told to the caller, and nothing here may be filled by one: log
and timelines take a line now and then, whatever comes. But an operator who waits for a machine has to hear
that it called: so a call that says too little of itself is told to the node whose machine has called from the
same address before, if one alone of those waits.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from ferroscope.api.baremetal import callback_body
from ferroscope.api.http.errors import LOOKUP_FAILED, ApiError, MissingError
from ferroscope.api.http.route import ApiContext
from ferroscope.contracts.errors import NotFoundError, StoreUnavailableError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import lookup
from ferroscope.core.model import Document, Entry, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import ACTIVE, MACHINE

STEP: Final = "callback-refused"
# Callers may add to a node's journal this often, to so many nodes.
_QUIET_SECONDS: Final = 60.0
_NOTED_NODES: Final = 8
_MESSAGE: Final = 300
_DISCOVERY: Final = frozenset({Reason.DISCOVERY_LIMITED, Reason.DISCOVERY_REJECTED})
# Nobody knows the machine: whom it concerns may be told by where it calls from.
_NAMELESS: Final = frozenset({Reason.LOOKUP_UNKNOWN, *_DISCOVERY})


def refused(context: ApiContext, refusal: lookup.Refused, evidence: lookup.Evidence, source: str) -> MissingError:
    """Log why, unless that was said often enough of late; return the answer that does not tell."""
    quiet = context.refusals
    if refusal.reason in _DISCOVERY:
        context.meter.discovered("limited" if refusal.reason is Reason.DISCOVERY_LIMITED else "rejected")
        quiet = context.limits
    left_out = quiet.admit(context.clock.monotonic())
    if left_out is None:
        return MissingError(LOOKUP_FAILED)
    context.log.warning(
        "discovery refused" if refusal.reason in _DISCOVERY else "lookup refused",
        left_out=left_out,
        reason=str(refusal.reason),
        message=refusal.message,
        source=source,
        nodes=list(refusal.nodes[:_NOTED_NODES]),
        macs=list(evidence.macs[:16]),
        bmc_addresses=list(evidence.bmc_addresses),
        node_uuid=evidence.uuid,
    )
    return MissingError(LOOKUP_FAILED)


def not_waiting(node: Node) -> lookup.Refused:
    """Return the refusal of a machine whose node expects nothing from it."""
    message = f"the machine called, but its inspection is {node.state}, not waiting for it"
    return lookup.Refused(Reason.LOOKUP_NOT_WAITING, message, (node.uuid,))


def note(context: ApiContext, tx: Transaction, refusal: lookup.Refused, source: str) -> None:
    """Put the refusal into the journals of the nodes concerned, unless one has just been noted there."""
    if not refusal.nodes and refusal.reason in _NAMELESS:
        refusal = by_source(tx, refusal, source)
    for uuid in refusal.nodes[:_NOTED_NODES]:
        tell(context, tx, uuid, STEP, refusal.message, source=source, reason=refusal.reason)


def by_source(tx: Transaction, refusal: lookup.Refused, source: str) -> lookup.Refused:
    """Return the refusal with the one node that waits, and whose machine has called from this address before."""
    waiting = tx.addresses.callers(source)
    if len(waiting) != 1:
        return refusal
    message = f"a call from {source}, from where this machine has called before: {refusal.message}"
    return lookup.Refused(refusal.reason, message, (waiting[0].uuid,))


def unusable(context: ApiContext, raw: bytes, node_uuid: str | None, source: str, why: ApiError) -> None:
    """Tell of a callback that nothing could be made of: in the log, and on the timeline of whom it concerns."""
    now = context.clock.monotonic()
    left_out = context.refusals.admit(now)
    if left_out is not None:
        context.log.warning(
            "callback refused",
            left_out=left_out,
            reason=str(Reason.CALLBACK_INVALID),
            status=why.status,
            message=why.message,
            source=source,
            node_uuid=node_uuid,
        )
    if context.callers.failed(source, now):
        return  # it has called in vain so often that it need not be looked for once more
    evidence = callback_body.traces(raw, node_uuid)
    refusal = lookup.Refused(Reason.CALLBACK_INVALID, f"HTTP {why.status}: {why.message[:_MESSAGE]}")

    def work(tx: Transaction) -> None:
        verdict = lookup.decide(evidence, tx.addresses.candidates(evidence)) if evidence else refusal
        if isinstance(verdict, lookup.Found) and verdict.node.state in ACTIVE:
            note(context, tx, msgspec.structs.replace(refusal, nodes=(verdict.node.uuid,)), source)
        else:
            note(context, tx, by_source(tx, refusal, source), source)

    with contextlib.suppress(StoreUnavailableError):  # the caller is told what is wrong with its call all the same
        context.store.write(work)


def tell(
    context: ApiContext,
    tx: Transaction,
    uuid: str,
    step: str,
    message: str,
    *,
    source: str,
    reason: Reason | None = None,
    detail: Document | None = None,
) -> None:
    """Note on the node's timeline what a caller did, unless the same has just been noted there."""
    try:
        node = tx.nodes.get(uuid)
    except NotFoundError:
        return
    latest = tx.journal.list(Query(filters={"node": uuid}, sort_key="id", descending=True, limit=1))
    if latest and latest[0].step == step and tx.now - latest[0].at < _QUIET_SECONDS:
        return
    said: dict[str, Any] = {"source": source} if source else {}
    entry = Entry(
        node=uuid,
        inspection=node.inspection if node.state in MACHINE else None,
        step=step,
        message=message if not source or source in message else f"{message} (from {source})",
        process=context.process,
        severity=Severity.INFO if reason is None else Severity.WARNING,
        reason=None if reason is None else str(reason),
        detail=said | (detail or {}),
    )
    tx.journal.append([entry])
