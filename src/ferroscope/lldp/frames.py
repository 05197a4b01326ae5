"""Reads TLVs, and the fields in them. Field functions raise ``FieldError`` if the value is too short or invalid."""

from __future__ import annotations

import binascii
from socket import AF_INET6, inet_ntop
from typing import Any, Final, NamedTuple

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


def exactly(value: bytes, size: int) -> bytes:
    """Return ``value`` if it has this size."""
    if len(value) != size:
        raise FieldError(f"has {len(value)} bytes instead of {size}")
    return value


def text(value: bytes) -> str:
    """Return the value as UTF-8 text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FieldError("is not valid UTF-8") from None


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


class Tlv(NamedTuple):
    """One TLV: its type and the bytes of its value."""

    kind: int
    value: bytes


def frame(recorded: object) -> tuple[list[Tlv], list[str]]:
    """Return the TLVs in order, and messages about those that were skipped."""
    if recorded is None:
        return [], []
    if not isinstance(recorded, list | tuple):
        return [], [f"the record is not a list but {type(recorded).__name__}"]
    tlvs, problems = [], []
    for number, item in enumerate(recorded[:MAX_TLVS]):
        found = _tlv(item)
        if isinstance(found, Tlv):
            tlvs.append(found)
        else:
            problems.append(f"TLV number {number} {found}")
    if len(recorded) > MAX_TLVS:
        problems.append(f"{len(recorded) - MAX_TLVS} TLVs after the first {MAX_TLVS} are ignored")
    return tlvs, problems


def _tlv(item: Any) -> Tlv | str:
    """Return the TLV, or what is wrong with it."""
    if not isinstance(item, list | tuple) or len(item) != 2:
        return "is not a pair of type and value"
    kind, text = item
    if not isinstance(kind, int) or isinstance(kind, bool) or not 0 <= kind <= _MAX_TYPE:
        return "has no type from 0 to 127"
    if not isinstance(text, str):
        return f"(type {kind}) has no hexadecimal value"
    if len(text) > 2 * MAX_VALUE:
        return f"(type {kind}) has more than {MAX_VALUE} bytes"
    try:
        return Tlv(kind, binascii.unhexlify(text))
    except ValueError:
        return f"(type {kind}) has no hexadecimal value"
