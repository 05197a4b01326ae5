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
from ferroscope.api.baremetal import agent, discovery, refusals
from ferroscope.api.baremetal.callback_body import Parsed
from ferroscope.api.http.errors import LOOKUP_FAILED, MissingError, UnavailableError
from ferroscope.api.http.route import ApiContext
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import lookup
from ferroscope.core.model import Inspection, Node, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MAY_CALL, TAKES_CALLBACK, Event

T = TypeVar("T")

_CALLED: Final = "callback"
_REPEATED: Final = "callback-repeated"
_CONTRADICTED: Final = "callback-contradicted"
# One callback and a different one end the inspection in error: a third, or a thousandth, need not be queued.
_CONTRADICTION: Final = 2
# Several first calls of one machine at once: all but one look again, and find its node.
_TRIES: Final = 5


class Accepted(msgspec.Struct, frozen=True):
    """The node, and the token for its ramdisk where one was asked for; ``discovered``: the node is new."""

    node: Node
    token: str | None = None
    discovered: bool = False


def handle_callback(context: ApiContext, parsed: Parsed, *, with_token: bool, source: str = "") -> Accepted:
    """Accept the callback that ``source`` sent; raise the one ``MissingError`` for whatever reason it is refused."""

    def work(tx: Transaction) -> Accepted | lookup.Refused:
        verdict = look_up(tx, parsed.evidence)
        new = None
        if isinstance(verdict, lookup.Refused) and discovery.wanted(context, verdict, parsed.evidence):
            verdict, new = _discover(context, tx, parsed, source)
        taken = (
            _take(context, tx, verdict, parsed, source, with_token=with_token)
            if isinstance(verdict, lookup.Found)
            else verdict
        )
        if isinstance(taken, lookup.Refused):
            refusals.note(context, tx, taken, source)
            return taken
        return msgspec.structs.replace(taken, discovered=new is not None)

    try:
        outcome = _until_alone(context, work)
    except NotFoundError:
        raise MissingError(LOOKUP_FAILED) from None
    if isinstance(outcome, lookup.Refused):
        raise refusals.refused(context, outcome, parsed.evidence, source)
    if outcome.discovered:
        context.meter.discovered("discovered")
        macs = list(parsed.evidence.macs[:16])
        context.log.info("machine discovered", node=outcome.node.uuid, macs=macs, source=source)
    return outcome


def _until_alone(context: ApiContext, work: Callable[[Transaction], T]) -> T:
    """Run ``work``, again where another process made a node of the same machine at the same moment."""
    for _ in range(_TRIES):
        try:
            return context.store.write(work)
        except ConflictError as exc:
            context.log.debug("another call was at the same machine", error=str(exc))
    raise UnavailableError("Too many callbacks of one machine at once. Try again in a second.", {"Retry-After": "1"})


def _discover(context: ApiContext, tx: Transaction, parsed: Parsed, source: str) -> tuple[lookup.Verdict, Node | None]:
    """Return the node of an unknown machine: a new one, or the one that was made a moment ago; or why there is none."""
    evidence = parsed.evidence
    refusal = discovery.admit(context, tx, evidence, source)
    if refusal is not None:
        return refusal, None
    verdict = look_up(tx, evidence)
    if isinstance(verdict, lookup.Found) or verdict.reason is not Reason.LOOKUP_UNKNOWN:
        return verdict, None
    owners = tx.addresses.owners(evidence.bmc_addresses)
    for owner in owners:
        if not has_macs(tx, owner):
            return refusals.not_waiting(owner), None
    node = discovery.make(context, tx, parsed, source)
    discovery.connect(context, tx, node, owners, source)
    return lookup.Found(node), node


def look_up(tx: Transaction, evidence: lookup.Evidence) -> lookup.Verdict:
    """Return the one node that the evidence means, read anew and locked; or why there is none."""
    verdict = lookup.decide(evidence, tx.addresses.candidates(evidence))
    if isinstance(verdict, lookup.Found) and verdict.bmc_alone:
        verdict = lookup.by_bmc_alone(verdict, evidence, known_macs=has_macs(tx, verdict.node))
    if isinstance(verdict, lookup.Refused):
        return verdict
    try:
        node, inspection = tx.nodes.locked(verdict.node.uuid)
        return lookup.Found(node, inspection=inspection)
    except NotFoundError:
        return lookup.Refused(Reason.LOOKUP_UNKNOWN, f"node {verdict.node.uuid} was deleted just now")


def has_macs(tx: Transaction, node: Node) -> bool:
    """Whether any MAC address of the node is known: a port's, or one that it was discovered with."""
    return bool(tx.ports.list(Query(filters={"node": node.uuid}, limit=1)) or tx.discoveries.macs(node.uuid))


def _take(
    context: ApiContext, tx: Transaction, found: lookup.Found, parsed: Parsed, source: str, *, with_token: bool
) -> Accepted | lookup.Refused:
    node, inspection = found.node, found.inspection
    if inspection is None and node.inspection is not None:  # the node has just been made
        inspection = tx.inspections.get(node.inspection)
    if inspection is None or inspection.digest != parsed.digest:
        node = discovery.contest(context, tx, node, parsed, source)
        unasked = discovery.take_unasked(context, tx, node, source)
        if isinstance(unasked, lookup.Refused):
            return unasked
        if unasked is not None:
            node, inspection = unasked, tx.inspections.get(str(unasked.inspection))
    if inspection is None:
        return refusals.not_waiting(node)
    if inspection.digest != parsed.digest:
        refusal = _submit(context, tx, node, inspection, parsed, source)
        if refusal is not None:
            return refusal
    else:
        refusals.tell(context, tx, node.uuid, _REPEATED, f"the same callback came again{_from(source)}", source=source)
    if not with_token:
        return Accepted(node)
    changed, token = agent.issue(context, node, parsed.digest)
    return Accepted(node if changed is node else tx.nodes.update(changed), token)


def _submit(
    context: ApiContext, tx: Transaction, node: Node, inspection: Inspection, parsed: Parsed, source: str
) -> lookup.Refused | None:
    """Queue the ``continue`` of a callback that is not known yet, or say why not."""
    if node.state not in MAY_CALL:
        return refusals.not_waiting(node)
    queued = _continues(tx, node) if inspection.digest is not None else []
    if any(request.payload.get("digest") == parsed.digest for request in queued) or len(queued) >= _CONTRADICTION:
        return None
    if not queued and node.state in TAKES_CALLBACK:
        tx.data.save(inspection.uuid, node.uuid, discovery.parts(node, parsed.parts))
        tx.inspections.update(inspection.uuid, digest=parsed.digest, clock_since=None)
        tx.addresses.called(node.uuid, source)
    _note_call(context, tx, node, source, first=inspection.digest is None)
    payload = {"digest": parsed.digest, "source": source}
    transition.submit(tx, node, Event.CONTINUE, process=context.process, payload=payload)
    return None


def _note_call(context: ApiContext, tx: Transaction, node: Node, source: str, *, first: bool) -> None:
    """Note from where the callback came; a different one, after the first, is worth a warning."""
    entry = transition.step(
        node,
        _CALLED if first else _CONTRADICTED,
        f"the machine called back{_from(source)}" if first else f"a different callback came{_from(source)}",
        process=context.process,
        severity=Severity.INFO if first else Severity.WARNING,
        reason=None if first else str(Reason.CONFLICTING_CALLBACK),
        detail={"source": source} if source else None,
    )
    tx.journal.append([entry])


def _from(source: str) -> str:
    return f" from {source}" if source else ""


def _continues(tx: Transaction, node: Node) -> list[Request]:
    return [request for request in tx.requests.pending(node.uuid) if request.event is Event.CONTINUE]
