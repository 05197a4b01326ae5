"""Finding the node of a machine that calls: the queries and what is known of each machine, for ``core.lookup``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from ferroscope.api.baremetal import discovery, refusals
from ferroscope.api.http.context import ApiContext
from ferroscope.boot_config import ipxe
from ferroscope.contracts.errors import NotFoundError
from ferroscope.core import bmc_access, lookup
from ferroscope.core.lookup import Candidates, Evidence
from ferroscope.core.model import Node
from ferroscope.core.reasons import Reason
from ferroscope.core.states import State
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity

STEP: Final = "mac-elsewhere"
_MOST: Final = 8


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
        candidates = _compared(candidates, evidence, machine)
    if expected:
        candidates = lookup.without_claims(candidates, expected)
    verdict = lookup.decide(evidence, candidates)
    if isinstance(verdict, lookup.Found) and verdict.bmc_alone:
        verdict = lookup.by_bmc_alone(verdict, evidence, known_macs=ipxe.has_macs(tx, verdict.node))
    if isinstance(verdict, lookup.Refused):
        return verdict
    try:
        node, inspection = tx.nodes.locked(verdict.node.uuid)
        return msgspec.structs.replace(verdict, node=node, inspection=inspection)
    except NotFoundError:
        return lookup.Refused(Reason.LOOKUP_UNKNOWN, f"node {verdict.node.uuid} was deleted concurrently")


def _compared(candidates: Candidates, evidence: Evidence, machine: MachineIdentity) -> Candidates:
    """Return the candidates with what is known of their machines compared with the one that called."""
    nodes = [*candidates.by_mac, *([candidates.by_secret] if candidates.by_secret is not None else ())]
    compared = {node.uuid: _is_same(node, evidence, machine) for node in nodes}
    return msgspec.structs.replace(
        candidates,
        same=frozenset(uuid for uuid, same in compared.items() if same),
        different=frozenset(uuid for uuid, same in compared.items() if same is False),
    )


def _is_same(node: Node, evidence: Evidence, machine: MachineIdentity) -> bool | None:
    known = machine_identity.stored(node.internal.get(machine_identity.IDENTITY)) or discovery.identity(node)
    same = None if known is None else machine_identity.is_same(known, machine)
    if same is None and node.auto_discovered:  # a BMC may have many machines, but a machine has one BMC
        addresses = set(bmc_access.literal(node.driver_info))
        if addresses and evidence.bmc_addresses and addresses.isdisjoint(evidence.bmc_addresses):
            return False
    return same


def note_elsewhere(context: ApiContext, tx: Transaction, found: lookup.Found, source: str) -> None:
    """Record on all nodes concerned that MACs of the machine belong to other nodes."""
    node, others = found.node.uuid, sorted(set(found.elsewhere.values()))[:_MOST]
    for other in others:
        macs = ", ".join(sorted(mac for mac, owner in found.elsewhere.items() if owner == other)[:_MOST])
        here = f"the machine has {macs}, which node {other} has too"
        there = f"{macs}, which this node has, was reported by the machine of node {node}"
        for uuid, message in ((node, here), (other, there)):
            detail = {"nodes": [node, other]}
            refusals.add_entry(
                context.process, tx, uuid, STEP, message, source=source, reason=Reason.PORT_CONFLICT, detail=detail
            )
