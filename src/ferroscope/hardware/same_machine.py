"""Whether two nodes are one machine, by what inspections and BMCs reported. Pure.

One agreeing fact proves nothing: all servers of a chassis may report its serial number, a chassis manager is the BMC of
all of them, and an adapter that technicians carry around gives its MAC address to each machine. So two facts must agree
and none may contradict.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from ferroscope.core.model import Node
from ferroscope.hardware import machine_identity
from ferroscope_client.core import bmc_place
from ferroscope_client.core.bmc_place import Place

_NEEDED_FACTS: Final = 2


class Sameness(StrEnum):
    """``UNKNOWN`` also if facts contradict each other."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


class MachineFacts(msgspec.Struct, frozen=True):
    """The known facts about a node's machine, without placeholders.

    ``serials`` maps serial numbers in lower case to their reported form: a ramdisk and a BMC may read different ones.
    ``macs`` are those that may identify a machine. ``places``: where the BMC is; empty if the node shares it on
    purpose.
    """

    serials: Mapping[str, str] = {}
    uuids: frozenset[str] = frozenset()
    macs: frozenset[str] = frozenset()
    places: tuple[Place, ...] = ()


class Comparison(msgspec.Struct, frozen=True):
    """``agreeing``: the facts that make two nodes one machine, as texts."""

    sameness: Sameness
    agreeing: tuple[str, ...] = ()


def facts_of(node: Node, macs: Collection[str], bmc_addresses: Collection[str]) -> MachineFacts:
    """Return the known facts about the node's machine; ``macs``: those that it reported and that may identify it."""
    reported = (
        machine_identity.decode_identity(node.internal.get(machine_identity.IDENTITY)),
        machine_identity.behind_bmc(node),
        machine_identity.identify({"serial_number": node.hardware.get("serial")}, None, ()),
    )
    identities = [identity for identity in reported if identity is not None]
    return MachineFacts(
        serials={serial.lower(): serial for identity in reversed(identities) if (serial := identity.serial)},
        uuids=frozenset(_without_byte_order(identity.uuid) for identity in identities if identity.uuid),
        macs=frozenset(macs),
        places=bmc_place.exclusive_places(node.driver_info, bmc_addresses),
    )


def compare(first: MachineFacts, second: MachineFacts) -> Comparison:
    """Return whether two nodes with these facts are one machine."""
    serials, uuids = sorted(first.serials.keys() & second.serials.keys()), sorted(first.uuids & second.uuids)
    same_serial = [f"serial number {first.serials[serial]}" for serial in serials[:1]]
    others = [f"system UUID {system_uuid}" for system_uuid in uuids[:1]]
    if bmc_place.first_shared(first.places, second.places) is not None:
        others.append("BMC")
    shared_macs = len(first.macs & second.macs)
    # One shared MAC may belong to an adapter. A machine has most of its NICs in each inspection.
    share_most_macs = 2 * shared_macs > min(len(first.macs), len(second.macs))
    if (first.serials and second.serials and not serials) or (first.uuids and second.uuids and not uuids):
        # Servers of a chassis may share its serial number, and a BMC may report no NIC but its own USB NIC.
        also_agrees = others or (share_most_macs and shared_macs > 1)
        return Comparison(Sameness.UNKNOWN if also_agrees else Sameness.DIFFERENT)
    agreeing = (*same_serial, *others, *(["MAC addresses"] if share_most_macs else []))
    return Comparison(Sameness.SAME if len(agreeing) >= _NEEDED_FACTS else Sameness.UNKNOWN, agreeing)


def _without_byte_order(system_uuid: str) -> str:
    """Return the UUID in the smaller of its two byte orders: firmware shows either."""
    parsed = uuid.UUID(system_uuid)
    return min(str(parsed), str(uuid.UUID(bytes=parsed.bytes_le)))
