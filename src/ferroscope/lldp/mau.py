"""Kinds of Ethernet links: what auto-negotiation advertises, and what a port operates as.

Source: RFC 4836 (IANAifMauAutoNegCapBits and IANAifMauTypeListBits), in the words that the Bare
Metal service has for them.
"""

from __future__ import annotations

from typing import Final

from ferroscope.lldp.fields import FieldError

# Bit -> what is advertised; the first bit of the field on the wire is number 15 and means "other".
ADVERTISED: Final = {
    14: "10BASE-T hdx",
    13: "10BASE-T fdx",
    12: "10BASE-T4",
    11: "100BASE-TX hdx",
    10: "100BASE-TX fdx",
    9: "100BASE-T2 hdx",
    8: "100BASE-T2 fdx",
    7: "PAUSE fdx",
    6: "Asym PAUSE fdx",
    5: "Sym PAUSE fdx",
    4: "Asym and Sym PAUSE fdx",
    3: "1000BASE-X hdx",
    2: "1000BASE-X fdx",
    1: "1000BASE-T hdx",
    0: "1000BASE-T fdx",
}

_HALF_AND_FULL: Final = ("100BASE-TX", "100BASE-FX", "100BASE-T2", *(f"1000BASE-{end}" for end in ("X", "LX", "SX")))
_10_GIGABIT: Final = ("X", "LX4", "R", "ER", "LR", "SR", "W", "EW", "LW", "SW", "CX4")

# By number, from 0 on.
_KINDS: Final = (
    *("Unknown", "AUI", "10BASE-5", "FOIRL", "10BASE-2", "10BASE-T duplex mode unknown", "10BASE-FP", "10BASE-FB"),
    *("10BASE-FL duplex mode unknown", "10BROAD36"),
    *("10BASE-T half duplex", "10BASE-T full duplex", "10BASE-FL half duplex", "10BASE-FL full duplex"),
    "100 BASE-T4",
    *(f"{name} {mode} duplex" for name in _HALF_AND_FULL for mode in ("half", "full")),
    *(f"1000BASE-{end} {mode} duplex" for end in ("CX", "T") for mode in ("half", "full")),
    *(f"10GBASE-{end}" for end in _10_GIGABIT),
    *("2BASE-TL", "10PASS-TS", "100BASE-BX10D", "100BASE-BX10U", "100BASE-LX10"),
    *("1000BASE-BX10D", "1000BASE-BX10U", "1000BASE-LX10"),
    *("1000BASE-PX10D", "1000BASE-PX10U", "1000BASE-PX20D", "1000BASE-PX20U"),
)


def kind(number: int) -> str:
    """Return what a port operates as."""
    if number >= len(_KINDS):
        raise FieldError(f"has a MAU type that is not known ({number})")
    return _KINDS[number]
