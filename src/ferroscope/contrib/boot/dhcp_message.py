"""DHCPv4 as a booting machine speaks it: its first message, and the replies of servers.

Sources: RFC 2131, RFC 2132; RFC 4578 for client architectures; the PXE specification 2.1 for ``PXEClient`` and port
4011.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from typing import Final

import msgspec

_COOKIE: Final = b"\x63\x82\x53\x63"
_REQUEST, _REPLY = 1, 2
_BROADCAST_FLAG: Final = 0x8000
_HEAD: Final = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
_IP: Final = struct.Struct("!BBHHHBBH4s4s")
_UDP: Final = struct.Struct("!HHHH")
_ETHERNET_HEADER_BYTES: Final = 14
_TO_ALL: Final = b"\xff" * 6

_PAD, _END = 0, 255
_MASK, _ROUTER, _LEASE, _TYPE, _SERVER = 1, 3, 51, 53, 54
_WANTED, _VENDOR, _BOOT_FILE, _USER_CLASS = 55, 60, 67, 77
_ARCHITECTURE, _INTERFACE, _MACHINE, _IPXE = 93, 94, 97, 175
DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5


class DhcpReply(msgspec.Struct, frozen=True):
    """A server's reply. ``server`` identifies it; ``address`` is "" from a server that assigns none (a proxy)."""

    xid: int
    mac: str
    kind: int
    server: str
    address: str = ""
    netmask: str = ""
    router: str = ""
    next_server: str = ""
    boot_file: str = ""
    vendor: str = ""


def message(
    mac: str, xid: int, *, kind: int = DISCOVER, architecture: int | None = None, ipxe: bool = False, own: str = ""
) -> bytes:
    """Return the message of a machine.

    ``architecture``: of the firmware, by IANA's registry; None for an ordinary client that does not boot. ``ipxe``: the
    client is iPXE. ``own``: the address that the machine already has, for port 4011.
    """
    hardware = bytes.fromhex(mac.replace(":", ""))
    address = ipaddress.IPv4Address(own or 0).packed
    flags = 0 if own else _BROADCAST_FLAG
    none = bytes(4)
    head = _HEAD.pack(
        _REQUEST, 1, 6, 0, xid, 0, flags, address, none, none, none, hardware, b"", b"", _COOKIE
    )  # fmt: skip
    options = _option(_TYPE, bytes([kind])) + _option(_WANTED, bytes([_MASK, _ROUTER, _LEASE, _SERVER, 66, _BOOT_FILE]))
    if architecture is not None:
        vendor = "HTTPClient" if architecture in (15, 16, 18, 19) else "PXEClient"
        options += _option(_VENDOR, f"{vendor}:Arch:{architecture:05}:UNDI:003016".encode())
        options += _option(_ARCHITECTURE, struct.pack("!H", architecture)) + _option(_INTERFACE, b"\x01\x03\x10")
        options += _option(_MACHINE, bytes(1) + hardware.rjust(16, b"\0"))
    if ipxe:
        options += _option(_USER_CLASS, b"iPXE") + _option(_IPXE, b"\x01\x01\x01")
    return head + options + bytes([_END])


def with_number(payload: bytes, xid: int) -> bytes:
    """Return the message with this transaction number."""
    return payload[:4] + struct.pack("!I", xid) + payload[8:]


def frame(payload: bytes, mac: str) -> bytes:
    """Return the Ethernet frame that sends it from this MAC address to all servers on the network."""
    datagram = _UDP.pack(68, 67, _UDP.size + len(payload), 0) + payload
    fields = (0x45, 0, _IP.size + len(datagram), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    checksum = _checksum(_IP.pack(*fields))
    header = _IP.pack(*fields[:7], checksum, *fields[8:])
    return _TO_ALL + bytes.fromhex(mac.replace(":", "")) + b"\x08\x00" + header + datagram


def in_frame(data: bytes) -> DhcpReply | None:
    """Return the reply of a DHCP server in an Ethernet frame; None if it is anything else, or damaged."""
    packet = data[_ETHERNET_HEADER_BYTES:]
    if (
        data[12:_ETHERNET_HEADER_BYTES] != b"\x08\x00"
        or len(packet) < _IP.size
        or packet[0] >> 4 != 4
        or packet[9] != 17
    ):
        return None
    datagram = packet[(packet[0] & 0x0F) * 4 :]
    return reply(datagram[_UDP.size :]) if datagram[:4] == struct.pack("!HH", 67, 68) else None


def reply(payload: bytes) -> DhcpReply | None:
    """Return the reply of a DHCP server; None if it is anything else, or damaged."""
    if len(payload) < _HEAD.size:
        return None
    op, _, _, _, xid, _, _, _, assigned, following, _, hardware, _, file, cookie = _HEAD.unpack_from(payload)
    options = _options(payload[_HEAD.size :])
    kind, server = options.get(_TYPE, b""), options.get(_SERVER, b"")
    if op != _REPLY or cookie != _COOKIE or len(kind) != 1 or len(server) != 4:
        return None
    return DhcpReply(
        xid=xid,
        mac=hardware[:6].hex(":"),
        kind=kind[0],
        server=_dotted_address(server),
        address=_dotted_address(assigned),
        netmask=_dotted_address(options.get(_MASK, b"")),
        router=_dotted_address(options.get(_ROUTER, b"")[:4]),
        next_server=_dotted_address(following),
        boot_file=_text(options.get(_BOOT_FILE) or file),
        vendor=_text(options.get(_VENDOR, b"")),
    )


def _option(code: int, value: bytes) -> bytes:
    return bytes([code, len(value)]) + value


def _options(data: bytes) -> Mapping[int, bytes]:
    """Return the options; if they are damaged, those before the damage."""
    by_code: dict[int, bytes] = {}
    at = 0
    while at < len(data) and data[at] != _END:
        if data[at] == _PAD:
            at += 1
            continue
        if at + 2 > len(data) or at + 2 + data[at + 1] > len(data):
            break
        by_code[data[at]] = by_code.get(data[at], b"") + data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    return by_code


def _dotted_address(address: bytes) -> str:
    return str(ipaddress.IPv4Address(address)) if len(address) == 4 and any(address) else ""


def _text(value: bytes) -> str:
    """Return printable text: data from the network is shown on a terminal."""
    text = value.partition(b"\0")[0].decode("ascii", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
