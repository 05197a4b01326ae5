"""Machines that call without having been asked: unknown ones become nodes, known ones in use are looked at.

All of it happens in the transaction that accepts the callback, so a machine is a node with its data or it
is nothing. Callers are anonymous: both are off by default, and both are counted against one limit.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from ferroscope import transition
from ferroscope.api.context import ApiContext
from ferroscope.domain import bmc_access, discovery, lookup
from ferroscope.domain.model import Node
from ferroscope.domain.provision import Provision
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import ACTIVE, State
from ferroscope.ports.data import Part
from ferroscope.ports.store import Transaction

# For so long a full inbox is not looked into again.
_FULL_SECONDS: Final = 1.0

_encode = msgspec.json.Encoder().encode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def wanted(context: ApiContext, refusal: lookup.Refused, evidence: lookup.Evidence) -> bool:
    """Whether this machine, for which there is no node, may become one."""
    return (
        context.settings.auto_discovery.enabled
        and refusal.reason is Reason.LOOKUP_UNKNOWN
        and discovery.discoverable(evidence)
    )


def admit(context: ApiContext, tx: Transaction, evidence: lookup.Evidence) -> lookup.Refused | None:
    """Return why the machine must not become a node; None where it may, and then nobody else can make one now."""
    settings = context.settings.auto_discovery
    since = tx.now - settings.remember_rejected if settings.remember_rejected else 0.0
    refusal = discovery.rejected(tx.rejections.find(evidence.macs), since)
    return refusal or _limit(context, tx, count_waiting=True)


def make(context: ApiContext, tx: Transaction, evidence: lookup.Evidence) -> Node:
    """Return the machine's new node, ``enrolling``; ``ConflictError`` where one was made at this moment."""
    settings = context.settings.auto_discovery
    node = Node(
        uuid=context.new_uuid(),
        driver=settings.driver,
        driver_info=discovery.driver_info(settings.driver, evidence.bmc_addresses),
        auto_discovered=True,
        inbox=settings.approve == "manual",
        created_at=tx.now,
    )
    if node.driver_info:
        bmc_access.confirm(node, by_operator=False)
    tx.nodes.add(node)
    tx.discoveries.add(node.uuid, evidence.macs)
    tx.addresses.set_bmc(node.uuid, evidence.bmc_addresses)
    what = "an unknown machine called" + (", and waits in the inbox" if node.inbox else "")
    return transition.enroll(tx, node, what, inspection=context.new_uuid(), process=context.process)


def take_unasked(context: ApiContext, tx: Transaction, node: Node) -> Node | lookup.Refused | None:
    """Return the node, ``enrolling``, where its machine may call unasked; None where it may not.

    That are machines in use, if ``[inspector] permit_active``, and discovered ones whose data was no good.
    """
    if node.state in ACTIVE:
        return None
    in_use = context.settings.inspector.permit_active and node.provision_state is Provision.AVAILABLE
    again = node.auto_discovered and node.provision_state is Provision.ENROLL and node.state is State.ERROR
    if not in_use and not (again and context.settings.auto_discovery.enabled):
        return None
    refusal = _limit(context, tx, count_waiting=False)
    if refusal is not None:
        return msgspec.structs.replace(refusal, nodes=(node.uuid,))
    tx.discoveries.add(node.uuid, ())
    what = "the machine called while in use" if in_use else "the discovered machine called again"
    return transition.enroll(tx, node, what, inspection=context.new_uuid(), process=context.process)


def parts(node: Node, sent: dict[Part, bytes]) -> dict[Part, bytes]:
    """Return what is stored of the callback; data of a machine that is being discovered says so."""
    if node.state is not State.ENROLLING or not node.auto_discovered:
        return sent
    unprocessed: dict[str, Any] = _decode_parts(sent["unprocessed"])
    unprocessed["auto_discovered"] = True
    return sent | {"unprocessed": _encode(unprocessed)}


def _limit(context: ApiContext, tx: Transaction, *, count_waiting: bool) -> lookup.Refused | None:
    now = context.clock.monotonic()
    refusal = context.valve.refusal(now)
    if refusal is not None:
        return refusal
    settings = context.settings.auto_discovery
    limits = discovery.Limits(per_minute=settings.max_per_minute, waiting=settings.max_waiting)
    minute = math.floor(tx.now / discovery.PERIOD)
    made = tx.discoveries.made(minute)
    unclaimed = tx.discoveries.unclaimed() if count_waiting else 0
    refusal = discovery.too_many(limits, made=made, unclaimed=unclaimed)
    if refusal is not None:
        left = (minute + 1) * discovery.PERIOD - tx.now if made >= limits.per_minute else _FULL_SECONDS
        context.valve.close(refusal, now + left)
    return refusal
