"""Which machine a Kubernetes node runs on: by what it and the inventory report, or by an annotation; never by a guess.

All that is known must agree. What a node says of its machine contradicts every machine of which something else is
stored, even if another statement fits. Several candidates are none, and so is a machine that another node matches, or
whose BMC another machine has: to power off a wrong one would break a healthy node, and prove nothing about the failed
one. Pure.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import MACHINE, SERIAL, KubeNode
from ferroscope.hardware.machine_identity import MachineIdentity, identify
from ferroscope_client.core.bmc_place import Place, PlaceIndex
from ferroscope_client.core.values import many

# Provider IDs of this scheme have the machine's own UUID; others may have something that is not stored here.
_OWN: Final = "ferroscope"
# Spellings of UUIDs, which are the same in each pass.
_MAX_CACHED_UUIDS: Final = 65_536


class ClusterMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows about a machine; ``active``: an inspection of it is in progress.

    ``bmcs``: where its BMC is, with the addresses that workers have stored; ``in_band_bmcs``: the addresses that the
    ramdisk of its last inspection has read from the BMC itself.
    """

    uuid: str
    name: str | None = None
    instance_uuid: str | None = None
    system_uuid: str | None = None
    serial: str | None = None
    driver: str = ""
    maintenance: bool = False
    active: bool = False
    keeps_power: bool = False
    bmcs: tuple[Place, ...] = ()
    in_band_bmcs: frozenset[str] = frozenset()

    @property
    def prohibitions(self) -> tuple[bool, bool, bool]:
        """What may forbid to power it off: maintenance, an inspection in progress, and an order to keep the power."""
        return self.maintenance, self.active, self.keeps_power

    @property
    def place(self) -> str:
        """Where its power commands go, in words: another text is another BMC."""
        return ", ".join(f"{place.protocol} {place.title}" for place in self.bmcs)

    @property
    def title(self) -> str:
        return self.name or self.uuid


class MachineMatch(msgspec.Struct, frozen=True):
    """The machine, or why there is none: a code, and a message. ``facts``: what the node says that fits the machine.

    ``is_common``: others have the node's system UUID, too.
    """

    machine: ClusterMachine | None = None
    reason: str = ""
    message: str = ""
    facts: tuple[str, ...] = ()
    is_common: bool = False


class _ClaimedBmc(msgspec.Struct, frozen=True):
    """One thing that a node says of its machine; ``names``: it is meant to name a machine of the inventory."""

    source: str
    kind: str
    value: str
    text: str
    names: bool = False


class MachineInventory:
    """All machines, and the nodes of the cluster that they may belong to. Made once for a pass.

    ``held``: the node for which a machine was powered off, by the machine's UUID: it belongs to no other one meanwhile.
    """

    def __init__(
        self, machines: Iterable[ClusterMachine], nodes: Iterable[KubeNode] = (), held: Mapping[str, str] | None = None
    ) -> None:
        self._machines = {machine.uuid: machine for machine in machines}
        self._by_value: dict[tuple[str, str], set[str]] = defaultdict(set)
        for machine in self._machines.values():
            for kind, values in _stored_values(machine).items():
                for value in values:
                    self._by_value[kind, value].add(machine.uuid)
        self._at_bmc: PlaceIndex[ClusterMachine] = PlaceIndex()
        for machine in self._machines.values():
            self._at_bmc.add(machine, machine.bmcs)
        nodes = list(nodes)
        self._reported = Counter(
            _either_order(uuid) for node in nodes if _is_uuid(uuid := node.status.node_info.system_uuid)
        )
        self._nodes_of: dict[str, set[str]] = defaultdict(set)
        for node in nodes:
            for ident in self._may_have(node):
                self._nodes_of[ident].add(node.name)
        for ident, name in (held or {}).items():
            self._nodes_of[ident].add(name)

    def is_common(self, system_uuid: str) -> bool:
        """Whether several machines, or several nodes, have this system UUID, so that it tells none of them apart."""
        if not _is_uuid(system_uuid):
            return False
        uuid = _either_order(system_uuid)
        return self._reported[uuid] > 1 or len(self._by_value.get(("system UUID", uuid), ())) > 1

    def get(self, ident: str) -> ClusterMachine | None:
        """Return the machine with this UUID."""
        return self._machines.get(ident)

    def find(self, node: KubeNode) -> MachineMatch:
        """Return the one machine that everything known about the node says it is, and about no other node."""
        match = self._match_alone(node)
        if match.machine is None:
            return match
        if (twin := self._twin(match.machine)) is not None:
            titles = f"{match.machine.title} and {twin.title}"
            return MachineMatch(
                None, "bmc-shared", f"machines {titles} have the same BMC; correct the BMC address of one"
            )
        others = self._nodes_of[match.machine.uuid] - {node.name}
        if not others:
            return match
        names = ", ".join(sorted(others)[:3])
        message = f"machine {match.machine.title} may be that of node {names}, too; correct what they say of it"
        return MachineMatch(None, "machine-shared", message)

    def _twin(self, machine: ClusterMachine) -> ClusterMachine | None:
        """Return another machine that is said to have the same BMC: a command might switch that one."""
        return next((owner for _, owner in self._at_bmc.owners(machine.bmcs) if owner.uuid != machine.uuid), None)

    def _match_alone(self, node: KubeNode) -> MachineMatch:
        """Find it by what this node says alone."""
        claims = list(_claims(node))
        matches = {claim: self._by_value.get((claim.kind, claim.value), set()) for claim in claims}
        for claim, machines in matches.items():
            if claim.names and not machines:
                return MachineMatch(
                    None, "machine-unknown", f"its {claim.source} names {claim.text!r}, which is not a known machine"
                )
        matches = {claim: machines for claim, machines in matches.items() if machines}
        if not matches:
            return MachineMatch(
                None,
                "machine-unknown",
                "no machine has its system UUID or provider ID; inspect its machine, or set the "
                f"annotation {MACHINE} to the machine's name or UUID",
            )
        sources = " and ".join(sorted(claim.source for claim in matches))
        common = set.intersection(*matches.values())
        if not common:
            return MachineMatch(None, "machine-contradicts", f"its {sources} belong to different machines")
        wrong = {ident: why for ident in common if (why := _contradiction(self._machines[ident], claims))}
        left = sorted(common - set(wrong))
        if not left:
            title, why = self._machines[min(wrong)].title, wrong[min(wrong)]
            return MachineMatch(None, "machine-contradicts", f"machine {title} fits its {sources}, but not its {why}")
        if len(left) > 1:
            return MachineMatch(
                None, "machine-ambiguous", f"{many(len(left), 'machine')} have its {sources}; a guess is not made"
            )
        is_common = self.is_common(node.status.node_info.system_uuid)
        return MachineMatch(
            self._machines[left[0]], facts=tuple(sorted(claim.source for claim in matches)), is_common=is_common
        )

    def _may_have(self, node: KubeNode) -> set[str]:
        """Return the machines that may be this node's: its own one, or else each that anything it says fits."""
        match = self._match_alone(node)
        if match.machine is not None:
            return {match.machine.uuid}
        return set().union(*(self._by_value.get((claim.kind, claim.value), set()) for claim in _claims(node)))


def _claims(node: KubeNode) -> Iterator[_ClaimedBmc]:
    """Yield what the node says about its machine; placeholders say nothing."""
    if named := node.annotations.get(MACHINE, ""):
        yield _ClaimedBmc(f"annotation {MACHINE}", "name", _canonical(named), named, names=True)
    reported = identify({"serial_number": node.annotations.get(SERIAL)}, node.status.node_info.system_uuid or None, ())
    if reported.uuid is not None:
        yield _ClaimedBmc("system UUID", "system UUID", _either_order(reported.uuid), reported.uuid)
    if reported.serial is not None:
        yield _ClaimedBmc("serial number", "serial number", reported.serial, reported.serial)
    scheme, _, rest = node.spec.provider_id.partition("://")
    ident = _canonical(rest.rpartition("/")[2])
    if scheme == _OWN:
        yield _ClaimedBmc("provider ID", "UUID", ident, node.spec.provider_id, names=True)
    elif _is_uuid(ident):
        yield _ClaimedBmc("provider ID", "instance UUID", ident, node.spec.provider_id)


def _stored_values(machine: ClusterMachine) -> dict[str, set[str]]:
    """Return the values that are stored of the machine, by kind; a kind of which nothing is known has none."""
    system = {_either_order(machine.system_uuid)} if machine.system_uuid and _is_uuid(machine.system_uuid) else set()
    instance = {_canonical(machine.instance_uuid)} if machine.instance_uuid else set()
    return {
        "name": {machine.uuid, _canonical(machine.name or machine.uuid)},
        "system UUID": system,
        "serial number": {machine.serial} if machine.serial else set(),
        "UUID": {machine.uuid, _canonical(machine.name or machine.uuid)} | instance,
        "instance UUID": {machine.uuid} | instance,
    }


def _contradiction(machine: ClusterMachine, claims: Iterable[_ClaimedBmc]) -> str:
    """Return what its node says that contradicts the machine, "" if nothing does."""
    values = _stored_values(machine)
    for claim in claims:
        expected = values[claim.kind]
        if claim.kind == "instance UUID" and machine.instance_uuid is None:
            continue  # what another system calls it is not known here
        if expected and claim.value not in expected:
            return f"{claim.source} {claim.text!r}"
    return ""


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=_MAX_CACHED_UUIDS)
def _canonical(text: str) -> str:
    """Return a UUID in the usual spelling, and anything else as it is."""
    return str(uuid.UUID(text)) if _is_uuid(text) else text


@lru_cache(maxsize=_MAX_CACHED_UUIDS)
def _either_order(text: str) -> str:
    """Return the same for a system UUID in both byte orders, because firmware and kernels disagree about it."""
    parsed = uuid.UUID(text)
    return min(str(parsed), str(uuid.UUID(bytes=parsed.bytes_le)))


def reported_fields(identity: MachineIdentity | None) -> dict[str, Any]:
    """Return the fields of a ``ClusterMachine`` that its last inspection reported."""
    if identity is None:
        return {}
    return {"system_uuid": identity.uuid, "serial": identity.serial, "in_band_bmcs": frozenset(identity.bmcs)}
