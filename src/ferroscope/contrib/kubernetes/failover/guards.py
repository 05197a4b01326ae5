"""Reasons to keep a machine on although its node has failed, and failures that are on purpose. Pure.

Quorums, machines that are powered off again and again, machines that boot, and nodes that were out of service before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine
from ferroscope.contrib.kubernetes.failover.terms import ClusterView, FailoverRules, NodeReading
from ferroscope.core.remediation import Remediation

CONTROL_PLANE: Final = "control-plane"
FLAPPING_SECONDS: Final = 3600.0  # in which power-offs of a node's machine are counted
_BOOTING: Final = "booting"


def _has_label(node: KubeNode, label: str) -> bool:
    """Whether the node has this label, as ``KEY:VALUE``."""
    key, _, value = label.partition(":")
    return node.labels.get(key) == value


# Quorums.


def groups_of(node: KubeNode, rules: FailoverRules) -> tuple[str, ...]:
    """Return the quorum groups of the node."""
    own = (CONTROL_PLANE,) if node.control_plane else ()
    return own + tuple(label for label in rules.quorum if _has_label(node, label))


def members_off(records: Iterable[Remediation], nodes: Mapping[str, KubeNode]) -> frozenset[tuple[str, str]]:
    """Return name and group of each member whose machine we have powered off, also if it has no Node any more."""
    return frozenset(
        (record.node, group)
        for record in records
        if (record.commanded or record.left_off) and not (record.node in nodes and nodes[record.node].ready)
        for group in record.groups
    )


def quorum_objection(view: ClusterView, rules: FailoverRules, node: KubeNode) -> tuple[str, str]:
    """Return why this node's machine may not be powered off now, as a code and a message; "" if it may.

    A majority of each group must remain.
    """
    for group in groups_of(node, rules):
        title = "control-plane node" if group == CONTROL_PLANE else f"node (of the quorum {group})"
        code = CONTROL_PLANE if group == CONTROL_PLANE else "quorum"
        for name in sorted(
            name for name, member_group in view.members_off if member_group == group and name != node.name
        ):
            return code, f"the machine of {title} {name} was powered off, and was not seen on again; it comes first"
        for peer in view.nodes:
            if peer.name == node.name or group not in groups_of(peer, rules):
                continue
            if peer.name in view.switched:
                return code, f"{title} {peer.name} is dealt with at this moment; it comes first"
            if not peer.ready or peer.name in view.silent:
                return code, f"{title} {peer.name} is not ready either, and the group may need this node"
    return "", ""


# Machines that are powered off again and again.


def is_flapping(record: Remediation, now: float, rules: FailoverRules) -> bool:
    """Whether the machine was powered off so often in the hour before this failure that it hardly helps.

    As long as the node has failed, that stays so.
    """
    since = (record.failed_at or now) - FLAPPING_SECONDS
    return sum(1 for at in record.power_offs if at > since) >= rules.max_power_offs


def recent_power_offs(record: Remediation | None, now: float) -> tuple[float, ...]:
    """Return what the last record of a node says of power-offs that still count."""
    return () if record is None else tuple(at for at in record.power_offs if at > now - FLAPPING_SECONDS)


# Machines that boot.


def dwell_seconds(rules: FailoverRules, node: KubeNode) -> float:
    """Return for how many seconds the node may be not ready: the most that one of its labels says, or ``dwell``."""
    return max((seconds for label, seconds in rules.patience if _has_label(node, label)), default=rules.dwell)


def with_boot(record: Remediation, reading: NodeReading) -> Remediation:
    """Remember that the BMC has shown a boot that is not ours: it says so, or the machine was off and is on."""
    boot = record.boot
    if record.commanded or boot == _BOOTING:
        return record
    if reading.power in (Power.OFF, Power.CHANGING):
        boot = "off"
    elif reading.booting or (boot == "off" and reading.power is Power.ON):
        boot = _BOOTING
    return msgspec.structs.replace(record, boot=boot)


def is_booting(record: Remediation) -> bool:
    """Whether the machine has begun to boot since its node failed."""
    return record.boot == _BOOTING


# Nodes that are out of service on purpose.


def reasons_wanted(node: KubeNode, machine: ClusterMachine | None) -> Iterator[str]:
    """Yield how people say that the node is out of service."""
    if node.is_paused:
        yield "paused"
    if machine is not None and machine.maintenance:
        yield "maintenance"
    if node.is_drained:
        yield "cordoned"


def is_wanted(record: Remediation, node: KubeNode, machine: ClusterMachine | None) -> bool:
    """Whether people have taken the node out of service before it failed, and still want it so."""
    return not record.commanded and not set(record.wanted).isdisjoint(reasons_wanted(node, machine))


def out_of_service(
    nodes: Iterable[KubeNode],
    silent: Callable[[str], bool],
    records: Mapping[str, Remediation],
    machine_of: Callable[[KubeNode], ClusterMachine | None],
) -> frozenset[str]:
    """Return the nodes that have failed, or are silent, because people have taken them out of service.

    A cordon says so only if it was there before the failure: others set it because of the failure.
    """
    names = set()
    for node in nodes:
        if not (node.has_failed or silent(node.name)):
            continue
        reasons = set(reasons_wanted(node, machine_of(node)))
        if node.name in records and "cordoned" not in records[node.name].wanted:
            reasons.discard("cordoned")
        if reasons:
            names.add(node.name)
    return frozenset(names)
