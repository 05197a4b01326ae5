"""DHCP as it is on the wire: a DISCOVER from any MAC, and what an OFFER says. Source: RFC 2131, RFC 2132, RFC 4578.

The DISCOVER is a PXE firmware's, asks for a broadcast answer, and has the MAC both as the frame's source and as
the hardware address, so that it counts for a filter of either kind.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_BROADCAST: Final = b"\xff" * 6
_COOKIE: Final = b"\x63\x82\x53\x63"
_OFFER: Final = 2
_OPTIONS: Final = (
    b"\x35\x01\x01"  # DISCOVER
    b"\x37\x07\x01\x03\x06\x0c\x0f\x42\x43"  # what it wants to know
    b"\x3c\x20PXEClient:Arch:00000:UNDI:002001"
    b"\x5d\x02\x00\x00\x5e\x03\x01\x02\x01\xff"
)
_IP: Final = struct.Struct("!BBHHHBBH4s4s")


class Offer(NamedTuple):
    """``xid`` is the DISCOVER's; ``server`` and ``address`` are dotted."""

    xid: int
    mac: str
    server: str
    address: str


def discover(mac: str, xid: int) -> bytes:
    """Return the frame of a DHCPDISCOVER."""
    hardware = bytes.fromhex(mac.replace(":", ""))
    bootp = struct.pack("!BBBBIHH", 1, 1, 6, 0, xid, 0, 0x8000) + bytes(16) + hardware + bytes(10 + 192) + _COOKIE
    payload = bootp + _OPTIONS
    datagram = struct.pack("!HHHH", 68, 67, 8 + len(payload), 0) + payload
    fields = (0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0, bytes(4), _BROADCAST[:4])
    checksum = _checksum(_IP.pack(*fields))
    header = _IP.pack(*fields[:7], checksum, *fields[8:])
    return _BROADCAST + hardware + b"\x08\x00" + header + datagram


def offer(frame: bytes) -> Offer | None:
    """Return what is offered in the frame, or None where it is none."""
    if len(frame) < 14 + 20 + 8 + 240 or frame[12:14] != b"\x08\x00" or frame[14] != 0x45 or frame[23] != 17:
        return None
    if frame[34:38] != b"\x00\x43\x00\x44":
        return None
    bootp = frame[42:]
    options = _options(bootp[240:])
    if bootp[0] != 2 or options.get(53) != bytes([_OFFER]) or len(options.get(54, b"")) != 4:
        return None
    (xid,) = struct.unpack_from("!I", bootp, 4)
    return Offer(xid, bootp[28:34].hex(":"), _dotted(options[54]), _dotted(bootp[16:20]))


def _options(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data) and data[at] != 255:
        if data[at] == 0:
            at += 1
            continue
        if at + 1 >= len(data):
            break
        found[data[at]] = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    return found


def _checksum(header: bytes) -> int:
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def _dotted(address: bytes) -> str:
    return ".".join(map(str, address))
