"""Which machine calls: the queries that find its node, for ``core.lookup``, and whether its data contradicts the node.

Contradicting data is held: the node waits in the inbox for an operator (see ``inbox``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from ferroscope import node_boot, transition
from ferroscope.api.baremetal import discovery, refusals
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.core import bmc_access, lookup
from ferroscope.core.lookup import Candidates, Evidence
from ferroscope.core.model import Document, Node, Severity
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import Difference, MachineIdentity
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.core.values import many

STEP: Final = "mac-elsewhere"
_MAX_NAMED: Final = 8
_HELD: Final = "held"


def look_up(
    tx: Transaction,
    evidence: Evidence,
    *,
    secret: str | None = None,
    machine: MachineIdentity | None = None,
    expected: Collection[State] = (),
) -> lookup.Verdict:
    """Return the node that matches the evidence, locked and read again; or the refusal.

    ``secret``: the one that the machine presented; ``machine``: its serial number and system UUID. ``expected``: see
    ``lookup.without_claims``.
    """
    candidates = tx.addresses.candidates(evidence, secret)
    if machine is not None:
        candidates = _compare_candidates(candidates, evidence, machine)
    if expected:
        candidates = lookup.without_claims(candidates, expected)
    verdict = lookup.decide(evidence, candidates)
    if isinstance(verdict, lookup.NodeMatch) and verdict.bmc_alone:
        verdict = lookup.by_bmc_alone(verdict, evidence, known_macs=node_boot.has_macs(tx, verdict.node))
    if isinstance(verdict, lookup.LookupRefusal):
        return verdict
    try:
        node, inspection = tx.nodes.locked(verdict.node.uuid)
        return msgspec.structs.replace(verdict, node=node, inspection=inspection)
    except NotFoundError:
        return lookup.LookupRefusal(Reason.LOOKUP_UNKNOWN, f"node {verdict.node.uuid} was deleted concurrently")


def _compare_candidates(candidates: Candidates, evidence: Evidence, machine: MachineIdentity) -> Candidates:
    """Return the candidates, each compared with the machine that called."""
    nodes = [*candidates.by_mac, *([candidates.by_secret] if candidates.by_secret is not None else ())]
    uuids: dict[bool | None, set[str]] = {True: set(), False: set(), None: set()}
    for node in nodes:
        uuids[_is_same(node, evidence, machine)].add(node.uuid)
    return msgspec.structs.replace(candidates, same=frozenset(uuids[True]), different=frozenset(uuids[False]))


def _is_same(node: Node, evidence: Evidence, machine: MachineIdentity) -> bool | None:
    recorded = machine_identity.decode_identity(node.internal.get(machine_identity.IDENTITY))
    if recorded is None and lookup.DISCOVERY in node.internal:
        recorded = discovery.identity(node)
    same = None if recorded is None else machine_identity.is_same(recorded, machine)
    if same is None and node.auto_discovered:  # a BMC may have many machines, but a machine has one BMC
        addresses = set(bmc_access.literal_addresses(node.driver_info))
        if addresses and evidence.bmc_addresses and addresses.isdisjoint(evidence.bmc_addresses):
            return False
    return same


def note_elsewhere(context: ApiContext, tx: Transaction, match: lookup.NodeMatch, source: str) -> None:
    """Record on all nodes concerned that MACs of the machine belong to other nodes."""
    node, nodes_with_macs = match.node.uuid, sorted(set(match.elsewhere.values()))
    shared = {
        node_with_mac: _join_texts(
            sorted(mac for mac, owner in match.elsewhere.items() if owner == node_with_mac), "MAC"
        )
        for node_with_mac in nodes_with_macs
    }
    here = _join_texts(
        [f"{macs}, which node {node_with_mac} has too" for node_with_mac, macs in shared.items()], "such node", "; "
    )
    entries = [(node, f"the machine has {here}", [node, *nodes_with_macs[:_MAX_NAMED]])]
    for node_with_mac in nodes_with_macs[:_MAX_NAMED]:
        there = f"{shared[node_with_mac]}, which this node has, was reported by the machine of node {node}"
        entries.append((node_with_mac, there, [node, node_with_mac]))
    for uuid, message, nodes in entries:
        detail: Document = {"nodes": nodes}
        refusals.add_entry(
            context.process, tx, uuid, STEP, message, source=source, reason=Reason.PORT_CONFLICT, detail=detail
        )


def _join_texts(texts: Sequence[str], noun: str, separator: str = ", ") -> str:
    """Return the first of these texts, and how many more there are."""
    left_out = len(texts) - _MAX_NAMED
    more = [f"and {many(left_out, f'more {noun}')}"] if left_out > 0 else []
    return separator.join([*texts[:_MAX_NAMED], *more])


def contradictions_of(settings: Settings, node: Node, now: MachineIdentity, *, proven: bool) -> tuple[Difference, ...]:
    """Return how the data contradicts the node's last inspection; nothing if the check is disabled.

    ``proven``: the machine presented the secret of its inspection.
    """
    before = machine_identity.decode_identity(node.internal.get(machine_identity.IDENTITY))
    if before is None or not settings.inspector.hold_contradicting_data:
        return ()
    differences = machine_identity.contradictions(before, now)
    if proven and machine_identity.is_same(before, now):  # its NICs were replaced
        return tuple(difference for difference in differences if difference.what != "macs")
    return differences


def refused_data(node: Node, differences: tuple[Difference, ...]) -> lookup.LookupRefusal:
    """Return the refusal of contradicting data after other data of the same inspection."""
    message = f"contradicts the last inspection: {machine_identity.explain(differences)}"
    return lookup.LookupRefusal(Reason.DATA_CONTRADICTS, f"callback {message}", (node.uuid,))


def hold(
    process: ProcessContext, tx: Transaction, node: Node, payload: Document, differences: tuple[Difference, ...]
) -> Node:
    """Hold the data, which has been stored, and return the node; ``payload`` is that of the request to process it."""
    source = str(payload.get("source") or "")
    message = machine_identity.explain(differences)
    record = {"at": tx.now, "source": source, "message": message, "payload": payload}
    record["differences"] = [msgspec.structs.asdict(difference) for difference in differences]
    node = tx.nodes.update(msgspec.structs.replace(node, **machine_identity.with_hold(node, record)))
    entry = transition.step(
        node,
        _HELD,
        f"the data{f' from {source}' if source else ''} contradicts the last inspection and needs approval: {message}",
        process=process.name,
        severity=Severity.WARNING,
        reason=str(Reason.DATA_CONTRADICTS),
        detail={"source": source} if source else None,
    )
    tx.journal.append([entry])
    return node


def lift_hold(tx: Transaction, node: Node) -> Node:
    """Return the node without its hold, if it has one: data that does not contradict has arrived."""
    fields = machine_identity.without_hold(node)
    return tx.nodes.update(msgspec.structs.replace(node, **fields)) if fields else node
