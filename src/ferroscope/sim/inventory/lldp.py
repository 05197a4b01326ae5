"""LLDP TLVs as the ramdisk records them: pairs of type and value, the value in hexadecimal.

Source: IEEE 802.1AB for the basic ones, its annexes for the 802.1 and 802.3 organizational ones.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import IPv4Address

import msgspec

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
