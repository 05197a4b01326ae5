"""The fields that TLVs are made of. Each raises ``FieldError`` where the value is too short or makes no sense."""

from __future__ import annotations

from socket import AF_INET6, inet_ntop
from typing import Final

_IPV4, _IPV6, _MAC = 1, 2, 6  # IANA's address family numbers
_SIZES: Final = {_IPV4: 4, _IPV6: 16, _MAC: 6}


class FieldError(ValueError):
    """The TLV cannot be read; the message says why and begins with a verb."""


def number(value: bytes, start: int, size: int) -> int:
    """Return the unsigned number of ``size`` bytes at ``start``, the highest byte first."""
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
    """Return the text of a value, which is UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FieldError("is no text in UTF-8") from None


def mac(value: bytes) -> str:
    """Return the MAC address at the beginning."""
    return part(value, 0, 6).hex(":")


def address(family: int, value: bytes) -> str | None:
    """Return the network address at the beginning of ``value``; None for a family that is not known."""
    size = _SIZES.get(family)
    if size is None:
        return None
    found = part(value, 0, size)
    if family == _IPV4:
        return ".".join(str(byte) for byte in found)
    return inet_ntop(AF_INET6, found) if family == _IPV6 else found.hex(":")


def names(bits: int, meanings: dict[int, str]) -> list[str]:
    """Return the meanings of the bits that are set, in the order of ``meanings`` (bit number -> meaning)."""
    return [meaning for bit, meaning in meanings.items() if bits >> bit & 1]
