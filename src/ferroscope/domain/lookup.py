"""Which node called back? One and only one node for a UUID, MACs and BMC addresses, or none.

The caller brings the candidates that indexed tables gave; this decides. Every refusal looks the
same from outside (404), so the reason is part of the verdict, for the log and the journal.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ferroscope.domain.model import Inspection, Node
from ferroscope.domain.reasons import Reason


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
