"""Callbacks that are not accepted here: refused, or forwarded to an ironic-inspector that runs beside this service.

All refusals get the same response; the reason is in the log and on timelines. Callers are anonymous, so they do not
learn the reason, and cannot fill the log, timelines or the database: all are limited. But an operator who waits for a
machine must see that it called. So a call that concerns no node is kept (see ``lookup.RefusedCaller``), and noted for
the waiting node whose machine has called from the same address before, if there is exactly one.

A callback is forwarded while the caller waits. If the other service does not answer, the caller is asked to try again,
as ramdisks do. If it refuses the callback too, the callback is refused here like any other.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import callback_body
from ferroscope.api.errors import LOOKUP_FAILED, ApiError, MissingError, UnavailableError
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.route import RouteCall
from ferroscope.api.rate_limit import too_many_failures
from ferroscope.contracts.errors import NotFoundError, StoreError
from ferroscope.contracts.remote import ForwardBusyError, ForwardError
from ferroscope.contracts.store import Query
from ferroscope.core import lookup
from ferroscope.core.boot import since_boot
from ferroscope.core.callback_secret import CallbackProof
from ferroscope.core.delivery import Fail
from ferroscope.core.model import ACCEPTED_AS, FORWARDED, Document, Entry, Node, Severity
from ferroscope.core.states import AWAITED
from ferroscope.db import Transaction
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import ACTIVE, MACHINE
from ferroscope_client.core.values import limit_key, storable

STEP: Final = "callback-refused"
RAMDISK_STEP: Final = "ramdisk-refused"
# One call may add an entry to the journals of this many nodes, with this interval between entries.
_ENTRY_INTERVAL: Final = 60.0
_MAX_NODES: Final = 8
# There are fewer kinds of such entries, so callers who alternate between the kinds cannot fill a timeline.
MAX_LATEST_ENTRIES: Final = 32
_MAX_MESSAGE: Final = 300
_DISCOVERY: Final = frozenset({Reason.DISCOVERY_LIMITED, Reason.DISCOVERY_REJECTED})
# The machine is unknown: the source address may identify the node.
_UNKNOWN: Final = frozenset({Reason.LOOKUP_UNKNOWN, Reason.CALLBACK_INVALID, *_DISCOVERY})


def log_refusal(
    context: ApiContext, refusal: lookup.LookupRefusal, evidence: lookup.Evidence, source: str
) -> MissingError:
    """Log the reason, subject to the rate limit; return the error, which does not contain it."""
    quiet = context.access.refusals
    if refusal.reason in _DISCOVERY:
        context.process.meter.record_discovery("limited" if refusal.reason is Reason.DISCOVERY_LIMITED else "rejected")
        quiet = context.access.floods
    left_out = quiet.admit(context.process.clock.monotonic())
    if left_out is None:
        return make_missing_error(evidence)
    context.process.log.warning(
        "discovery refused" if refusal.reason in _DISCOVERY else "lookup refused",
        left_out=left_out,
        reason=str(refusal.reason),
        message=refusal.message,
        source=source,
        nodes=list(refusal.nodes[:_MAX_NODES]),
        macs=list(evidence.macs[:16]),
        bmc_addresses=list(evidence.bmc_addresses),
        node_uuid=evidence.uuid,
    )
    return make_missing_error(evidence)


def make_missing_error(evidence: lookup.Evidence) -> MissingError:
    """Return the error for a machine that is not accepted, whose MAC addresses may be guesses."""
    error = MissingError(LOOKUP_FAILED)
    error.guesses = max(1, len(evidence.macs))
    return error


def not_waiting(node: Node) -> lookup.LookupRefusal:
    """Return the refusal of a machine whose node does not expect a callback."""
    message = f"unexpected callback: the inspection is {node.state}"
    return lookup.LookupRefusal(Reason.LOOKUP_NOT_WAITING, message, (node.uuid,))


def unproven(node: Node, proof: CallbackProof) -> lookup.LookupRefusal:
    """Return the refusal of a callback without the inspection's secret, or with a wrong one."""
    how = "with a wrong secret" if proof is CallbackProof.WRONG else "without the secret of the inspection"
    return lookup.LookupRefusal(Reason.CALLBACK_UNPROVEN, f"callback {how}", (node.uuid,))


def note(
    context: ApiContext,
    tx: Transaction,
    refusal: lookup.LookupRefusal,
    source: str,
    *,
    step: str = STEP,
    noun: str = "callback",
    machine: MachineIdentity | None = None,
) -> None:
    """Add the refusal to the journals of the nodes concerned, subject to the rate limit; ``noun``: what was refused.

    ``machine``: who called, which is kept if the refusal concerns no node.
    """
    if not refusal.nodes:
        is_known = refusal.reason is Reason.DISCOVERY_REJECTED  # to an operator
        in_flood = context.access.callers.wait(source, context.process.clock.monotonic())
        if machine is not None and not is_known and not in_flood:
            remember_caller(tx, refusal, source, machine)
        if refusal.reason in _UNKNOWN:
            refusal = by_source(tx, refusal, source)
    for uuid in sorted(refusal.nodes[:_MAX_NODES]):  # all lock them in this order
        if add_entry(context.process, tx, uuid, step, refusal.message, source=source, reason=refusal.reason):
            _show(tx, uuid, refusal, noun)


def remember_caller(tx: Transaction, refusal: lookup.LookupRefusal, source: str, machine: MachineIdentity) -> None:
    """Keep that this machine called, unless it was kept a moment ago. Forget callers beyond the limits."""
    key = min(machine.macs or machine.bmcs, default="")
    last = tx.refused_callers.read_last_call(source, key)
    if last is not None and 0.0 <= tx.now - last < lookup.REPEATED_CALL_SECONDS:
        return
    caller = lookup.RefusedCaller(
        source=source,
        machine=key,
        macs=list(machine.macs[: lookup.MAX_MACS_OF_REFUSED_CALLER]),
        bmc_addresses=list(machine.bmcs),
        serial=machine.serial,
        reason=str(refusal.reason),
        message=storable(refusal.message[:_MAX_MESSAGE]),
        called_at=tx.now,
    )
    kept = [record for record in tx.refused_callers.list() if (record.source, record.machine) != (source, key)]
    tx.refused_callers.put(caller)
    tx.refused_callers.remove(lookup.select_surplus([caller, *kept], limit_key, tx.now))


def only_due(tx: Transaction, refusal: lookup.LookupRefusal, step: str) -> lookup.LookupRefusal:
    """Return the refusal with only those of its nodes that get an entry; without one, no transaction is needed."""
    nodes = [tx.nodes.get(uuid) for uuid in refusal.nodes[:_MAX_NODES]]
    due = (node.uuid for node in nodes if _is_due(tx, node, step, refusal.reason))
    return msgspec.structs.replace(refusal, nodes=tuple(due))


def write_note(context: ApiContext, refusal: lookup.LookupRefusal, source: str, *, step: str, noun: str) -> None:
    """Do ``note`` in a transaction of its own."""
    context.data.store.write(lambda tx: note(context, tx, refusal, source, step=step, noun=noun))


def _show(tx: Transaction, uuid: str, refusal: lookup.LookupRefusal, noun: str) -> None:
    """Set ``last_error`` of a node that waits for its machine's callback, before it times out."""
    with contextlib.suppress(NotFoundError):
        node = tx.nodes.get(uuid, lock=True)
        if node.state in AWAITED:
            error = transition.explain(Fail(refusal.reason, f"a {noun} was refused: {refusal.message}"))
            tx.nodes.update(msgspec.structs.replace(node, last_error=error))


def by_source(tx: Transaction, refusal: lookup.LookupRefusal, source: str) -> lookup.LookupRefusal:
    """Return the refusal with the waiting node whose machine has called from this address before, if there is one."""
    waiting = tx.addresses.callers(source)
    if len(waiting) != 1:
        return refusal
    message = f"callback from {source}, the last known source address of this machine: {refusal.message}"
    return lookup.LookupRefusal(refusal.reason, message, (waiting[0].uuid,))


def unusable(context: ApiContext, raw: bytes, node_uuid: str | None, source: str, why: ApiError) -> None:
    """Record an invalid callback: in the log, and on the timeline of the node concerned."""
    now = context.process.clock.monotonic()
    left_out = context.access.refusals.admit(now)
    if left_out is not None:
        context.process.log.warning(
            "callback refused",
            left_out=left_out,
            reason=str(Reason.CALLBACK_INVALID),
            status=why.status,
            message=why.message,
            source=source,
            node_uuid=node_uuid,
        )
    if context.access.callers.count_failure(source, now):
        return  # after too many failures, do not search for the node again
    evidence = callback_body.traces(raw, node_uuid, context.settings.inspector.ignored)
    machine = MachineIdentity(macs=evidence.macs, bmcs=evidence.bmc_addresses)
    refusal = lookup.LookupRefusal(Reason.CALLBACK_INVALID, f"HTTP {why.status}: {why.message[:_MAX_MESSAGE]}")

    def work(tx: Transaction) -> None:
        verdict = lookup.decide(evidence, tx.addresses.candidates(evidence)) if evidence else refusal
        if isinstance(verdict, lookup.NodeMatch) and verdict.node.state in ACTIVE:
            note(context, tx, msgspec.structs.replace(refusal, nodes=(verdict.node.uuid,)), source)
        else:
            note(context, tx, refusal, source, machine=machine)

    with contextlib.suppress(StoreError):  # the caller gets the error about its body in any case
        context.data.store.write(work)


def add_entry(
    process: ProcessContext,
    tx: Transaction,
    uuid: str,
    step: str,
    message: str,
    *,
    source: str,
    reason: Reason | None = None,
    detail: Document | None = None,
) -> bool:
    """Add an entry to the node's timeline, unless one of its latest entries says the same; return whether it did.

    Entries of another inspection or boot do not count.
    """
    try:
        node = tx.nodes.get(uuid)
    except NotFoundError:
        return False
    if not _is_due(tx, node, step, reason):
        return False
    details: dict[str, Any] = {"source": source} if source else {}
    entry = Entry(
        node=uuid,
        inspection=_inspection_of(node),
        step=step,
        message=message if not source or source in message else f"{message} (from {source})",
        process=process.name,
        severity=Severity.INFO if reason is None else Severity.WARNING,
        reason=None if reason is None else str(reason),
        detail=details | (detail or {}),
    )
    tx.journal.append([entry])
    return True


def _is_due(tx: Transaction, node: Node, step: str, reason: Reason | None) -> bool:
    """Return whether an entry like this is to be added: none of the node's latest entries says the same."""
    kind = (step, None if reason is None else str(reason), _inspection_of(node))
    latest = tx.journal.list(
        Query(filters={"node": node.uuid}, sort_key="id", descending=True, limit=MAX_LATEST_ENTRIES)
    )
    same = (entry for entry in since_boot(latest) if (entry.step, entry.reason, entry.inspection) == kind)
    return not any(tx.now - entry.at < _ENTRY_INTERVAL for entry in same)


def _inspection_of(node: Node) -> str | None:
    return node.inspection if node.state in MACHINE else None


def refuse_stranger(
    context: ApiContext, call: RouteCall[Any, None], node_uuid: str | None, secret: str | None, seconds: int
) -> None:
    """Raise ``TooManyError`` for a source that has to wait if its data cannot be that of a machine we wait for.

    This comes before the body is decoded: searching its beginning costs far less.
    """
    if context.settings.auto_discovery.enabled:
        return
    settings = context.settings.inspector
    evidence = callback_body.traces(call.raw, node_uuid, settings.ignored)
    candidates = context.data.store.read(lambda tx: tx.addresses.candidates(evidence, secret))
    nodes = [node for node in (candidates.by_uuid, candidates.by_secret) if node is not None]
    nodes += [*candidates.by_mac, *candidates.by_bmc]
    if any(settings.permit_active or node.state in ACTIVE for node in nodes):
        return
    attached = context.services.attached
    if nodes or attached is None or not attached.search(context, evidence):
        raise too_many_failures(seconds)


_FORWARDED: Final = frozenset({Reason.LOOKUP_UNKNOWN, Reason.LOOKUP_NOT_WAITING})
_AGAIN: Final = {"Retry-After": "2"}


def is_forwarded(context: ApiContext, refusal: lookup.LookupRefusal, call: RouteCall[Any, None]) -> bool:
    """Whether to forward the callback: no node here waits for it, and it was not forwarded to us."""
    if context.services.forwarder is None or call.forwarded or refusal.reason not in _FORWARDED:
        return False
    # A source that has had too many failures does not burden the other service.
    return not context.access.callers.wait(call.source, context.process.clock.monotonic())


def forward(context: ApiContext, refusal: lookup.LookupRefusal, call: RouteCall[Any, None]) -> Node | None:
    """Return the node by which the other service accepted the callback, with its UUID only; None if it refused.

    ``UnavailableError`` if it does not answer.
    """
    if context.services.forwarder is None:
        return None
    try:
        uuid = context.services.forwarder.forward(call.raw)
    except ForwardBusyError as exc:
        _note(context, "busy", refusal, call, str(exc))
        raise UnavailableError("Too many callbacks at once. Try again in a few seconds.", _AGAIN) from None
    except ForwardError as exc:
        _note(context, "failed", refusal, call, str(exc))
        raise UnavailableError("The callback cannot be accepted now. Try again in a few seconds.", _AGAIN) from None
    _note(context, "refused" if uuid is None else "accepted", refusal, call, "")
    if uuid is None:
        return None
    message, node_uuid = "callback forwarded to ironic-inspector, which accepted it", (*refusal.nodes, uuid)[0]
    # ``inspected_elsewhere`` fetches the result.
    detail = {ACCEPTED_AS: uuid}
    context.data.store.write(
        lambda tx: add_entry(context.process, tx, node_uuid, FORWARDED, message, source=call.source, detail=detail)
    )
    return Node(uuid=uuid, driver="")


def _note(
    context: ApiContext, outcome: Any, refusal: lookup.LookupRefusal, call: RouteCall[Any, None], why: str
) -> None:
    """Count it, and log it, subject to the rate limit of refused callbacks."""
    context.process.meter.record_forwarding(outcome)
    left_out = context.access.refusals.admit(context.process.clock.monotonic())
    if left_out is None:
        return
    log = context.process.log.info if outcome == "accepted" else context.process.log.warning
    log(
        "callback forwarded to ironic-inspector",
        outcome=outcome,
        why=why,
        reason=str(refusal.reason),
        source=call.source,
        nodes=list(refusal.nodes[:8]),
        left_out=left_out,
    )
