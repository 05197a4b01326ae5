"""TLVs out of what the ramdisk recorded: ``[[1, "04aabbccddeeff"], ...]``, types and values in hexadecimal.

Bounds: a value has at most 511 bytes (its length field has 9 bits), and of one frame, which is
one Ethernet frame, at most ``MAX_TLVS`` are looked at.
"""

from __future__ import annotations

import binascii
from typing import Any, Final, NamedTuple

MAX_VALUE: Final = 511
MAX_TLVS: Final = 1024
_MAX_TYPE: Final = 127


class Tlv(NamedTuple):
    """One TLV: its type and the bytes of its value."""

    kind: int
    value: bytes


def frame(recorded: object) -> tuple[list[Tlv], list[str]]:
    """Return the TLVs in their order, and in words what was left out and why."""
    if recorded is None:
        return [], []
    if not isinstance(recorded, list | tuple):
        return [], [f"the record is no list but {type(recorded).__name__}"]
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
        return "is no pair of type and value"
    kind, text = item
    if not isinstance(kind, int) or isinstance(kind, bool) or not 0 <= kind <= _MAX_TYPE:
        return "has no type from 0 to 127"
    if not isinstance(text, str):
        return f"(type {kind}) has no value in hexadecimal"
    if len(text) > 2 * MAX_VALUE:
        return f"(type {kind}) has more than {MAX_VALUE} bytes"
    try:
        return Tlv(kind, binascii.unhexlify(text))
    except ValueError:
        return f"(type {kind}) has no value in hexadecimal"
