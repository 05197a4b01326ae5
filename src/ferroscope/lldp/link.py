"""Who is plugged where: the three values that a port's local link connection has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ferroscope.lldp import frames
from ferroscope.lldp import tlvs as basic
from ferroscope.lldp.frames import FieldError, Tlv


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """The other end of a cable: the switch's MAC, its port, its name; None for what it does not tell."""

    switch_id: str | None = None
    port_id: str | None = None
    switch_info: str | None = None


_READ: Final[dict[int, tuple[str, Callable[[bytes], str | None]]]] = {
    # Only a MAC identifies a switch to those who use this.
    basic.CHASSIS_ID: ("switch_id", basic.chassis_mac),
    basic.PORT_ID: ("port_id", basic.port_id),
    basic.SYSTEM_NAME: ("switch_info", frames.text),
}


def link(tlvs: Iterable[Tlv]) -> tuple[Link, list[str]]:
    """Return the other end, the last value of each kind, and in words which TLVs cannot be read."""
    found: dict[str, str] = {}
    problems = []
    for kind, value in tlvs:
        if kind not in _READ:
            continue
        name, read = _READ[kind]
        try:
            item = read(value)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
            continue
        if item is not None:
            found[name] = item
    return Link(**found), problems
