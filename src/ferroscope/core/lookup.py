"""Which node called back? One and only one node for a UUID, MACs and BMC addresses, or none.

The caller brings the candidates that indexed tables gave; this decides. Every refusal looks the
same from outside (404), so the reason is part of the verdict, for the log and the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope.core.reasons import Reason


class Evidence(msgspec.Struct, frozen=True):
    """What the machine said of itself."""

    uuid: str | None = None
    macs: tuple[str, ...] = ()
    bmc_addresses: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.uuid or self.macs or self.bmc_addresses)


class Candidates(msgspec.Struct, frozen=True):
    """The nodes that match each kind of evidence; ``by_bmc`` only those that wait for a callback."""

    by_uuid: Node | None = None
    by_mac: Sequence[Node] = ()
    by_bmc: Sequence[Node] = ()


class Found(msgspec.Struct, frozen=True):
    """Exactly this node; ``bmc_alone``: by the address of its BMC and nothing else.

    ``inspection`` is its present one, once the node was read anew and locked.
    """

    node: Node
    bmc_alone: bool = False
    inspection: Inspection | None = None


class Refused(msgspec.Struct, frozen=True):
    """No node, or not a single one; ``nodes`` are the UUIDs concerned."""

    reason: Reason
    message: str
    nodes: tuple[str, ...] = ()


Verdict = Found | Refused


def decide(evidence: Evidence, candidates: Candidates) -> Verdict:
    """Return the one node that satisfies all the evidence, or why there is none."""
    if evidence.uuid and candidates.by_uuid is None:
        return Refused(Reason.LOOKUP_UNKNOWN, f"no node has the UUID {evidence.uuid}")
    if len(candidates.by_mac) > 1:
        return _several("MAC addresses", candidates.by_mac)
    node = candidates.by_uuid
    if candidates.by_mac:
        by_mac = candidates.by_mac[0]
        if node is not None and node.uuid != by_mac.uuid:
            return _conflict("the UUID", node, "MAC addresses", by_mac)
        node = by_mac
    if node is None:
        if len(candidates.by_bmc) > 1:
            return _several("BMC addresses", candidates.by_bmc)
        if not candidates.by_bmc:
            return Refused(Reason.LOOKUP_UNKNOWN, "no node has any of these addresses")
        return Found(candidates.by_bmc[0], bmc_alone=True)
    if candidates.by_bmc and node.uuid not in {other.uuid for other in candidates.by_bmc}:
        return _conflict("UUID or MAC addresses", node, "BMC addresses", candidates.by_bmc[0])
    return Found(node)


def by_bmc_alone(found: Found, evidence: Evidence, *, known_macs: bool) -> Verdict:
    """Return the verdict on a machine of which only the BMC's address is known: its node must have no MAC.

    Addresses of BMCs are guessed easily, and a machine whose MACs are known has others only if it is another one.
    """
    if not found.bmc_alone or not known_macs:
        return found
    said = ", ".join(evidence.macs[:4]) or "no MAC address"
    message = f"its BMC address is that of node {found.node.uuid}, whose NICs are others than {said}"
    return Refused(Reason.LOOKUP_BMC_ALONE, message, (found.node.uuid,))


def _several(what: str, nodes: Sequence[Node]) -> Refused:
    uuids = tuple(sorted(node.uuid for node in nodes))
    return Refused(Reason.LOOKUP_AMBIGUOUS, f"{what} match the nodes {', '.join(uuids)}", uuids)


def _conflict(one: str, node: Node, two: str, other: Node) -> Refused:
    message = f"{one} belong to node {node.uuid}, {two} to node {other.uuid}"
    return Refused(Reason.LOOKUP_CONFLICT, message, (node.uuid, other.uuid))


# What is decided about a machine that nobody enrolled: whether it becomes a node, and with which BMC. Pure.
#
# Callers are anonymous, so everything here is about keeping what they can cause small.

# Machines are counted by the minute of the database's clock.
PERIOD: Final = 60.0


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A MAC address of a machine that somebody rejected when it was the node ``node``."""

    address: str
    node: str
    rejected_at: float
    source: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines may be discovered in a minute, and how many may wait to be taken over."""

    per_minute: int
    waiting: int


def discoverable(evidence: Evidence) -> bool:
    """Whether a machine that no node fits may become one: it must not claim to be a node, and have a MAC."""
    return evidence.uuid is None and bool(evidence.macs)


def too_many(limits: Limits, *, made: int, unclaimed: int) -> Refused | None:
    """Return the refusal where a limit is reached: ``made`` in this minute, ``unclaimed`` so far."""
    if made >= limits.per_minute:
        return Refused(
            Reason.DISCOVERY_LIMITED,
            f"{made} machines were discovered in this minute, and [auto_discovery] max_per_minute permits no more",
        )
    if unclaimed >= limits.waiting:
        return Refused(
            Reason.DISCOVERY_LIMITED,
            f"{unclaimed} discovered nodes are in enroll, and [auto_discovery] max_waiting permits no more",
        )
    return None


def rejected(rejections: Sequence[Rejection], since: float) -> Refused | None:
    """Return the refusal where one of the machine's addresses was rejected at or after ``since``."""
    for rejection in rejections:
        if rejection.rejected_at >= since:
            message = f"{rejection.address} belongs to a machine that was rejected when it was node {rejection.node}"
            return Refused(Reason.DISCOVERY_REJECTED, message)
    return None
