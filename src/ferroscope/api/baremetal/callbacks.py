"""Callbacks: look up the machine, store its data, and queue ``continue``, in one transaction.

An unknown machine is enrolled first, if discovery is enabled (see ``discovery``). A repeated callback gets the same
response as the first and starts nothing. A different callback while the first is being processed is queued without its
data: the worker ends that inspection in error. All refusals look the same to the caller; the reason is logged and
recorded in the journal.

Source: the Bare Metal API reference and the Introspection API reference, as ironic-python-agent uses them.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import msgspec

from ferroscope import node_boot, transition
from ferroscope.api.baremetal import agent, callback_body, discovery, machine_lookup, refusals
from ferroscope.api.baremetal.callback_body import Parsed, ToStore
from ferroscope.api.errors import ApiError, BadRequestError, MissingError, UnavailableError
from ferroscope.api.http import decoding
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.route import Reply, RouteCall
from ferroscope.api.http.schemas import Uuid
from ferroscope.api.rate_limit import GUESSES_PER_FAILURE, too_many_failures
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.core import callback_secret, lookup
from ferroscope.core.callback_secret import CallbackProof, CallbackVerdict
from ferroscope.core.model import Inspection, Node, Severity
from ferroscope.core.states import AWAITED, MAY_CALL, TAKES_CALLBACK, Event
from ferroscope.db import Transaction
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import ACTIVE, State

CALLBACK_SINCE: Final = 84
_COMPATIBLE_MINOR: Final = 1
_CALLED: Final = "callback"
_REPEATED: Final = "callback-repeated"
_CLEANED: Final = "callback-cleaned"
_CONTRADICTED: Final = "callback-contradicted"
# Two different callbacks already end the inspection in error, so a third one is not queued.
_MAX_QUEUED_CALLBACKS: Final = 2
# If a new machine calls several times at once, all calls but the first conflict. They retry and find the new node.
_MAX_TRIES: Final = 5


# Secrets have 43 characters; longer ones are wrong, too.
Secret = Annotated[str, msgspec.Meta(max_length=255)]


class CallbackQuery(msgspec.Struct, frozen=True):
    """Query of POST /v1/continue_inspection; ``node_uuid`` requires version 1.84.

    ``secret``: the inspection's, as the machine got it with its boot parameters.
    """

    node_uuid: Uuid | None = None
    secret: Secret | None = None


class ContinueQuery(msgspec.Struct, frozen=True):
    """Query of POST /v1/continue; ``secret`` as in POST /v1/continue_inspection."""

    secret: Secret | None = None


class CallbackAnswer(msgspec.Struct, frozen=True):
    """The response in the form of ironic-inspector."""

    uuid: str


class CallbackResult(msgspec.Struct, frozen=True):
    """The node, and the token for its ramdisk if requested; ``discovered``: the node is new."""

    node: Node
    token: str | None = None
    discovered: bool = False


class _ReceivedCallback(msgspec.Struct, frozen=True):
    """``secret``: the one in the query, if an inspection may have it. ``with_token``: the ramdisk asks for a token."""

    call: RouteCall[Any, None]
    parsed: Parsed
    to_store: ToStore
    secret: str | None
    with_token: bool


def continue_inspection(context: ApiContext, call: RouteCall[CallbackQuery, None]) -> Reply:
    """Accept a ramdisk's inspection data and queue its processing."""
    new = call.minor >= CALLBACK_SINCE
    node_uuid = call.query.node_uuid
    if not new and (call.minor != _COMPATIBLE_MINOR or node_uuid is not None):
        raise MissingError(f"API version 1.{CALLBACK_SINCE} or newer is required.")
    if node_uuid is not None:
        node_uuid = decoding.uuid("node_uuid", node_uuid)
    accepted = _accept(context, call, node_uuid, with_token=new)
    if new:
        return Reply(202, agent.answer(context.settings, accepted.node, accepted.token, call.url))
    return Reply(202, CallbackAnswer(uuid=accepted.node.uuid))


def continue_introspection(context: ApiContext, call: RouteCall[ContinueQuery, None]) -> Reply:
    """Accept a ramdisk's inspection data by the Introspection API, in which a failed lookup is 400."""
    try:
        accepted = _accept(context, call, None, with_token=False)
    except MissingError as exc:
        refusal = BadRequestError(exc.message)
        refusal.guesses = exc.guesses
        raise refusal from None
    return Reply(202, CallbackAnswer(uuid=accepted.node.uuid))


def too_large(context: ApiContext, begins: bytes, source: str, why: ApiError) -> None:
    """Record a callback whose body exceeds the limit."""
    refusals.unusable(context, begins, None, source, why)


def _accept(
    context: ApiContext, call: RouteCall[Any, None], node_uuid: str | None, *, with_token: bool
) -> CallbackResult:
    """Handle the callback; every refusal raises the same ``MissingError``.

    A call that enrolls the same machine at the same time is a conflict; the next try finds the new node.
    """
    sent = _receive(context, call, node_uuid, with_token=with_token)
    evidence, work, attached = sent.parsed.evidence, partial(handle_callback, context, sent), context.services.attached
    try:
        for _ in range(_MAX_TRIES):
            try:
                outcome = context.data.store.write(work)
            except ConflictError as exc:
                context.process.log.debug("concurrent callback of the same machine", error=str(exc))
                continue
            if isinstance(outcome, CallbackResult):
                if outcome.discovered:
                    _report_discovery(context, sent, outcome.node)
                return outcome
            if outcome.reason is not Reason.LOOKUP_UNKNOWN or not (attached and attached.search(context, evidence)):
                return _forward_or_refuse(context, sent, outcome)
            attached = None  # the next try finds the copied node
    except NotFoundError:
        raise refusals.make_missing_error(evidence) from None
    raise UnavailableError(
        "Too many concurrent callbacks of the same machine. Try again in a second.", {"Retry-After": "1"}
    )


def _receive(
    context: ApiContext, call: RouteCall[Any, None], node_uuid: str | None, *, with_token: bool
) -> _ReceivedCallback:
    """Read the callback; ``TooManyError``, ``BadRequestError``.

    A callback that matches a waiting node is never refused because of failures of others with the same source address.
    """
    settings = context.settings.inspector
    secret = callback_secret.searchable_secret(settings.callback_secret, call.query.secret)
    if seconds := context.access.callers.wait(call.source, context.process.clock.monotonic()):
        refusals.refuse_stranger(context, call, node_uuid, secret, seconds)
    try:
        parsed = callback_body.parse(call.raw, node_uuid, ignored=settings.ignored)
    except ApiError as exc:
        refusals.unusable(context, call.raw, node_uuid, call.source, exc)
        raise
    if seconds and len(parsed.evidence.macs) > GUESSES_PER_FAILURE:  # more than most machines have, so perhaps guesses
        raise too_many_failures(seconds)
    unasked = context.settings.auto_discovery.enabled or settings.permit_active
    return _ReceivedCallback(
        call=call,
        parsed=parsed,
        to_store=callback_body.to_store(parsed.parts, unasked=unasked),
        secret=secret,
        with_token=with_token,
    )


def handle_callback(
    context: ApiContext, sent: _ReceivedCallback, tx: Transaction
) -> CallbackResult | lookup.LookupRefusal:
    """Find the machine's node, or enroll it, and take the callback; or note the refusal."""
    evidence, is_new = sent.parsed.evidence, False
    verdict = machine_lookup.look_up(tx, evidence, secret=sent.secret, machine=sent.parsed.machine)
    if isinstance(verdict, lookup.LookupRefusal) and discovery.may_enroll(context.settings, verdict, evidence):
        verdict, is_new = _discover(context, tx, sent)
    outcome = _take(context, tx, verdict, sent, is_new=is_new) if isinstance(verdict, lookup.NodeMatch) else verdict
    if isinstance(outcome, lookup.LookupRefusal) and not _is_forwarded(context, sent, outcome):
        refusals.note(context, tx, outcome, sent.call.source, machine=sent.parsed.machine)
    return outcome


def _is_forwarded(context: ApiContext, sent: _ReceivedCallback, refusal: lookup.LookupRefusal) -> bool:
    """Whether ironic-inspector may wait for it, whose ramdisks neither ask for a token nor name the node."""
    return not sent.with_token and refusals.is_forwarded(context, refusal, sent.call)


def _report_discovery(context: ApiContext, sent: _ReceivedCallback, node: Node) -> None:
    context.process.meter.record_discovery("discovered")
    macs, source = list(sent.parsed.evidence.macs[:16]), sent.call.source
    context.process.log.info("machine discovered", node=node.uuid, macs=macs, source=source)


def _forward_or_refuse(context: ApiContext, sent: _ReceivedCallback, refusal: lookup.LookupRefusal) -> CallbackResult:
    """Forward the callback to ironic-inspector if it may wait for it; raise if it does not."""
    source = sent.call.source
    if _is_forwarded(context, sent, refusal):
        if (node := refusals.forward(context, refusal, sent.call)) is not None:
            return CallbackResult(node)
        context.data.store.write(lambda tx: refusals.note(context, tx, refusal, source, machine=sent.parsed.machine))
    raise refusals.log_refusal(context, refusal, sent.parsed.evidence, source)


def _discover(context: ApiContext, tx: Transaction, sent: _ReceivedCallback) -> tuple[lookup.Verdict, bool]:
    """Return the node of an unknown machine, and whether it is new and not one of another call; or the refusal."""
    parsed, source, evidence = sent.parsed, sent.call.source, sent.parsed.evidence
    refusal = discovery.admit(context, tx, evidence, source)
    if refusal is not None:
        return refusal, False
    verdict = machine_lookup.look_up(tx, evidence, secret=sent.secret, machine=sent.parsed.machine)
    if isinstance(verdict, lookup.NodeMatch) or verdict.reason is not Reason.LOOKUP_UNKNOWN:
        return verdict, False
    owners = tx.addresses.owners(evidence.bmc_addresses)
    for owner in owners:
        if not node_boot.has_macs(tx, owner):
            return refusals.not_waiting(owner), False
    own = tuple(mac for mac in evidence.macs if mac not in verdict.elsewhere)
    node = discovery.make(context, tx, parsed, own, sent.parsed.machine, source)
    discovery.connect(context, tx, node, owners, source)
    return lookup.NodeMatch(node, elsewhere=verdict.elsewhere), True


def _take(
    context: ApiContext, tx: Transaction, match: lookup.NodeMatch, sent: _ReceivedCallback, *, is_new: bool
) -> CallbackResult | lookup.LookupRefusal:
    node, inspection, parsed, source = match.node, match.inspection, sent.parsed, sent.call.source
    if inspection is None and node.inspection is not None:  # the node has just been created
        inspection = tx.inspections.get(node.inspection)
    if inspection is None or inspection.digest != parsed.digest:
        if node.inbox:
            node = discovery.contest(context, tx, node, parsed, source)
        unasked = None if node.state in ACTIVE else discovery.take_unasked(context, tx, node, source)
        if isinstance(unasked, lookup.LookupRefusal):
            return unasked
        if unasked is not None:
            node, inspection = unasked, tx.inspections.get(str(unasked.inspection))
    if inspection is None:
        return refusals.not_waiting(node)
    if (traced := tx.call.traced) is not None and traced.inspection is None:
        traced.inspection = inspection
    verdict = callback_secret.judge(context.settings.inspector.callback_secret, inspection, sent.call.query.secret)
    if not verdict.accepted:
        return refusals.unproven(node, verdict.proof)
    if inspection.digest != parsed.digest:
        submitted = _submit(context, tx, node, inspection, sent, verdict)
        if isinstance(submitted, lookup.LookupRefusal):
            return submitted
        node = submitted
        if match.elsewhere:
            machine_lookup.note_elsewhere(context, tx, match, source)
    else:
        message = f"the same callback was received again{f' from {source}' if source else ''}"
        refusals.add_entry(context.process, tx, node.uuid, _REPEATED, message, source=source)
    if not sent.with_token:
        return CallbackResult(node, discovered=is_new)
    changed, token = agent.issue(
        context.process, node, inspection, parsed.digest, proven=verdict.proof is CallbackProof.VERIFIED
    )
    return CallbackResult(node if changed is node else tx.nodes.update(changed), token, is_new)


def _submit(
    context: ApiContext,
    tx: Transaction,
    node: Node,
    inspection: Inspection,
    sent: _ReceivedCallback,
    verdict: CallbackVerdict,
) -> Node | lookup.LookupRefusal:
    """Queue ``continue`` for a new callback and return the node; or the refusal."""
    parsed, source = sent.parsed, sent.call.source
    if node.state not in MAY_CALL:
        return refusals.not_waiting(node)
    differences = machine_lookup.contradictions_of(
        context.settings, node, sent.parsed.machine, proven=verdict.proof is CallbackProof.VERIFIED
    )
    queued: list[Any] = []
    if inspection.digest is not None:
        if differences:
            return machine_lookup.refused_data(node, differences)
        queued = [req.payload.get("digest") for req in tx.requests.pending(node.uuid) if req.event is Event.CONTINUE]
        if parsed.digest in queued or len(queued) >= _MAX_QUEUED_CALLBACKS:
            return node
    early = node.state is State.STARTING and inspection.manage_boot and _boots_later(tx, node)
    if not queued and node.state in TAKES_CALLBACK:
        tx.data.save(inspection.uuid, node.uuid, sent.to_store.by(node))
        tx.inspections.update(inspection.uuid, digest=parsed.digest, clock_since=None)
        tx.addresses.called(node.uuid, source)
        if parsed.oddities:
            message = f"odd values in the data were cleaned or ignored: {'; '.join(parsed.oddities)}"
            tx.journal.append([transition.step(node, _CLEANED, message, process=context.process.name)])
        if node.last_error is not None and node.state in AWAITED:  # of a refused callback of this machine
            node = tx.nodes.update(msgspec.structs.replace(node, last_error=None))
    _note_call(context.process, tx, node, source, verdict, first=inspection.digest is None, early=early)
    payload = {"digest": parsed.digest, "source": source, "identity": msgspec.structs.asdict(sent.parsed.machine)}
    if differences:
        return machine_lookup.hold(context.process, tx, node, payload, differences)
    if (lifted := machine_lookup.lift_hold(tx, node)) is not node:
        node = tx.nodes.update(agent.without_agent(lifted))  # the token is not that of the machine whose data was held
    transition.submit(tx, node, Event.CONTINUE, process=context.process.name, payload=payload)
    return node


def _note_call(
    process: ProcessContext,
    tx: Transaction,
    node: Node,
    source: str,
    verdict: CallbackVerdict,
    *,
    first: bool,
    early: bool,
) -> None:
    """Record the source of the callback.

    A second, different callback is a warning, and so is one without the secret that the machine got. ``early``: the
    machine has not booted for this inspection yet."""
    without = verdict.expected and verdict.proof is CallbackProof.MISSING
    message = "callback received" if first else "a different callback was received"
    if early:
        message += " of an earlier boot: the machine has not been powered on for this inspection yet"
    reason = Reason.CALLBACK_UNPROVEN if without else None if first else Reason.CONFLICTING_CALLBACK
    entry = transition.step(
        node,
        _CALLED if first else _CONTRADICTED,
        f"{message}{f' from {source}' if source else ''}{', without the inspection secret' if without else ''}",
        process=process.name,
        severity=Severity.INFO if reason is None else Severity.WARNING,
        reason=None if reason is None else str(reason),
        detail=({"source": source} if source else {}) | {"proof": str(verdict.proof)},
    )
    tx.journal.append([entry])


def _boots_later(tx: Transaction, node: Node) -> bool:
    """Whether the request that boots the machine is still waiting."""
    return any(request.event is Event.INSPECT and not request.progress for request in tx.requests.pending(node.uuid))
