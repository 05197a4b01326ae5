"""Accepting a callback: look the machine up, store its data, queue its ``continue``; in one transaction.

An unknown machine becomes a node first, where that is wanted (see ``discovery``). A repeated callback
is answered as the first was and starts nothing. A different one while the first is being dealt with is
queued without its data: the worker ends that inspection in error. Every refusal looks the same from
outside; the reason goes to the log and to the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ferroscope import transition
from ferroscope.api import agent, discovery
from ferroscope.api.callback import Parsed
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import LOOKUP_FAILED, MissingError, UnavailableError
from ferroscope.domain import lookup
from ferroscope.domain.model import Entry, Inspection, Node, Request, Severity
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import Event, State
from ferroscope.ports.errors import ConflictError, NotFoundError
from ferroscope.ports.store import Query, Transaction

T = TypeVar("T")

# While the callback's own request is on its way, and when the answer of the first got lost.
_OPEN: Final = frozenset({State.STARTING, State.WAITING, State.ENROLLING})
# Callers are anonymous: they may add a refusal to a node's journal this often, to so many nodes.
_STEP: Final = "callback-refused"
_QUIET_SECONDS: Final = 60.0
_NOTED_NODES: Final = 8
_DISCOVERY: Final = frozenset({Reason.DISCOVERY_LIMITED, Reason.DISCOVERY_REJECTED})
# One callback and a different one end the inspection in error: a third, or a thousandth, need not be queued.
_CONTRADICTION: Final = 2
# Several first calls of one machine at once: all but one look again, and find its node.
_TRIES: Final = 5


class Accepted(msgspec.Struct, frozen=True):
    """The node, and the token for its ramdisk where one was asked for; ``discovered``: the node is new."""

    node: Node
    token: str | None = None
    discovered: bool = False


def accept(context: ApiContext, parsed: Parsed, *, with_token: bool) -> Accepted:
    """Accept the callback; raise the one ``MissingError`` for whatever reason it is refused."""

    def work(tx: Transaction) -> Accepted | lookup.Refused:
        verdict = look_up(tx, parsed.evidence)
        new = None
        if isinstance(verdict, lookup.Refused) and discovery.wanted(context, verdict, parsed.evidence):
            verdict, new = _discover(context, tx, parsed.evidence)
        taken = (
            _take(context, tx, verdict.node, parsed, with_token=with_token)
            if isinstance(verdict, lookup.Found)
            else verdict
        )
        if isinstance(taken, lookup.Refused):
            note_refusal(context, tx, taken)
            return taken
        return msgspec.structs.replace(taken, discovered=new is not None)

    try:
        outcome = _until_alone(context, work)
    except NotFoundError:
        raise MissingError(LOOKUP_FAILED) from None
    if isinstance(outcome, lookup.Refused):
        raise refused(context, outcome, parsed.evidence)
    if outcome.discovered:
        context.meter.discovered("discovered")
        context.log.info("machine discovered", node=outcome.node.uuid, macs=list(parsed.evidence.macs[:16]))
    return outcome


def _until_alone(context: ApiContext, work: Callable[[Transaction], T]) -> T:
    """Run ``work``, again where another process made a node of the same machine at the same moment."""
    for _ in range(_TRIES):
        try:
            return context.store.write(work)
        except ConflictError as exc:
            context.log.debug("another call was at the same machine", error=str(exc))
    raise UnavailableError("Too many callbacks of one machine at once. Try again in a second.", {"Retry-After": "1"})


def _discover(context: ApiContext, tx: Transaction, evidence: lookup.Evidence) -> tuple[lookup.Verdict, Node | None]:
    """Return the node of an unknown machine: a new one, or the one that was made a moment ago; or why there is none."""
    refusal = discovery.admit(context, tx, evidence)
    if refusal is not None:
        return refusal, None
    verdict = look_up(tx, evidence)
    if isinstance(verdict, lookup.Found) or verdict.reason is not Reason.LOOKUP_UNKNOWN:
        return verdict, None
    node = discovery.make(context, tx, evidence)
    return lookup.Found(node), node


def look_up(tx: Transaction, evidence: lookup.Evidence) -> lookup.Verdict:
    """Return the one node that the evidence means, read anew and locked; or why there is none."""
    verdict = lookup.decide(evidence, tx.addresses.candidates(evidence))
    if isinstance(verdict, lookup.Refused):
        return verdict
    try:
        return lookup.Found(tx.nodes.get(verdict.node.uuid, lock=True))
    except NotFoundError:
        return lookup.Refused(Reason.LOOKUP_UNKNOWN, f"node {verdict.node.uuid} was deleted just now")


def refused(context: ApiContext, refusal: lookup.Refused, evidence: lookup.Evidence) -> MissingError:
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


def note_refusal(context: ApiContext, tx: Transaction, refusal: lookup.Refused) -> None:
    """Put the refusal into the journals of the nodes concerned, unless it has just been noted there."""
    for uuid in refusal.nodes[:_NOTED_NODES]:
        latest = tx.journal.list(Query(filters={"node": uuid}, sort_key="id", descending=True, limit=1))
        if latest and latest[0].step == _STEP and tx.now - latest[0].at < _QUIET_SECONDS:
            continue
        entry = Entry(
            node=uuid,
            step=_STEP,
            message=refusal.message,
            process=context.process,
            severity=Severity.WARNING,
            reason=str(refusal.reason),
        )
        tx.journal.append([entry])


def _take(
    context: ApiContext, tx: Transaction, node: Node, parsed: Parsed, *, with_token: bool
) -> Accepted | lookup.Refused:
    inspection = tx.inspections.get(node.inspection) if node.inspection is not None else None
    if inspection is None or inspection.digest != parsed.digest:
        unasked = discovery.take_unasked(context, tx, node)
        if isinstance(unasked, lookup.Refused):
            return unasked
        if unasked is not None:
            node, inspection = unasked, tx.inspections.get(str(unasked.inspection))
    if inspection is None:
        return not_waiting(node)
    if inspection.digest != parsed.digest:
        refusal = _submit(context, tx, node, inspection, parsed)
        if refusal is not None:
            return refusal
    if not with_token:
        return Accepted(node)
    changed, token = agent.issue(context, node, parsed.digest)
    return Accepted(node if changed is node else tx.nodes.update(changed), token)


def _submit(
    context: ApiContext, tx: Transaction, node: Node, inspection: Inspection, parsed: Parsed
) -> lookup.Refused | None:
    """Queue the ``continue`` of a callback that is not known yet, or say why not."""
    if node.state is not State.PROCESSING and node.state not in _OPEN:
        return not_waiting(node)
    queued = _continues(tx, node) if inspection.digest is not None else []
    if any(request.payload.get("digest") == parsed.digest for request in queued) or len(queued) >= _CONTRADICTION:
        return None
    if not queued and node.state in _OPEN:
        tx.data.save(inspection.uuid, node.uuid, discovery.parts(node, parsed.parts))
        tx.inspections.update(inspection.uuid, digest=parsed.digest)
    transition.submit(tx, node, Event.CONTINUE, process=context.process, payload={"digest": parsed.digest})
    return None


def _continues(tx: Transaction, node: Node) -> list[Request]:
    return [request for request in tx.requests.pending(node.uuid) if request.event is Event.CONTINUE]
