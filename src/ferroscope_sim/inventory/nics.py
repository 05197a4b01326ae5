"""The NICs of a simulated machine: interface records with addresses and LLDP."""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from ferroscope.core.model import Document
from ferroscope_sim.inventory.catalog import SWITCHES, Model, Nic
from ferroscope_sim.inventory.hardware import Dice, macs

# LLDP TLVs as the ramdisk records them: pairs of type and value, the value in hexadecimal.
#
# Source: IEEE 802.1AB for the basic ones, its annexes for the 802.1 and 802.3 organizational ones.

Tlv = tuple[int, str]

_BRIDGE_AND_ROUTER = (1 << 2) | (1 << 4)
_IEEE_802_1 = bytes.fromhex("0080c2")
_IEEE_802_3 = bytes.fromhex("00120f")


class Neighbour(msgspec.Struct, frozen=True):
    """The switch port that a NIC is plugged into."""

    chassis_mac: str
    system_name: str
    system_description: str
    management_address: str
    port_name: str
    port_description: str
    vlan: int
    mtu: int


def tlvs(neighbour: Neighbour) -> list[Tlv]:
    """Return everything that the neighbour announces, in the order of the frame."""
    return [
        _chassis(neighbour.chassis_mac),
        _tlv(2, b"\x05" + neighbour.port_name.encode()),
        _tlv(3, struct.pack("!H", 120)),
        _tlv(4, neighbour.port_description.encode()),
        *_system(neighbour.system_name, neighbour.system_description, neighbour.management_address),
        _tlv(127, _IEEE_802_1 + b"\x01" + struct.pack("!H", neighbour.vlan)),
        _vlan_name(neighbour.vlan),
        _tlv(127, _IEEE_802_1 + b"\x07" + struct.pack("!BI", 1, 0)),
        _tlv(127, _IEEE_802_3 + b"\x01" + struct.pack("!BHH", 3, 0x6C01, 30)),
        _tlv(127, _IEEE_802_3 + b"\x04" + struct.pack("!H", neighbour.mtu)),
        (0, ""),
    ]


def _tlv(kind: int, value: bytes) -> Tlv:
    return kind, value.hex()


def _chassis(mac: str) -> Tlv:
    return 1, "04" + mac.replace(":", "")


@lru_cache(maxsize=1024)
def _system(name: str, description: str, address: str) -> tuple[Tlv, ...]:
    """Return what is the same on all ports of one switch."""
    management = struct.pack("!BB4sBIB", 5, 1, IPv4Address(address).packed, 2, 10, 0)
    return (
        _tlv(5, name.encode()),
        _tlv(6, description.encode()),
        _tlv(7, struct.pack("!HH", _BRIDGE_AND_ROUTER, _BRIDGE_AND_ROUTER)),
        _tlv(8, management),
    )


@lru_cache(maxsize=256)
def _vlan_name(vlan: int) -> Tlv:
    name = f"v{vlan}_provisioning".encode()
    return _tlv(127, _IEEE_802_1 + b"\x03" + struct.pack("!HB", vlan, len(name)) + name)


_NETWORK: Final = int(IPv4Address("172.16.0.10"))
_NETWORK_SIZE: Final = (1 << 20) - 20
_RACK: Final = 40


def interfaces(index: int, model: Model, *, lldp_everywhere: bool = True) -> list[Document]:
    """Return the interface records, as unordered as the kernel finds them; the first MAC booted.

    Without ``lldp_everywhere`` only the NIC that booted is connected.
    """
    dice = Dice(index, topic=2)
    records = []
    for number, mac in enumerate(macs(index)):
        booted = number == 0
        connected = booted or (lldp_everywhere and dice.between(0, 3) > 0)
        records.append(_record(index, number, mac, model, booted=booted, connected=connected))
    start = dice.between(0, len(records) - 1)
    return records[start:] + records[:start]


def _record(index: int, number: int, mac: str, model: Model, *, booted: bool, connected: bool) -> Document:
    card, port = divmod(number, 2)
    nic = model.nics[card % len(model.nics)]
    name = model.interface.format(card=card + 1, port=port, index=number)
    return {
        "name": name,
        "mac_address": mac,
        "ipv4_address": str(IPv4Address(_NETWORK + index % _NETWORK_SIZE)) if booted else None,
        "ipv6_address": f"{_link_local(mac)}%{name}" if connected else None,
        "has_carrier": connected,
        "lldp": _lldp(index, number, nic) if connected else [],
        "vendor": nic.vendor,
        "product": nic.product,
        "client_id": None,
        "biosdevname": None,
        "speed_mbps": nic.mbps,
        "pci_address": f"0000:{0x31 + 0x10 * card:02x}:00.{port}",
        "driver": nic.driver,
    }


def _link_local(mac: str) -> str:
    """Return the address that the kernel derives from a MAC (RFC 4291, appendix A); ours begin with 02."""
    _first, b, c, d, e, f = (int(part, 16) for part in mac.split(":"))
    return f"fe80::{b:x}:{c << 8 | 0xFF:x}:fe{d:02x}:{e << 8 | f:x}"


def _lldp(index: int, number: int, nic: Nic) -> list[Tlv]:
    """Return what the switch on this NIC says: two switches on top of each rack of 40 machines."""
    rack, unit = divmod(index, _RACK)
    pair = number % 2
    switch = SWITCHES[rack % len(SWITCHES)]
    port = switch.port.format(port=1 + unit + _RACK * (number // 2))
    vlan = 100 + 10 * (number // 2)
    return tlvs(
        Neighbour(
            chassis_mac=f"02:fd:{rack >> 16 & 255:02x}:{rack >> 8 & 255:02x}:{rack & 255:02x}:{pair:02x}",
            system_name=f"leaf{pair + 1}-r{rack:04d}.sim.example",
            system_description=switch.description,
            management_address=str(IPv4Address(0xC0A80000 + (2 * rack + pair) % 65536)),
            port_name=port,
            port_description=f"node {index} {nic.driver} {number}" if pair else port,
            vlan=vlan,
            mtu=9216 if nic.mbps >= 10000 else 1522,
        )
    )
