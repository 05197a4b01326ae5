"""Which node called back? Exactly one node for a UUID, MACs and BMC addresses, or none.

The caller supplies the candidates from indexed queries. To the caller of the API every refusal looks the same (404), so
the verdict carries the reason for the log and the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope.core.reasons import Reason


class Evidence(msgspec.Struct, frozen=True):
    """What the machine reported about itself."""

    uuid: str | None = None
    macs: tuple[str, ...] = ()
    bmc_addresses: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.uuid or self.macs or self.bmc_addresses)


class Candidates(msgspec.Struct, frozen=True):
    """The nodes that match each kind of evidence; ``by_bmc`` only has nodes that wait for a callback."""

    by_uuid: Node | None = None
    by_mac: Sequence[Node] = ()
    by_bmc: Sequence[Node] = ()


class Found(msgspec.Struct, frozen=True):
    """The node; ``bmc_alone``: it was found by its BMC address only.

    ``inspection`` is its current inspection, set once the node was locked and read again.
    """

    node: Node
    bmc_alone: bool = False
    inspection: Inspection | None = None


class Refused(msgspec.Struct, frozen=True):
    """No node, or more than one; ``nodes`` are the UUIDs concerned."""

    reason: Reason
    message: str
    nodes: tuple[str, ...] = ()


Verdict = Found | Refused


def decide(evidence: Evidence, candidates: Candidates) -> Verdict:
    """Return the one node that matches all the evidence, or why there is none."""
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
    """Return the verdict on a machine that matches by BMC address only: its node must have no MACs.

    BMC addresses are easy to guess, and a machine whose node has MACs would report one of them.
    """
    if not found.bmc_alone or not known_macs:
        return found
    macs = ", ".join(evidence.macs[:4]) or "no MAC address"
    message = f"the BMC address belongs to node {found.node.uuid}, which has other NICs than {macs}"
    return Refused(Reason.LOOKUP_BMC_ALONE, message, (found.node.uuid,))


def _several(what: str, nodes: Sequence[Node]) -> Refused:
    uuids = tuple(sorted(node.uuid for node in nodes))
    return Refused(Reason.LOOKUP_AMBIGUOUS, f"{what} match several nodes: {', '.join(uuids)}", uuids)


def _conflict(one: str, node: Node, two: str, other: Node) -> Refused:
    message = f"{one} belong to node {node.uuid}, but {two} to node {other.uuid}"
    return Refused(Reason.LOOKUP_CONFLICT, message, (node.uuid, other.uuid))


# Discovery: whether an unknown machine becomes a node, and with which BMC. Pure.
#
# Callers are anonymous, so everything here limits what they can cause.

# Discoveries are counted per minute of the database's clock.
PERIOD: Final = 60.0


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A MAC address of a machine that was rejected when it was the node ``node``."""

    address: str
    node: str
    rejected_at: float
    source: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines may be discovered per minute, and how many may await approval."""

    per_minute: int
    waiting: int


def discoverable(evidence: Evidence) -> bool:
    """Whether an unknown machine may become a node: it must have a MAC and must not claim to be a node."""
    return evidence.uuid is None and bool(evidence.macs)


def too_many(limits: Limits, *, made: int, unclaimed: int) -> Refused | None:
    """Return a refusal if a limit is reached; ``made``: discovered in this minute, ``unclaimed``: awaiting approval."""
    if made >= limits.per_minute:
        return Refused(
            Reason.DISCOVERY_LIMITED,
            f"limit reached: {made} machines discovered in this minute; see [auto_discovery] max_per_minute",
        )
    if unclaimed >= limits.waiting:
        return Refused(
            Reason.DISCOVERY_LIMITED,
            f"limit reached: {unclaimed} discovered nodes are in enroll; see [auto_discovery] max_waiting",
        )
    return None


def rejected(rejections: Sequence[Rejection], since: float) -> Refused | None:
    """Return a refusal if one of the machine's addresses was rejected at or after ``since``."""
    for rejection in rejections:
        if rejection.rejected_at >= since:
            message = f"{rejection.address} belongs to a machine that was rejected as node {rejection.node}"
            return Refused(Reason.DISCOVERY_REJECTED, message)
    return None
