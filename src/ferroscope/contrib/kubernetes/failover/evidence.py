"""Whether a machine was measured to be the one under a Kubernetes node. Pure.

People say which machine a node has, by annotations and by BMC addresses, and people err. Power is cut only where a
measurement agrees with what the node reports, and none contradicts it:

* the system UUID that the BMC reports now, and the one that the kubelet reports;
* the serial number that the BMC reports now, and the one that the ramdisk read on the machine with that system UUID;
* the address of its BMC that the ramdisk read there in band, and the address to which commands are sent now.

A system UUID that several machines or nodes have proves nothing. Where both system UUIDs are known they decide, and a
different serial number is no contradiction: a BMC may report that of the board, and the ramdisk that of the system.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Set

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import SERIAL, KubeNode
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine
from ferroscope.hardware.machine_identity import MachineIdentity, identify, same_uuid
from ferroscope_client.core import values


class PodEvidence(msgspec.Struct, frozen=True):
    """``facts`` agree, in words; ``contradiction`` is the first that does not, "" if none.

    ``is_certain``: the contradiction is one of system UUIDs, which no change of a network or of a spelling explains.
    """

    facts: tuple[str, ...] = ()
    contradiction: str = ""
    is_certain: bool = False


def weigh_evidence(
    node: KubeNode,
    machine: ClusterMachine,
    behind_bmc: MachineIdentity | None,
    addresses: Set[str] = frozenset(),
    *,
    is_common: bool = False,
) -> PodEvidence:
    """Return what speaks for and against this machine.

    ``behind_bmc``: what its BMC says it is that of; ``addresses``: where that was asked. ``is_common``: others have the
    node's system UUID, too, so it proves nothing.
    """
    reported = identify({"serial_number": node.annotations.get(SERIAL)}, node.status.node_info.system_uuid or None, ())
    bmc = behind_bmc or MachineIdentity()
    if bmc.uuid and reported.uuid and not same_uuid(bmc.uuid, reported.uuid):
        against = (
            f"the BMC of machine {machine.title} belongs to a machine with system UUID {bmc.uuid}, "
            f"but the node reports {reported.uuid}"
        )
        return PodEvidence(contradiction=against, is_certain=True)
    facts, against_it = [], []
    has_uuid = bool(bmc.uuid and reported.uuid) and not is_common
    if has_uuid:
        facts.append("system UUID of the BMC")
    in_band = bool(machine.system_uuid and reported.uuid and same_uuid(machine.system_uuid, reported.uuid))
    in_band = in_band and not is_common
    measured = {_plain(machine.serial)} if in_band and machine.serial else set()
    if bmc.serial and _plain(bmc.serial) in measured:
        facts.append("serial number of the BMC")
    elif bmc.serial and not has_uuid:
        # What a person wrote can contradict, and never prove.
        expected = measured | ({_plain(reported.serial)} if reported.serial else set())
        if expected and _plain(bmc.serial) not in expected:
            against_it.append(
                f"the BMC of machine {machine.title} belongs to a machine with serial number {bmc.serial}, "
                f"but the node has {' or '.join(sorted(expected))}"
            )
    if in_band:
        against_it += _compare_addresses(machine, addresses, facts)
    return PodEvidence(tuple(facts), against_it[0] if against_it else "")


def _plain(serial: str) -> str:
    """Return a serial number as people compare it: without case and blanks."""
    return "".join(serial.split()).upper()


def why_unproven(machine: ClusterMachine) -> str:
    """Return what is missing, and what to do."""
    return (
        f"no measurement shows that machine {machine.title} is the node's: its BMC reports neither the "
        "system UUID nor the serial number of the node, and no ramdisk has read the address of this BMC on that "
        "machine; inspect the machine"
    )


def _compare_addresses(machine: ClusterMachine, addresses: Set[str], facts: list[str]) -> list[str]:
    """Compare where the ramdisk saw the BMC with where commands are sent; only addresses of one family compare."""
    measured, configured = _normalize(machine.in_band_bmcs), _normalize(addresses)
    if measured & configured:
        facts.append("in-band address of the BMC")
        return []
    routable = {address for address in measured if not ipaddress.ip_address(address).is_link_local}
    families = {":" in address for address in routable} & {":" in address for address in configured}
    if not families:
        return []
    places = [
        ", ".join(sorted(address for address in group if (":" in address) in families))
        for group in (routable, configured)
    ]
    return [
        f"the ramdisk saw the BMC of machine {machine.title} at {places[0]}, but its BMC address leads to {places[1]}; "
        "correct the address, or inspect the machine again"
    ]


def _normalize(addresses: Set[str]) -> set[str]:
    return {address for text in addresses if (address := values.normalized_ip(text))}
