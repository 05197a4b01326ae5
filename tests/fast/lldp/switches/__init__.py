"""LLDP frames of real switches, one file for each vendor.

Which TLVs a switch sends, their subtypes, lengths and oddities are facts of public captures and bug reports, which each
file names; addresses, names and serial numbers are ours, and the frames are encoded here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope_client.lldp import SwitchLink


class Switch(msgspec.Struct, frozen=True):
    """What a switch sends, TLV by TLV, and what is to be read of it."""

    name: str
    tlvs: tuple[tuple[int, bytes], ...]
    link: SwitchLink
    values: dict[str, Any]

    @property
    def recorded(self) -> list[list[Any]]:
        """The frame as a ramdisk records it."""
        return [[kind, value.hex()] for kind, value in self.tlvs]


TTL = (3, b"\x00\x78")
END = (0, b"")


def chassis(mac: str) -> tuple[int, bytes]:
    return (1, b"\x04" + raw_mac(mac))


def port(name: str, *, subtype: int = 5) -> tuple[int, bytes]:
    return (2, bytes([subtype]) + name.encode())


def text(kind: int, value: str) -> tuple[int, bytes]:
    return (kind, value.encode())


def capabilities(supported: int, enabled: int) -> tuple[int, bytes]:
    return (7, supported.to_bytes(2, "big") + enabled.to_bytes(2, "big"))


def management(address: bytes, *, number: int = 1, subtype: int = 2, oid: bytes = b"") -> tuple[int, bytes]:
    family = {4: b"\x01", 16: b"\x02", 6: b"\x06"}[len(address)]
    interface = bytes([subtype]) + number.to_bytes(4, "big")
    return (8, bytes([len(address) + 1]) + family + address + interface + bytes([len(oid)]) + oid)


def dot1(subtype: int, value: bytes) -> tuple[int, bytes]:
    return (127, b"\x00\x80\xc2" + bytes([subtype]) + value)


def dot3(subtype: int, value: bytes) -> tuple[int, bytes]:
    return (127, b"\x00\x12\x0f" + bytes([subtype]) + value)


def med(subtype: int, value: bytes) -> tuple[int, bytes]:
    """Encode a TLV of LLDP-MED (ANSI/TIA-1057)."""
    return (127, b"\x00\x12\xbb" + bytes([subtype]) + value)


def vlan(number: int, name: str) -> tuple[int, bytes]:
    return dot1(3, number.to_bytes(2, "big") + bytes([len(name)]) + name.encode())


def raw_mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
