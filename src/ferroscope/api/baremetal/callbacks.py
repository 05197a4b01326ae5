"""Callbacks: look up the machine, store its data, and queue ``continue``, in one transaction.

An unknown machine is enrolled first, if discovery is enabled (see ``discovery``). A repeated callback gets the same
response as the first and starts nothing. A different callback while the first is being processed is queued without its
data: the worker ends that inspection in error. All refusals look the same to the caller; the reason is logged and
recorded in the journal.

Source: the Bare Metal API reference and the Introspection API reference, as ironic-python-agent uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import agent, callback_body, discovery, machine_lookup, refusals
from ferroscope.api.baremetal.callback_body import Parsed, ToStore
from ferroscope.api.errors import LOOKUP_FAILED, ApiError, BadRequestError, MissingError, UnavailableError
from ferroscope.api.http import decoding
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.route import Reply, RouteCall
from ferroscope.api.http.schemas import Uuid
from ferroscope.boot_config import ipxe
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.core import lookup
from ferroscope.core.lookup import CallbackProof, CallbackVerdict
from ferroscope.core.model import Inspection, Node, Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import ACTIVE, AWAITED, MAY_CALL, TAKES_CALLBACK, Event, State
from ferroscope.db import Transaction
from ferroscope.hardware.machine_identity import MachineIdentity

T = TypeVar("T")

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


class Elsewhere(msgspec.Struct, frozen=True):
    """Another service that may wait for a callback. ``concerns``: whether to forward a callback that is refused here.
    ``forward``: the node by which it accepted the callback; None if it refused it."""

    concerns: Callable[[lookup.LookupRefusal], bool] = lambda _refusal: False
    forward: Callable[[lookup.LookupRefusal], Node | None] = lambda _refusal: None


_NOWHERE: Final = Elsewhere()


class _ReceivedCallback(msgspec.Struct, frozen=True):
    """A callback, with the secret in its query and the address it came from; ``machine``: as it describes itself."""

    parsed: Parsed
    machine: MachineIdentity
    to_store: ToStore
    secret: str | None
    source: str


def continue_inspection(context: ApiContext, call: RouteCall[CallbackQuery, None]) -> Reply:
    """Accept a ramdisk's inspection data and queue its processing."""
    new = call.minor >= CALLBACK_SINCE
    node_uuid = call.query.node_uuid
    if not new and (call.minor != _COMPATIBLE_MINOR or node_uuid is not None):
        raise MissingError(f"API version 1.{CALLBACK_SINCE} or newer is required.")
    if node_uuid is not None:
        node_uuid = decoding.uuid("node_uuid", node_uuid)
    accepted = _accept(context, call, node_uuid, call.query.secret, with_token=new)
    if new:
        return Reply(202, agent.answer(context.settings, accepted.node, accepted.token, call.url))
    return Reply(202, CallbackAnswer(uuid=accepted.node.uuid))


def continue_introspection(context: ApiContext, call: RouteCall[ContinueQuery, None]) -> Reply:
    """Accept a ramdisk's inspection data by the Introspection API, in which a failed lookup is 400."""
    try:
        accepted = _accept(context, call, None, call.query.secret, with_token=False)
    except MissingError as exc:
        refusal = BadRequestError(exc.message)
        refusal.guesses = exc.guesses
        raise refusal from None
    return Reply(202, CallbackAnswer(uuid=accepted.node.uuid))


def _accept(
    context: ApiContext, call: RouteCall[Any, None], node_uuid: str | None, secret: str | None, *, with_token: bool
) -> CallbackResult:
    """Handle the callback.

    A callback that matches a waiting node is never refused because of failures of others with the same source address.
    """
    refusals.refuse_stranger(context, call, node_uuid, secret)
    try:
        parsed = callback_body.parse(
            call.raw,
            node_uuid,
            ignored=context.settings.inspector.ignored,
        )
    except ApiError as exc:
        refusals.unusable(context, call.raw, node_uuid, call.source, exc)
        raise
    if len(parsed.evidence.macs) > refusals.GUESSES_PER_FAILURE:  # more than most machines have, so they may be guesses
        refusals.refuse_guessing(context, call)
    # Ramdisks of ironic-inspector neither ask for a token nor name the node.
    elsewhere = (
        Elsewhere(
            lambda refusal: refusals.is_forwarded(context, refusal, call),
            lambda refusal: refusals.forward(context, refusal, call),
        )
        if not with_token
        else Elsewhere()
    )
    try:
        return handle_callback(
            context, parsed, with_token=with_token, secret=secret, source=call.source, elsewhere=elsewhere
        )
    except MissingError as exc:
        exc.guesses = max(1, len(parsed.evidence.macs))
        raise


def too_large(context: ApiContext, begins: bytes, source: str, why: ApiError) -> None:
    """Record a callback whose body exceeds the limit."""
    refusals.unusable(context, begins, None, source, why)


def handle_callback(
    context: ApiContext,
    parsed: Parsed,
    *,
    with_token: bool,
    secret: str | None = None,
    source: str = "",
    elsewhere: Elsewhere = _NOWHERE,
) -> CallbackResult:
    """Handle the callback that ``source`` sent; every refusal raises the same ``MissingError``."""
    unasked = context.settings.auto_discovery.enabled or context.settings.inspector.permit_active
    to_store = callback_body.to_store(parsed.parts, unasked=unasked)
    sent = _ReceivedCallback(parsed, machine_lookup.identity_in(parsed), to_store, secret, source)

    def work(tx: Transaction) -> CallbackResult | lookup.LookupRefusal:
        verdict = _look_up(context.settings, tx, sent)
        new = None
        if isinstance(verdict, lookup.LookupRefusal) and discovery.may_enroll(
            context.settings, verdict, parsed.evidence
        ):
            verdict, new = _discover(context, tx, sent)
        taken = (
            _take(context, tx, verdict, sent, with_token=with_token)
            if isinstance(verdict, lookup.NodeMatch)
            else verdict
        )
        if isinstance(taken, lookup.LookupRefusal):
            if elsewhere.concerns(taken):
                return taken
            refusals.note(context, tx, taken, source, machine=sent.machine)
            return taken
        return msgspec.structs.replace(taken, discovered=new is not None)

    try:
        outcome = _retry_conflicts(context, work)
        attached = context.services.attached
        if attached is not None and _is_unknown(outcome) and attached.search(context, parsed.evidence):
            outcome = _retry_conflicts(context, work)
    except NotFoundError:
        raise MissingError(LOOKUP_FAILED) from None
    if isinstance(outcome, lookup.LookupRefusal):
        if elsewhere.concerns(outcome):
            if (node := elsewhere.forward(outcome)) is not None:
                return CallbackResult(node)
            refused = outcome
            context.data.store.write(lambda tx: refusals.note(context, tx, refused, source, machine=sent.machine))
        raise refusals.log_refusal(context, outcome, parsed.evidence, source)
    if outcome.discovered:
        context.process.meter.record_discovery("discovered")
        macs = list(parsed.evidence.macs[:16])
        context.process.log.info("machine discovered", node=outcome.node.uuid, macs=macs, source=source)
    return outcome


def _is_unknown(outcome: CallbackResult | lookup.LookupRefusal) -> bool:
    return isinstance(outcome, lookup.LookupRefusal) and outcome.reason is Reason.LOOKUP_UNKNOWN


def _retry_conflicts(context: ApiContext, work: Callable[[Transaction], T]) -> T:
    """Run ``work``; retry it if another process enrolled the same machine at the same time."""
    for _ in range(_MAX_TRIES):
        try:
            return context.data.store.write(work)
        except ConflictError as exc:
            context.process.log.debug("concurrent callback of the same machine", error=str(exc))
    raise UnavailableError(
        "Too many concurrent callbacks of the same machine. Try again in a second.", {"Retry-After": "1"}
    )


def _discover(context: ApiContext, tx: Transaction, sent: _ReceivedCallback) -> tuple[lookup.Verdict, Node | None]:
    """Return the node of an unknown machine, new or just created by another call; or the refusal."""
    parsed, source, evidence = sent.parsed, sent.source, sent.parsed.evidence
    refusal = discovery.admit(context, tx, evidence, source)
    if refusal is not None:
        return refusal, None
    verdict = _look_up(context.settings, tx, sent)
    if isinstance(verdict, lookup.NodeMatch) or verdict.reason is not Reason.LOOKUP_UNKNOWN:
        return verdict, None
    owners = tx.addresses.owners(evidence.bmc_addresses)
    for owner in owners:
        if not ipxe.has_macs(tx, owner):
            return refusals.not_waiting(owner), None
    own = tuple(mac for mac in evidence.macs if mac not in verdict.elsewhere)
    node = discovery.make(context, tx, parsed, own, sent.machine, source)
    discovery.connect(context, tx, node, owners, source)
    return lookup.NodeMatch(node, elsewhere=verdict.elsewhere), node


def _look_up(settings: Settings, tx: Transaction, sent: _ReceivedCallback) -> lookup.Verdict:
    secret = lookup.searchable_secret(settings.inspector.callback_secret, sent.secret)
    return machine_lookup.look_up(tx, sent.parsed.evidence, secret=secret, machine=sent.machine)


def _take(
    context: ApiContext, tx: Transaction, match: lookup.NodeMatch, sent: _ReceivedCallback, *, with_token: bool
) -> CallbackResult | lookup.LookupRefusal:
    node, inspection, parsed, source = match.node, match.inspection, sent.parsed, sent.source
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
    verdict = lookup.judge_callback(context.settings.inspector.callback_secret, inspection, sent.secret)
    if not verdict.accepted:
        return refusals.unproven(node, verdict.proof)
    if inspection.digest != parsed.digest:
        submitted = _submit(context, tx, node, inspection, sent, verdict)
        if isinstance(submitted, lookup.LookupRefusal):
            return submitted
        node = submitted
        machine_lookup.note_elsewhere(context, tx, match, source)
    else:
        message = f"the same callback was received again{_from(source)}"
        refusals.add_entry(context.process, tx, node.uuid, _REPEATED, message, source=source)
    if not with_token:
        return CallbackResult(node)
    changed, token = agent.issue(node, inspection, parsed.digest, proven=verdict.proof is CallbackProof.VERIFIED)
    return CallbackResult(node if changed is node else tx.nodes.update(changed), token)


def _submit(
    context: ApiContext,
    tx: Transaction,
    node: Node,
    inspection: Inspection,
    sent: _ReceivedCallback,
    verdict: CallbackVerdict,
) -> Node | lookup.LookupRefusal:
    """Queue ``continue`` for a new callback and return the node; or the refusal."""
    parsed, source = sent.parsed, sent.source
    if node.state not in MAY_CALL:
        return refusals.not_waiting(node)
    differences = machine_lookup.contradictions_of(
        context.settings, node, sent.machine, proven=verdict.proof is CallbackProof.VERIFIED
    )
    if differences and inspection.digest is not None:
        return machine_lookup.refused_data(node, differences)
    queued = _continues(tx, node) if inspection.digest is not None else []
    if (
        any(request.payload.get("digest") == parsed.digest for request in queued)
        or len(queued) >= _MAX_QUEUED_CALLBACKS
    ):
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
    payload = {"digest": parsed.digest, "source": source, "identity": msgspec.structs.asdict(sent.machine)}
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
        f"{message}{_from(source)}{', without the inspection secret' if without else ''}",
        process=process.name,
        severity=Severity.INFO if reason is None else Severity.WARNING,
        reason=None if reason is None else str(reason),
        detail=({"source": source} if source else {}) | {"proof": str(verdict.proof)},
    )
    tx.journal.append([entry])


def _boots_later(tx: Transaction, node: Node) -> bool:
    """Whether the request that boots the machine is still waiting."""
    return any(request.event is Event.INSPECT and not request.progress for request in tx.requests.pending(node.uuid))


def _from(source: str) -> str:
    return f" from {source}" if source else ""


def _continues(tx: Transaction, node: Node) -> list[Request]:
    return [request for request in tx.requests.pending(node.uuid) if request.event is Event.CONTINUE]
