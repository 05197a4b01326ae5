"""The endpoints for ramdisks without authentication besides callbacks: lookup and heartbeat.

Errors do not reveal their reason. Source: the Bare Metal API reference and the Introspection API reference, as
ironic-python-agent uses them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.api.baremetal import agent, refusals
from ferroscope.api.baremetal.machine_lookup import look_up
from ferroscope.api.errors import LOOKUP_FAILED, BadRequestError, MissingError
from ferroscope.api.http import decoding
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Mac, Uuid
from ferroscope.contracts.errors import NotFoundError
from ferroscope.core import lookup
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.core.mac_addresses import written_mac
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import RAMDISK

_TOKEN_SINCE: Final = 62
# Fields of a heartbeat -> microversion in which they appeared.
HEARTBEAT_SINCE: Final = 22
_HEARTBEAT_SINCE: Final = {
    "agent_version": 36,
    "agent_verify_ca": 68,
    "agent_status": 72,
    "agent_status_message": 72,
}
_STATUSES: Final = ("start", "end", "error")


class LookupQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/lookup; at least one of the two."""

    addresses: list[Mac] | None = None
    node_uuid: Uuid | None = None


class Heartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/heartbeat/{node}."""

    callback_url: Annotated[str, msgspec.Meta(max_length=2048)]
    agent_token: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    agent_version: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    agent_verify_ca: str | None = None
    agent_status: str | None = None
    agent_status_message: str | None = None


class NamedHeartbeat(Heartbeat, frozen=True, forbid_unknown_fields=True):
    """POST /v1/heartbeat: the node is in the body."""

    node_ident: Annotated[str, msgspec.Meta(max_length=255)] | None = None


def get_lookup(context: ApiContext, call: RouteCall[LookupQuery, None]) -> Reply:
    """Return the node that a ramdisk runs on; the first response has the agent's token, unless the boot delivers it."""
    ignored = context.settings.inspector.ignored
    macs = dict.fromkeys(filter(None, map(ignored.identifying, map(written_mac, call.query.addresses or []))))
    uuid = decoding.uuid("node_uuid", call.query.node_uuid) if call.query.node_uuid is not None else None
    if len(macs) > lookup.MAX_MACS:
        raise BadRequestError(f"Too many addresses: {len(macs)}; at most {lookup.MAX_MACS} are allowed.")
    evidence = lookup.Evidence(uuid=uuid, macs=tuple(macs))
    if not evidence:
        raise BadRequestError("No lookup information provided: set node_uuid, or a valid MAC address in addresses.")

    def work(tx: Transaction) -> tuple[Node, str | None] | lookup.LookupRefusal:
        verdict = look_up(tx, evidence, expected=RAMDISK)
        if isinstance(verdict, lookup.NodeMatch) and verdict.node.state not in RAMDISK:
            message = f"unexpected lookup: the inspection is {verdict.node.state}"
            verdict = lookup.LookupRefusal(Reason.LOOKUP_NOT_WAITING, message, (verdict.node.uuid,))
        if isinstance(verdict, lookup.LookupRefusal):
            machine = MachineIdentity(macs=evidence.macs)
            refusals.note(context, tx, verdict, call.source, step=refusals.RAMDISK_STEP, noun="lookup", machine=machine)
            return verdict
        tx.addresses.called(verdict.node.uuid, call.source)
        if call.minor < _TOKEN_SINCE:
            return verdict.node, None
        node, token = agent.issue(context.process, verdict.node, verdict.inspection, None, proven=False)
        return (node if node is verdict.node else tx.nodes.update(node)), token

    outcome = context.data.store.write(work)
    if isinstance(outcome, lookup.LookupRefusal):
        raise refusals.log_refusal(context, outcome, evidence, call.source)
    node, token = outcome
    return Reply(200, agent.answer(context.settings, node, token, call.url))


def heartbeat(context: ApiContext, call: RouteCall[NoQuery, Heartbeat]) -> Reply:
    """Record a ramdisk's heartbeat; its token authenticates it."""
    return _beat(context, call, call.body, call.path["node"])


def heartbeat_by_name(context: ApiContext, call: RouteCall[NoQuery, NamedHeartbeat]) -> Reply:
    """Record a heartbeat that has its node in the body."""
    body = call.body
    if body.node_ident is None:
        raise BadRequestError("Missing mandatory parameter: node_ident")
    if call.minor < HEARTBEAT_SINCE:
        raise MissingError(LOOKUP_FAILED)
    return _beat(context, call, body, body.node_ident)


def _beat(context: ApiContext, call: RouteCall[NoQuery, Any], body: Heartbeat, named: str) -> Reply:
    _check_heartbeat(body, call.minor)
    ident = decoding.ident("node", named)

    token = body.agent_token or ""

    def check(tx: Transaction) -> Node | lookup.LookupRefusal:
        outcome = _owner(tx, ident, token)
        return (
            refusals.only_due(tx, outcome, refusals.RAMDISK_STEP)
            if isinstance(outcome, lookup.LookupRefusal)
            else outcome
        )

    def work(tx: Transaction) -> bool:
        node = _owner(tx, ident, token, lock=True)
        if isinstance(node, lookup.LookupRefusal):
            return False
        if agent.has_other_url(node, body.callback_url):
            raise BadRequestError("The callback_url differs from that of the previous heartbeat.")
        tx.nodes.update(agent.with_heartbeat(node, url=body.callback_url, version=body.agent_version, at=tx.now))
        return True

    checked = context.data.store.read(check)  # callers are anonymous: nothing is locked before the token is verified
    if isinstance(checked, lookup.LookupRefusal):
        if checked.nodes:
            refusals.write_note(context, checked, call.source, step=refusals.RAMDISK_STEP, noun="heartbeat")
        raise MissingError(LOOKUP_FAILED)
    if not context.data.store.write(work):
        raise MissingError(LOOKUP_FAILED)
    return Reply(202)


def _owner(tx: Transaction, ident: str, token: str, *, lock: bool = False) -> Node | lookup.LookupRefusal:
    """Return the node whose ramdisk has this token, or the refusal, which names only a node that waits for one."""
    try:
        node = tx.nodes.get(ident, lock=lock)
        inspection = tx.inspections.get(node.inspection) if node.inspection is not None else None
    except NotFoundError:
        return lookup.LookupRefusal(Reason.LOOKUP_UNKNOWN, "heartbeat of an unknown node")
    if node.state not in RAMDISK:
        return lookup.LookupRefusal(Reason.LOOKUP_NOT_WAITING, f"unexpected heartbeat: the inspection is {node.state}")
    if not agent.owns(node, inspection, token):
        return lookup.LookupRefusal(Reason.CALLBACK_UNPROVEN, "heartbeat with a wrong token", (node.uuid,))
    return node


def _check_heartbeat(body: Heartbeat, minor: int) -> None:
    for name, since in _HEARTBEAT_SINCE.items():
        if minor < since and getattr(body, name) is not None:
            raise BadRequestError(f"The field {name} requires API version 1.{since}.")
    if body.callback_url and not _is_http(body.callback_url):
        raise BadRequestError("Invalid callback_url: it must be an http or https URL.")
    if why := refusal_of_urls(body.callback_url):
        raise BadRequestError(f"Invalid callback_url: {why}.")
    if body.agent_token is None:
        raise BadRequestError("agent_token is required: the response to the lookup contains it.")
    if body.agent_status is not None and body.agent_status not in _STATUSES:
        raise BadRequestError(f"agent_status must be one of {', '.join(_STATUSES)}.")


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False
