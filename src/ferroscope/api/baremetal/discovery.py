"""Machines that call without having been asked: unknown ones become nodes, known ones in use are looked at.

All of it happens in the transaction that accepts the callback, so a machine is a node with its data or it
is nothing. Callers are anonymous: both are off by default, and both are counted against one limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import refusals
from ferroscope.api.baremetal.callback_body import Parsed
from ferroscope.api.http import rate_limit
from ferroscope.api.http.route import ApiContext
from ferroscope.contracts.bmc import Discovers
from ferroscope.contracts.data import Part
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import bmc_access, lookup
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.states import ACTIVE, Provision, State

# For so long a full inbox is not looked into again.
_FULL_SECONDS: Final = 1.0
# What a discovered node notes of the call that made it, in its internal data.
_KEY: Final = "discovery"
_SEEN: Final = "seen-elsewhere"
_CLAIMED: Final = "claimed-twice"
_CONNECTED: Final = 4
_CLAIMS: Final = 8
_CLAIMED_MACS: Final = 16

_encode = msgspec.json.Encoder().encode
_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def wanted(context: ApiContext, refusal: lookup.Refused, evidence: lookup.Evidence) -> bool:
    """Whether this machine, for which there is no node, may become one."""
    return (
        context.settings.auto_discovery.enabled
        and refusal.reason is Reason.LOOKUP_UNKNOWN
        and lookup.discoverable(evidence)
    )


def admit(context: ApiContext, tx: Transaction, evidence: lookup.Evidence, source: str) -> lookup.Refused | None:
    """Return why the machine must not become a node; None where it may, and then nobody else can make one now."""
    settings = context.settings.auto_discovery
    since = tx.now - settings.remember_rejected if settings.remember_rejected else 0.0
    refusal = lookup.rejected(tx.rejections.find(evidence.macs), since)
    return refusal or _limit(context, tx, source, count_waiting=True)


def make(context: ApiContext, tx: Transaction, parsed: Parsed, source: str) -> Node:
    """Return the machine's new node, ``enrolling``; ``ConflictError`` where one was made at this moment."""
    settings, evidence = context.settings.auto_discovery, parsed.evidence
    node = Node(
        uuid=context.new_uuid(),
        driver=settings.driver,
        driver_info=_driver_info(context, settings.driver, evidence.bmc_addresses),
        auto_discovered=True,
        inbox=settings.approve == "manual",
        internal={_KEY: {"source": source, "mac": parsed.boot_mac or evidence.macs[0]}},
        created_at=tx.now,
    )
    if node.driver_info:
        bmc_access.confirm(node, by_operator=False)
    tx.nodes.add(node)
    tx.discoveries.add(node.uuid, evidence.macs, rate_limit.group(source))
    tx.addresses.set_bmc(node.uuid, evidence.bmc_addresses)
    tx.addresses.called(node.uuid, source)
    what = "an unknown machine called" + (", and waits in the inbox" if node.inbox else "")
    return transition.enroll(tx, node, what, inspection=context.new_uuid(), process=context.process)


def _driver_info(context: ApiContext, name: str, bmc_addresses: Sequence[str]) -> Document:
    """Return what the machine says of its BMC, as its driver wants it; the first address wins."""
    if not bmc_addresses:
        return {}
    driver, address = context.drivers[name], bmc_addresses[0]
    return driver.driver_info(address) if isinstance(driver, Discovers) else {f"{name}_address": address}


def connect(context: ApiContext, tx: Transaction, node: Node, owners: Sequence[Node], source: str) -> None:
    """Note on both sides that the new node's machine may be one that is known by its BMC, or by where it calls from."""
    for other in owners[:_CONNECTED]:
        what = f"a machine with this node's BMC address and other MAC addresses was discovered as node {node.uuid}"
        _connect(context, tx, node, other, what, "its BMC address is that of", source)
    waiting = [one for one in tx.addresses.callers(source) if one.uuid != node.uuid]
    if len(waiting) == 1 and not owners:
        what = f"a machine that called from {source}, as this one did before, was discovered as node {node.uuid}"
        _connect(context, tx, node, waiting[0], what, "it called from the address of", source)


def _connect(context: ApiContext, tx: Transaction, node: Node, other: Node, there: str, here: str, source: str) -> None:
    said = {"nodes": [node.uuid, other.uuid]}
    message = f"{here} node {other.uuid}, which is {other.provision_state}"
    refusals.tell(context, tx, other.uuid, _SEEN, there, source=source, reason=Reason.LOOKUP_CONFLICT, detail=said)
    refusals.tell(context, tx, node.uuid, _SEEN, message, source=source, reason=Reason.LOOKUP_CONFLICT, detail=said)


def contest(context: ApiContext, tx: Transaction, node: Node, parsed: Parsed, source: str) -> Node:
    """Return a discovered node with a mark where somebody else says to be it, or to have some of its MACs."""
    known = origin(node)
    if not node.inbox or not known or known.get("source") == source:
        return node
    claims = [claim for claim in known.get("claims", []) if isinstance(claim, dict)]
    if len(claims) >= _CLAIMS or any(claim.get("source") == source for claim in claims):
        return node
    shared = sorted(set(tx.discoveries.macs(node.uuid)).intersection(parsed.evidence.macs))
    claims.append({"source": source, "macs": shared[:_CLAIMED_MACS], "at": tx.now})
    message = f"a machine at {source} claims MAC addresses of this one, which called from {known.get('source')}"
    refusals.tell(context, tx, node.uuid, _CLAIMED, message, source=source, reason=Reason.LOOKUP_CONFLICT)
    changed = msgspec.structs.replace(node, internal=node.internal | {_KEY: known | {"claims": claims}})
    return tx.nodes.update(changed)


def origin(node: Node) -> Document:
    """Return what is known of the call by which a node was discovered: ``source``, ``mac`` and others' ``claims``."""
    found = node.internal.get(_KEY)
    return found if isinstance(found, dict) else {}


def banned(tx: Transaction, node: Node) -> set[str]:
    """Return the MACs by which a rejected machine is known again: the one that it booted from.

    Whoever calls may list other machines' MACs, so these are left alone, and so is one that another caller has too.
    A machine that does not say how it booted is known by its first.
    """
    ports = tx.ports.list(Query(filters={"node": node.uuid}))
    own = {*tx.discoveries.macs(node.uuid), *(port.address for port in ports)}
    known = origin(node)
    if not known:
        return own
    claimed = {mac for claim in known.get("claims", []) for mac in claim.get("macs", [])}
    return {str(known.get("mac"))} & (own - claimed)


def take_unasked(context: ApiContext, tx: Transaction, node: Node, source: str) -> Node | lookup.Refused | None:
    """Return the node, ``enrolling``, where its machine may call unasked; None where it may not.

    That are machines in use, if ``[inspector] permit_active``, and discovered ones whose data was no good.
    """
    if node.state in ACTIVE:
        return None
    in_use = context.settings.inspector.permit_active and node.provision_state is Provision.AVAILABLE
    again = node.auto_discovered and node.provision_state is Provision.ENROLL and node.state is State.ERROR
    if not in_use and not (again and context.settings.auto_discovery.enabled):
        return None
    refusal = _limit(context, tx, source, count_waiting=False)
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


def _limit(context: ApiContext, tx: Transaction, source: str, *, count_waiting: bool) -> lookup.Refused | None:
    now = context.clock.monotonic()
    refusal = context.refusal_cache.get(now)
    if refusal is not None:
        return refusal
    settings = context.settings.auto_discovery
    limits = lookup.Limits(per_minute=settings.max_per_minute, waiting=settings.max_waiting)
    minute = math.floor(tx.now / lookup.PERIOD)
    made = tx.discoveries.made(minute)
    unclaimed = tx.discoveries.unclaimed() if count_waiting else 0
    refusal = lookup.too_many(limits, made=made, unclaimed=unclaimed)
    if refusal is not None:
        left = (minute + 1) * lookup.PERIOD - tx.now if made >= limits.per_minute else _FULL_SECONDS
        context.refusal_cache.put(refusal, now + left)
        return refusal
    return _limit_of(context, tx, rate_limit.group(source), minute, count_waiting=count_waiting)


def _limit_of(
    context: ApiContext, tx: Transaction, source: str, minute: int, *, count_waiting: bool
) -> lookup.Refused | None:
    """Return the refusal where this source has had its share; the others have not to suffer for it."""
    settings = context.settings.auto_discovery
    most = settings.max_waiting_per_source
    if count_waiting and source and most and tx.discoveries.unclaimed(source) >= most:
        message = f"{most} nodes in enroll were discovered by calls from {source}, and "
        return lookup.Refused(
            Reason.DISCOVERY_LIMITED, f"{message}[auto_discovery] max_waiting_per_source permits no more"
        )
    most = settings.max_per_minute_per_source
    if source and most and context.sources.made(source, minute) > most:
        message = f"{most} machines were discovered in this minute by calls from {source}, and "
        return lookup.Refused(
            Reason.DISCOVERY_LIMITED, f"{message}[auto_discovery] max_per_minute_per_source permits no more"
        )
    return None
