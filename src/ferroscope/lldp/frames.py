"""Reads TLVs, and the fields in them. Field functions raise ``FieldError`` if the value is too short or invalid."""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from socket import AF_INET6, inet_ntop
from typing import Any, Final, NamedTuple

from ferroscope.core.json_safety import clean_text
from ferroscope.core.values import many

_IPV4, _IPV6, _MAC = 1, 2, 6  # IANA's address family numbers
_SIZES: Final = {_IPV4: 4, _IPV6: 16, _MAC: 6}


class FieldError(ValueError):
    """A malformed TLV; the message begins with a verb."""


def number(value: bytes, start: int, size: int) -> int:
    """Return the big-endian unsigned number of ``size`` bytes at ``start``."""
    return int.from_bytes(part(value, start, size), "big")


def part(value: bytes, start: int, size: int) -> bytes:
    """Return ``size`` bytes at ``start``."""
    found = value[start : start + size]
    if len(found) < size:
        raise FieldError(f"is too short: {len(value)} bytes")
    return found


def text(value: bytes) -> str:
    """Return the value as text, without padding; what is not UTF-8 is replaced."""
    found = clean_text(value.decode(errors="replace"))
    if not found and value.strip(b"\0"):
        raise FieldError("is not valid UTF-8")
    return found


def identifier(value: bytes) -> str:
    """Return an identifier that should be a text, in hexadecimal if it is none."""
    try:
        found = value.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return value.hex()
    return found if found.isprintable() else value.hex()


def mac(value: bytes) -> str:
    """Return the MAC address at the beginning."""
    return part(value, 0, 6).hex(":")


def address(family: int, value: bytes) -> str | None:
    """Return the network address at the beginning of ``value``; None for an unknown family."""
    size = _SIZES.get(family)
    if size is None:
        return None
    found = part(value, 0, size)
    if family == _IPV4:
        return ".".join(str(byte) for byte in found)
    return inet_ntop(AF_INET6, found) if family == _IPV6 else found.hex(":")


def names(bits: int, meanings: dict[int, str]) -> list[str]:
    """Return the names of the set bits, in the order of ``meanings`` (bit number -> name)."""
    return [meaning for bit, meaning in meanings.items() if bits >> bit & 1]


# The record of the ramdisk: ``[[1, "04aabbccddeeff"], ...]``, types, and values in hexadecimal.
#
# Limits: a value has at most 511 bytes (its length field has 9 bits), and at most ``MAX_TLVS`` of a frame are read.

MAX_VALUE: Final = 511
MAX_TLVS: Final = 1024
_MAX_TYPE: Final = 127
_SEQUENCES: Final = (list, tuple)


class Tlv(NamedTuple):
    """One TLV: its type and the bytes of its value."""

    kind: int
    value: bytes


def frame(recorded: object) -> tuple[list[Tlv], list[str]]:
    """Return the TLVs in order, and messages about those that were skipped."""
    if recorded is None:
        return [], []
    if not isinstance(recorded, _SEQUENCES):
        return [], [f"the record is not a list but {type(recorded).__name__}"]
    tlvs, problems = [], []
    for number, item in enumerate(recorded[:MAX_TLVS]):
        found = _tlv(item)
        if type(found) is Tlv:
            tlvs.append(found)
        else:
            problems.append(f"TLV number {number} {found}")
    if len(recorded) > MAX_TLVS:
        problems.append(f"{many(len(recorded) - MAX_TLVS, 'TLV')} after the first {MAX_TLVS} are ignored")
    return tlvs, problems


def _tlv(item: Any) -> Tlv | str:
    """Return the TLV, or what is wrong with it."""
    if not isinstance(item, _SEQUENCES) or len(item) != 2:
        return "is not a pair of type and value"
    kind, text = item
    if type(kind) is not int or not 0 <= kind <= _MAX_TYPE:
        return "has no type from 0 to 127"
    if not isinstance(text, str):
        return f"(type {kind}) has no hexadecimal value"
    if len(text) > 2 * MAX_VALUE:
        return f"(type {kind}) has more than {MAX_VALUE} bytes"
    try:
        return Tlv(kind, binascii.unhexlify(text))
    except ValueError:
        return f"(type {kind}) has no hexadecimal value"


# The neighbours of one NIC: the ramdisk records a frame of each, one after the other. A switch that does not know LLDP
# forwards those of others, and the firmware of some NICs sends its own.

_END: Final = 0
_CHASSIS: Final = 1
_PORT: Final = 2
_CAPABILITIES: Final = 7
_BRIDGE_OR_ROUTER: Final = 0b10100


def neighbours(tlvs: Iterable[Tlv]) -> list[list[Tlv]]:
    """Return the TLVs of each neighbour; what follows the end of a frame and begins no other is padding."""
    found: list[list[Tlv]] = [[]]
    ended = False
    for tlv in tlvs:
        kinds = {one.kind for one in found[-1]} if tlv.kind == _CHASSIS else set()
        if tlv.kind == _END:
            ended = bool(found[-1])
        elif tlv.kind == _CHASSIS and (ended or kinds >= {_CHASSIS, _PORT}):
            found.append([tlv])
            ended = False
        elif not ended:
            found[-1].append(tlv)
    return found


def neighbour(tlvs: Iterable[Tlv]) -> list[Tlv]:
    """Return the TLVs of the neighbour that matters: the first one that is a switch, or else the first one."""
    return max(neighbours(tlvs), key=_importance)  # of equal ones, the first


def _importance(tlvs: list[Tlv]) -> int:
    enabled = (int.from_bytes(tlv.value[2:4], "big") for tlv in tlvs if tlv.kind == _CAPABILITIES)
    if any(bits & _BRIDGE_OR_ROUTER for bits in enabled):
        return 2
    return int(any(tlv.kind == _CHASSIS for tlv in tlvs))
