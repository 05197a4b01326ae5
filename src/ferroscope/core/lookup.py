"""Which node called back? Exactly one node for a UUID, MACs, BMC addresses and an inspection's secret, or none.

The caller supplies the candidates from indexed queries. To the caller of the API every refusal looks the same (404), so
the verdict carries the reason for the log and the journal.

Callers are anonymous and may leave evidence out, so a contradiction stops mistakes but not an attacker. If evidence is
ambiguous, the most specific evidence decides: the secret of an inspection, then the node's UUID, then the NIC that
booted. The port of another project is a claim that any caller may make, and never outweighs the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope.core.states import AWAITED
from ferroscope_client.core.advice import MAX_REFUSED_CALLERS_OF_SOURCE
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.core.values import many, utc_text

DISCOVERY: Final = "discovery"
"""The key in a discovered node's internal data for the call by which it was discovered."""
MAX_MACS: Final = 512
"""The most MACs of one machine: NICs with all their virtual functions. Databases limit the parameters of a query."""
MAX_INTERFACES: Final = 2048
"""The most interfaces in an inventory, including those without a MAC."""


class Evidence(msgspec.Struct, frozen=True):
    """What the machine reported about itself; ``boot_mac`` is that of the NIC that booted, one of ``macs``."""

    uuid: str | None = None
    macs: tuple[str, ...] = ()
    bmc_addresses: tuple[str, ...] = ()
    boot_mac: str | None = None

    def __bool__(self) -> bool:
        return bool(self.uuid or self.macs or self.bmc_addresses)


class Candidates(msgspec.Struct, frozen=True):
    """The nodes that match each kind of evidence; ``by_bmc`` only has nodes that wait for a callback.

    ``matches``: which node has which of the MACs, as a port or from its discovery. ``by_secret``: the node whose
    current inspection has the presented secret; ``over_bmc``: its machine got it from its BMC, by virtual media.
    ``same`` and ``different``: UUIDs of nodes whose machines reported the same, or a different, serial number or system
    UUID before.
    """

    by_uuid: Node | None = None
    by_mac: Sequence[Node] = ()
    by_bmc: Sequence[Node] = ()
    by_secret: Node | None = None
    over_bmc: bool = False
    matches: Mapping[str, str] = {}
    same: frozenset[str] = frozenset()
    different: frozenset[str] = frozenset()


class NodeMatch(msgspec.Struct, frozen=True):
    """The node; ``bmc_alone``: it was found by its BMC address only.

    ``elsewhere``: MACs of the machine that other nodes have, and their nodes. ``inspection`` is the node's current
    inspection, set once the node was locked and read again.
    """

    node: Node
    bmc_alone: bool = False
    elsewhere: Mapping[str, str] = {}
    inspection: Inspection | None = None


class LookupRefusal(msgspec.Struct, frozen=True):
    """No node, or more than one; ``nodes`` are the UUIDs concerned, ``elsewhere`` is as in ``NodeMatch``."""

    reason: Reason
    message: str
    nodes: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = {}


Verdict = NodeMatch | LookupRefusal


def decide(evidence: Evidence, candidates: Candidates) -> Verdict:
    """Return the one node that the evidence identifies, or why there is none."""
    named = candidates.by_uuid
    if evidence.uuid and named is None:
        return LookupRefusal(Reason.LOOKUP_UNKNOWN, f"no node has the UUID {evidence.uuid}")
    if candidates.by_secret is not None:
        return _by_secret(candidates, candidates.by_secret)
    node = _by_uuid(evidence, candidates, named) if named is not None else _by_macs(evidence, candidates)
    if isinstance(node, LookupRefusal):
        return node
    if node is None:
        if len(candidates.by_bmc) > 1:
            return _several("BMC addresses", candidates.by_bmc)
        if not candidates.by_bmc:
            return _refuse_unknown(candidates)
        return NodeMatch(candidates.by_bmc[0], bmc_alone=True)
    return _by_bmc(candidates, node) or _match_node(candidates, node)


def _by_secret(candidates: Candidates, node: Node) -> Verdict:
    """Return the node whose inspection has the secret, regardless of the machine's present NICs and other claims."""
    named = candidates.by_uuid
    if named is not None and named.uuid != node.uuid:
        return _conflict("the UUID", named, "the secret", node)
    if candidates.over_bmc:
        return _match_node(candidates, node)
    # Any client that asks for a MAC gets its boot script, so the script proves no more than the NIC that booted.
    return _refuse_stolen(candidates, node) or _by_bmc(candidates, node) or _match_node(candidates, node)


def _by_uuid(evidence: Evidence, candidates: Candidates, named: Node) -> Node | LookupRefusal:
    """Return the node with the UUID, unless MACs of its own project contradict it."""
    others = [node for node in candidates.by_mac if node.uuid != named.uuid and node.owner == named.owner]
    booted = _booted_node(evidence, candidates)
    if len(others) < len(candidates.by_mac):
        others = [node for node in others if node is booted]
    return _conflict("the UUID", named, "MAC addresses", others[0]) if others else named


def _by_macs(evidence: Evidence, candidates: Candidates) -> Node | LookupRefusal | None:
    """Return the node with the MACs; among several, the one whose NIC booted or that other evidence confirms."""
    nodes = [node for node in candidates.by_mac if not _is_another(evidence, candidates, node)]
    if len(nodes) < 2:
        return nodes[0] if nodes else None
    booted = _booted_node(evidence, candidates)
    if booted is not None:
        return _refuse_stolen(candidates, booted) or booted
    at_bmc = {node.uuid for node in candidates.by_bmc}
    are_one = False
    for confirmed in (candidates.same, at_bmc):
        chosen = [node for node in nodes if node.uuid in confirmed]
        if len(chosen) == 1:
            return chosen[0]
        are_one = are_one or len(chosen) > 1
    return _several("MAC addresses", nodes, candidates.matches, are_one=are_one)


def _by_bmc(candidates: Candidates, node: Node) -> LookupRefusal | None:
    """Return a refusal if the BMC addresses are those of other nodes that wait for a callback."""
    if not candidates.by_bmc or node.uuid in {candidate.uuid for candidate in candidates.by_bmc}:
        return None
    return _conflict("UUID, MAC addresses or secret", node, "BMC addresses", candidates.by_bmc[0])


def _match_node(candidates: Candidates, node: Node) -> NodeMatch:
    elsewhere = {mac: node_uuid for mac, node_uuid in candidates.matches.items() if node_uuid != node.uuid}
    return NodeMatch(node, elsewhere=elsewhere)


def _booted_node(evidence: Evidence, candidates: Candidates) -> Node | None:
    """Return the node with the NIC that booted."""
    owner = candidates.matches.get(evidence.boot_mac or "")
    return next((node for node in candidates.by_mac if node.uuid == owner), None)


def _is_another(evidence: Evidence, candidates: Candidates, node: Node) -> bool:
    """Whether the machine is not the node's, although they share a MAC.

    It booted from a NIC that the node does not have, and has another serial number or system UUID. This does not apply
    while the node waits: its mainboard may have been replaced, and then its data is held for approval.
    """
    if node.state in AWAITED or node.uuid not in candidates.different or evidence.boot_mac is None:
        return False
    return candidates.matches.get(evidence.boot_mac) != node.uuid


def _refuse_stolen(candidates: Candidates, node: Node) -> LookupRefusal | None:
    """Return a refusal if this is the machine of another project, one of whose NICs ``node`` claims."""
    if node.uuid in candidates.same:
        return None
    for candidate in candidates.by_mac:
        if candidate.uuid in candidates.same and candidate.owner != node.owner:
            return _conflict("the NIC that booted", node, "serial number or system UUID", candidate)
    return None


def without_claims(candidates: Candidates, expected: Collection[State]) -> Candidates:
    """Return the candidates without claims: nodes of other projects that are in none of the ``expected`` states.

    They only claim a NIC of the one node whose ramdisk runs. For calls that store nothing on the node, and do not say
    which NIC booted.
    """
    running = [node for node in candidates.by_mac if node.state in expected]
    others = [node for node in candidates.by_mac if node.state not in expected]
    if len(running) != 1 or any(node.owner == running[0].owner for node in others):
        return candidates
    return msgspec.structs.replace(candidates, by_mac=running)


def by_bmc_alone(match: NodeMatch, evidence: Evidence, *, known_macs: bool) -> Verdict:
    """Return the verdict on a machine that matches by BMC address only: its node must have no MACs.

    BMC addresses are easy to guess, and a machine whose node has MACs would report one of them.
    """
    if not match.bmc_alone or not known_macs:
        return match
    macs = ", ".join(evidence.macs[:4]) or "no MAC address"
    message = (
        f"the BMC address belongs to node {match.node.uuid}, which has other NICs than {macs}; if its NICs were "
        "replaced, create a port for a new one"
    )
    return LookupRefusal(Reason.LOOKUP_BMC_ALONE, message, (match.node.uuid,))


_MAX_NAMED: Final = 4


def _refuse_unknown(candidates: Candidates) -> LookupRefusal:
    message = "no node has any of these addresses"
    if not candidates.matches:
        return LookupRefusal(Reason.LOOKUP_UNKNOWN, message)
    uuids = tuple(sorted(set(candidates.matches.values())))
    shown = "; ".join(f"node {uuid} has {_macs_of(uuid, candidates.matches)}" for uuid in uuids[:_MAX_NAMED])
    message = f"{shown}; but this is another machine, by its serial number, system UUID or BMC address"
    return LookupRefusal(Reason.LOOKUP_UNKNOWN, message, uuids, candidates.matches)


def _several(
    subject: str, nodes: Sequence[Node], matches: Mapping[str, str] | None = None, *, are_one: bool = False
) -> LookupRefusal:
    """Return the refusal; ``are_one``: the machine has the identity, or the BMC, of several of these nodes."""
    uuids = tuple(sorted(node.uuid for node in nodes))
    message = f"{subject} match several nodes: {', '.join(uuids)}"
    if matches:
        shown = "; ".join(f"node {uuid} has {_macs_of(uuid, matches)}" for uuid in uuids[:_MAX_NAMED])
        advice = (
            "They have the same serial number, system UUID or BMC, so they may be one machine: correct the BMC address "
            "of one, or delete it"
            if are_one
            else "If machines share one of these, add it to [inspector] ignored_macs; otherwise delete the wrong port"
        )
        message = f"{subject} match several nodes, and no evidence tells which machine this is: {shown}. {advice}"
    return LookupRefusal(Reason.LOOKUP_AMBIGUOUS, message, uuids)


def _macs_of(uuid: str, matches: Mapping[str, str]) -> str:
    return _list_first(sorted(mac for mac, owner in matches.items() if owner == uuid))


def _list_first(addresses: Sequence[str]) -> str:
    more = f" and {len(addresses) - _MAX_NAMED} more" if len(addresses) > _MAX_NAMED else ""
    return ", ".join(addresses[:_MAX_NAMED]) + more


def _conflict(first_evidence: str, node: Node, second_evidence: str, second_node: Node) -> LookupRefusal:
    message = f"{first_evidence} belong to node {node.uuid}, but {second_evidence} to node {second_node.uuid}"
    return LookupRefusal(Reason.LOOKUP_CONFLICT, message, (node.uuid, second_node.uuid))


# Discovery: whether an unknown machine becomes a node, and with which BMC. Pure.
#
# Callers are anonymous, so everything here limits what they can cause.

# Discoveries are counted per minute of the database's clock.
PERIOD_SECONDS: Final = 60.0


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A MAC address of a machine that was rejected when it was the node ``node``."""

    address: str
    node: str
    rejected_at: float
    source: str | None = None


# Refused callers: operators must see calls of machines that belong to no node.

MAX_REFUSED_CALLERS: Final = 200
MAX_MACS_OF_REFUSED_CALLER: Final = 16
REFUSED_CALLER_SECONDS: Final = 7 * 86_400.0
# A call is not recorded if the machine's previous call is more recent than this.
REPEATED_CALL_SECONDS: Final = 60.0


class RefusedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that called from ``source``, belongs to no node, and was refused.

    ``machine``: the address that distinguishes it from others at its source, "" if it has none.
    """

    source: str
    machine: str
    macs: list[str]
    bmc_addresses: list[str]
    serial: str | None
    reason: str
    message: str
    called_at: float


def select_surplus(
    callers: Sequence[RefusedCaller], group_source: Callable[[str], str], now: float
) -> list[RefusedCaller]:
    """Return the callers to forget: old ones, and the oldest of the source that has the most.

    So a source that pretends to be many machines removes no record of another source.
    """
    kept: dict[str, list[RefusedCaller]] = defaultdict(list)  # by source, each the newest first
    recent = [caller for caller in callers if now - caller.called_at <= REFUSED_CALLER_SECONDS]
    for caller in sorted(recent, key=lambda caller: caller.called_at, reverse=True):
        of_source = kept[group_source(caller.source)]
        if len(of_source) < MAX_REFUSED_CALLERS_OF_SOURCE:
            of_source.append(caller)
    for _ in range(sum(map(len, kept.values())) - MAX_REFUSED_CALLERS):
        max(kept.values(), key=lambda of_source: (len(of_source), -of_source[-1].called_at)).pop()
    remaining = {(caller.source, caller.machine) for of_source in kept.values() for caller in of_source}
    return [caller for caller in callers if (caller.source, caller.machine) not in remaining]


def describe_caller(caller: RefusedCaller) -> str:
    """Return who called, from where and when, and why it was refused, as a clause."""
    kinds, addresses = ("MAC", "MACs"), caller.macs
    if not addresses:
        kinds, addresses = ("BMC address", "BMC addresses"), caller.bmc_addresses
    kind = kinds[len(addresses) > 1]
    machine = f"a machine with the {kind} {_list_first(addresses)}" if addresses else "a machine without an address"
    serial = f" (serial number {caller.serial})" if caller.serial else ""
    origin = f"from {caller.source or 'an unknown address'} at {utc_text(caller.called_at)}"
    return f"{machine}{serial} called {origin}, and was refused: {caller.message}"


# Bytes of inspection data that may wait, for each machine that may wait: more than machines send on average, and less
# than the largest body.
MEAN_WAITING_BYTES: Final = 512 * 1024


class DiscoveryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines may be discovered per minute, and how many may await approval."""

    per_minute: int
    waiting: int


def discoverable(evidence: Evidence) -> bool:
    """Whether an unknown machine may become a node: it must have a MAC and must not claim to be a node."""
    return evidence.uuid is None and bool(evidence.macs)


def too_many(limits: DiscoveryLimits, *, made: int, unclaimed: int) -> LookupRefusal | None:
    """Return a refusal if a limit is reached; ``made``: discovered in this minute, ``unclaimed``: awaiting approval."""
    if made >= limits.per_minute:
        return LookupRefusal(
            Reason.DISCOVERY_LIMITED,
            f"limit reached: {many(made, 'machine')} discovered in this minute; see [auto_discovery] max_per_minute",
        )
    if unclaimed >= limits.waiting:
        return LookupRefusal(
            Reason.DISCOVERY_LIMITED,
            f"limit reached: {many(unclaimed, 'discovered node')} in enroll; see [auto_discovery] max_waiting",
        )
    return None


def too_large(waiting_bytes: int, machines: int, option: str) -> LookupRefusal | None:
    """Return a refusal if the data of waiting machines takes too much; ``option`` limits them to ``machines``."""
    most = machines * MEAN_WAITING_BYTES
    if waiting_bytes < most:
        return None
    return LookupRefusal(
        Reason.DISCOVERY_LIMITED,
        f"limit reached: the discovered nodes in enroll have {waiting_bytes:,} bytes of inspection data, and may have "
        f"{most:,}: {MEAN_WAITING_BYTES // 1024} KiB for each of [auto_discovery] {option} ({machines})",
    )


def refuse_rejected(rejections: Sequence[Rejection], since: float) -> LookupRefusal | None:
    """Return a refusal if one of the machine's addresses was rejected at or after ``since``."""
    for rejection in rejections:
        if rejection.rejected_at >= since:
            message = f"{rejection.address} belongs to a machine that was rejected as node {rejection.node}"
            return LookupRefusal(Reason.DISCOVERY_REJECTED, message)
    return None
