"""Which node called back? Exactly one node for a UUID, MACs, BMC addresses and an inspection's secret, or none.

The caller supplies the candidates from indexed queries. To the caller of the API every refusal looks the same (404), so
the verdict carries the reason for the log and the journal.

Callers are anonymous and may leave evidence out, so a contradiction stops mistakes but not an attacker. If evidence is
ambiguous, the most specific evidence decides: the secret of an inspection, then the node's UUID, then the NIC that
booted. The port of another project is a claim that any caller may make, and never outweighs the rest.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope.core.states import AWAITED
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.core.values import MASK

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
    return list_first(sorted(mac for mac, owner in matches.items() if owner == uuid))


def list_first(addresses: Sequence[str]) -> str:
    more = f" and {len(addresses) - _MAX_NAMED} more" if len(addresses) > _MAX_NAMED else ""
    return ", ".join(addresses[:_MAX_NAMED]) + more


def _conflict(first_evidence: str, node: Node, second_evidence: str, second_node: Node) -> LookupRefusal:
    message = f"{first_evidence} belong to node {node.uuid}, but {second_evidence} to node {second_node.uuid}"
    return LookupRefusal(Reason.LOOKUP_CONFLICT, message, (node.uuid, second_node.uuid))


# The secret of an inspection, by which a callback proves that it comes from the machine that we booted.
#
# Each inspection whose machine we boot has one. It is delivered with the boot parameters, and ironic-python-agent
# returns it in the query of the callback URL. It belongs to the inspection, not to an attempt: the callback stays valid
# if the machine boots again. After the inspection only its SHA-256 is kept, to recognize a late repetition.

SECRET_PARAMETER: Final = "secret"  # noqa: S105  # a name
_ENDED: Final = "sha256:"
_OURS: Final = re.compile(r"[A-Za-z0-9_-]{32,80}\Z")
_DISK_URL: Final = re.compile(r"(ramdisk_parameters(?:[/\\]|%2f)[0-9a-f-]+(?:[/\\]|%2f))[0-9a-f]{4,}", re.IGNORECASE)

SecretMode = Literal["required", "optional", "off"]


class SecretDelivery(StrEnum):
    """How the machine gets the secret.

    ``none``: it does not, because the boot method cannot carry a secret. ``planned``: on the parameter disk, once a
    worker has inserted it. An inspection that a worker of an older release started keeps ``planned``.
    """

    NONE = "none"
    PLANNED = "planned"
    VIRTUAL_MEDIA = "virtual-media"
    BOOT_SCRIPT = "boot-script"


class CallbackProof(StrEnum):
    """What a callback proves; ``unsecured``: its inspection has no secret, or secrets are disabled."""

    VERIFIED = "verified"
    MISSING = "missing"
    WRONG = "wrong"
    UNSECURED = "unsecured"


class CallbackVerdict(msgspec.Struct, frozen=True):
    """``expected``: the machine got a secret, so a callback without one is unusual."""

    proof: CallbackProof
    accepted: bool
    expected: bool = False


def judge_callback(mode: SecretMode, inspection: Inspection, sent: str | None) -> CallbackVerdict:
    """Return whether a callback with the secret ``sent`` (None or "": without one) is accepted."""
    if mode == "off" or inspection.secret is None:
        return CallbackVerdict(CallbackProof.UNSECURED, accepted=True)
    expected = is_delivered(inspection)
    if not sent:
        return CallbackVerdict(CallbackProof.MISSING, accepted=mode == "optional" or not expected, expected=expected)
    if _matches_secret(inspection.secret, sent):
        return CallbackVerdict(CallbackProof.VERIFIED, accepted=True, expected=expected)
    return CallbackVerdict(CallbackProof.WRONG, accepted=False, expected=expected)


def new_secret() -> str:
    """Return 256 random bits in hexadecimal: iPXE takes a word that begins with a hyphen for an option."""
    return secrets.token_hex(32)


def searchable_secret(mode: SecretMode, sent: str | None) -> str | None:
    """Return the presented secret if an inspection may have it; None if a search is useless."""
    return sent if sent and mode != "off" and _OURS.match(sent) else None


def is_delivered(inspection: Inspection) -> bool:
    """Whether the machine that we boot gets the secret.

    Before a planned disk is inserted, the machine has not booted, so it cannot call back without a secret.
    """
    if inspection.secret_delivery == SecretDelivery.PLANNED:
        return inspection.state is State.STARTING
    return inspection.secret_delivery in (SecretDelivery.VIRTUAL_MEDIA, SecretDelivery.BOOT_SCRIPT)


def ended_secret(secret: str) -> str:
    """Return what is kept of the secret after its inspection."""
    return secret if secret.startswith(_ENDED) else _ENDED + _digest(secret)


def live_secret(inspection: Inspection | None) -> str | None:
    """Return the secret of an inspection in progress; None if it has none, or has ended."""
    if inspection is None or inspection.secret is None or inspection.secret.startswith(_ENDED):
        return None
    return inspection.secret


def disk_key(secret: str) -> str:
    """Return the unguessable part of the parameter disk's URL; it does not reveal the secret."""
    return _digest(f"parameter disk:{secret}")[:32]


def without_disk_key(text: str) -> str:
    """Return ``text`` with that part masked in all spellings of such URLs, also in cut ones."""
    return _DISK_URL.sub(rf"\1{MASK}", text)


def agent_token(secret: str) -> str:
    """Return the agent token that is delivered together with the secret; neither reveals the other."""
    return _digest(f"agent token:{secret}")


def same_secret(first: str, second: str) -> bool:
    """Compare two secrets, with any characters, in constant time."""
    return hmac.compare_digest(_digest(first), _digest(second))


def add_secret_to_url(url: str, secret: str) -> str:
    """Return the callback URL with the secret in its query."""
    return f"{url}{'&' if '?' in url else '?'}{SECRET_PARAMETER}={secret}"


def _matches_secret(stored: str, sent: str) -> bool:
    kept = stored.removeprefix(_ENDED) if stored.startswith(_ENDED) else _digest(stored)
    return hmac.compare_digest(kept, _digest(sent))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
