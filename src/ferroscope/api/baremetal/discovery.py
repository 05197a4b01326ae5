"""Callbacks of machines whose inspection was not requested: unknown machines are enrolled, known ones inspected.

Everything happens in the transaction that handles the callback, so a node is created with its data or not at all.
Callers are anonymous: both are disabled by default, and the same limits apply to both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import refusals
from ferroscope.api.baremetal.callback_body import Parsed
from ferroscope.api.http.context import ApiContext, ApiServices
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Discovers
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, lookup
from ferroscope.core.model import Document, Node
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from ferroscope_client.core.values import limit_key, many

# A rejected machine is not discovered again for a month. It may boot daily until it is removed.
REJECTION_SECONDS: Final = 30 * 86_400.0
# A source address may have a fifth of [auto_discovery] max_waiting, so that others can still enroll theirs. In a small
# installation all machines may be behind one address.
PARTS_OF_MAX_WAITING: Final = 5
MIN_WAITING_OF_SOURCE: Final = 200
# Discovered machines of one source address in one api process: a fifth of the default limit for all sources.
MAX_PER_MINUTE_OF_SOURCE: Final = 120
# Seconds for which a full inbox is not counted again.
_FULL_SECONDS: Final = 1.0
_IDENTITY: Final = "identity"
_SEEN: Final = "seen-elsewhere"
_CLAIMED: Final = "claimed-twice"
_MAX_CONNECTED_NODES: Final = 4
_MAX_CLAIMS: Final = 8
_MAX_CLAIMED_MACS: Final = 16


def may_enroll(settings: Settings, refusal: lookup.LookupRefusal, evidence: lookup.Evidence) -> bool:
    """Return whether this machine, which has no node, may be enrolled."""
    return settings.auto_discovery.enabled and refusal.reason is Reason.LOOKUP_UNKNOWN and lookup.discoverable(evidence)


def admit(context: ApiContext, tx: Transaction, evidence: lookup.Evidence, source: str) -> lookup.LookupRefusal | None:
    """Return why the machine must not be enrolled; None if it may be. Then no other transaction can enroll it."""
    refusal = lookup.refuse_rejected(tx.rejections.find(evidence.macs), tx.now - REJECTION_SECONDS)
    return refusal or _limit(context, tx, source, count_waiting=True, count_bytes=True)


def make(
    context: ApiContext, tx: Transaction, parsed: Parsed, macs: Sequence[str], machine: MachineIdentity, source: str
) -> Node:
    """Return the machine's new node, ``enrolling``; ``ConflictError`` if one was created concurrently.

    ``macs`` are those that no other node has.
    """
    settings, evidence = context.settings.auto_discovery, parsed.evidence
    node = Node(
        uuid=context.process.new_uuid(),
        driver=settings.driver,
        driver_info=_driver_info(context.services, settings.driver, evidence.bmc_addresses),
        auto_discovered=True,
        inbox=settings.approve == "manual",
        internal={lookup.DISCOVERY: {"source": source, "mac": evidence.boot_mac or macs[0]} | _identity(machine)},
        created_at=tx.now,
    )
    if node.driver_info:
        bmc_access.confirm(node, by_operator=False)
    transition.add_node(tx, node)
    tx.discoveries.add(node.uuid, macs, limit_key(source))
    tx.addresses.set_bmc(node.uuid, evidence.bmc_addresses)
    tx.addresses.called(node.uuid, source)
    message = "callback of an unknown machine" + ("; the node waits in the inbox" if node.inbox else "")
    return transition.enroll(tx, node, message, inspection=context.process.new_uuid(), process=context.process.name)


def _driver_info(services: ApiServices, name: str, bmc_addresses: Sequence[str]) -> Document:
    """Return the driver_info for the BMC address that the machine reports; the first address is used."""
    if not bmc_addresses:
        return {}
    driver, address = services.drivers[name], bmc_addresses[0]
    return driver.driver_info(address) if isinstance(driver, Discovers) else {f"{name}_address": address}


def connect(context: ApiContext, tx: Transaction, node: Node, owners: Sequence[Node], source: str) -> None:
    """Record on both nodes that the new machine may be a known one: by its BMC address, or by its source address."""
    for owner in owners[:_MAX_CONNECTED_NODES]:
        message = f"a machine with this node's BMC address but other MAC addresses was discovered as node {node.uuid}"
        _connect(context, tx, node, owner, message, "same BMC address as", source)
    waiting = [caller for caller in tx.addresses.callers(source) if caller.uuid != node.uuid]
    if len(waiting) == 1 and not owners:
        message = f"a machine with this node's source address ({source}) was discovered as node {node.uuid}"
        _connect(context, tx, node, waiting[0], message, "same source address as", source)


def _connect(context: ApiContext, tx: Transaction, node: Node, owner: Node, there: str, here: str, source: str) -> None:
    detail = {"nodes": [node.uuid, owner.uuid]}
    message = f"{here} node {owner.uuid}, which is {owner.provision_state}"
    for uuid, text in ((owner.uuid, there), (node.uuid, message)):
        refusals.add_entry(
            context.process, tx, uuid, _SEEN, text, source=source, reason=Reason.LOOKUP_CONFLICT, detail=detail
        )


def contest(context: ApiContext, tx: Transaction, node: Node, parsed: Parsed, source: str) -> Node:
    """Return a node of the inbox, with a claim if another source calls as this machine or with some of its MACs."""
    record = origin(node)
    if not record or record.get("source") == source:
        return node
    claims = [claim for claim in record.get("claims", []) if isinstance(claim, dict)]
    if len(claims) >= _MAX_CLAIMS or any(claim.get("source") == source for claim in claims):
        return node
    shared = sorted(set(tx.discoveries.macs(node.uuid)).intersection(parsed.evidence.macs))
    claims.append({"source": source, "macs": shared[:_MAX_CLAIMED_MACS], "at": tx.now})
    message = f"a machine at {source} claims MAC addresses of this one, which called from {record.get('source')}"
    refusals.add_entry(context.process, tx, node.uuid, _CLAIMED, message, source=source, reason=Reason.LOOKUP_CONFLICT)
    changed = msgspec.structs.replace(node, internal=node.internal | {lookup.DISCOVERY: record | {"claims": claims}})
    return tx.nodes.update(changed)


def _identity(machine: MachineIdentity) -> Document:
    numbers = {"serial": machine.serial, "uuid": machine.uuid}
    return {_IDENTITY: numbers | {"macs": []}} if machine.serial or machine.uuid else {}


def identity(node: Node) -> MachineIdentity | None:
    """Return the serial number and system UUID with which a node was discovered."""
    return machine_identity.decode_identity(origin(node).get(_IDENTITY))


def origin(node: Node) -> Document:
    """Return the data of the call by which a node was discovered: ``source``, ``mac`` and ``claims`` of others."""
    record = node.internal.get(lookup.DISCOVERY)
    return record if isinstance(record, dict) else {}


def banned_macs(tx: Transaction, node: Node) -> set[str]:
    """Return the MAC addresses by which a rejected machine is recognized: the one that it booted from.

    A caller may list MAC addresses of other machines. So its other addresses are not banned, and neither is one that
    another source claims. If the machine does not report its boot NIC, its first MAC address is used.
    """
    ports = tx.ports.list(Query(filters={"node": node.uuid}))
    own = {*tx.discoveries.macs(node.uuid), *(port.address for port in ports)}
    record = origin(node)
    if not record:
        return own
    claimed = {mac for claim in record.get("claims", []) for mac in claim.get("macs", [])}
    return {str(record.get("mac"))} & (own - claimed)


def take_unasked(context: ApiContext, tx: Transaction, node: Node, source: str) -> Node | lookup.LookupRefusal | None:
    """Return the node as ``enrolling`` if its machine may call without a requested inspection; None if it may not.

    Machines in use may, if ``[inspector] permit_active`` is set, and so may discovered ones whose inspection failed.
    """
    in_use = context.settings.inspector.permit_active and node.provision_state is Provision.AVAILABLE
    again = node.auto_discovered and node.provision_state is Provision.ENROLL and node.state is State.ERROR
    if not in_use and not (again and context.settings.auto_discovery.enabled):
        return None
    refusal = _limit(context, tx, source, count_waiting=False, count_bytes=not in_use)
    if refusal is not None:
        return msgspec.structs.replace(refusal, nodes=(node.uuid,))
    tx.discoveries.add(node.uuid, ())
    message = "callback of a machine in use" if in_use else "the discovered machine called back again"
    return transition.enroll(tx, node, message, inspection=context.process.new_uuid(), process=context.process.name)


def _limit(
    context: ApiContext, tx: Transaction, source: str, *, count_waiting: bool, count_bytes: bool
) -> lookup.LookupRefusal | None:
    """Return the refusal if a limit is reached: machines per minute, waiting machines, or their bytes."""
    now = context.process.clock.monotonic()
    refusal = context.access.refusal_cache.get(now)
    if refusal is not None:
        return refusal
    settings = context.settings.auto_discovery
    limits = lookup.DiscoveryLimits(per_minute=settings.max_per_minute, waiting=settings.max_waiting)
    minute = math.floor(tx.now / lookup.PERIOD_SECONDS)
    made = tx.discoveries.created_in(minute)
    unclaimed = tx.discoveries.unclaimed() if count_waiting else 0
    refusal = lookup.too_many(limits, made=made, unclaimed=unclaimed)
    if refusal is None and count_bytes:
        refusal = lookup.too_large(tx.discoveries.unclaimed_bytes(), settings.max_waiting, "max_waiting")
    if refusal is not None:
        left = (minute + 1) * lookup.PERIOD_SECONDS - tx.now if made >= limits.per_minute else _FULL_SECONDS
        context.access.refusal_cache.put(refusal, now + left)
        return refusal
    return _limit_of(context, tx, limit_key(source), minute, count_waiting=count_waiting, count_bytes=count_bytes)


def _limit_of(
    context: ApiContext, tx: Transaction, source: str, minute: int, *, count_waiting: bool, count_bytes: bool
) -> lookup.LookupRefusal | None:
    """Return the refusal if this source has reached its limits; other sources are not affected."""
    most = max(MIN_WAITING_OF_SOURCE, context.settings.auto_discovery.max_waiting // PARTS_OF_MAX_WAITING)
    if count_waiting and source and tx.discoveries.unclaimed(source) >= most:
        message = f"{source} has reached its share of [auto_discovery] max_waiting ({many(most, 'discovered node')})"
        return lookup.LookupRefusal(Reason.DISCOVERY_LIMITED, message)
    if count_bytes and source:
        stored = tx.discoveries.unclaimed_bytes(source)
        refusal = lookup.too_large(stored, most, f"max_waiting that {source} may have")
        if refusal is not None:
            return refusal
    if source and context.access.sources.count_call(source, minute) > MAX_PER_MINUTE_OF_SOURCE:
        message = f"{source} has reached its limit of {MAX_PER_MINUTE_OF_SOURCE} discovered machines per minute"
        return lookup.LookupRefusal(Reason.DISCOVERY_LIMITED, message)
    return None
