"""Types of Ethernet links: what auto-negotiation advertises, and the operational MAU type.

Source: RFC 4836, and IANA-MAU-MIB, which continues it (IANAifMauAutoNegCapBits and IANAifMauTypeListBits), in the Bare
Metal service's spelling.
"""

from __future__ import annotations

from typing import Final

# Bit -> advertised capability; the first bit on the wire is number 15 and means "other".
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

# Operational MAU types, by number from 0.
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
    *("10GBASE-T", "10GBASE-LRM", "1000BASE-KX", "10GBASE-KX4", "10GBASE-KR"),
    *(f"10/1GBASE-PRX-{end}" for end in ("D1", "D2", "D3", "U1", "U2", "U3")),
    *(f"10GBASE-PR-{end}" for end in ("D1", "D2", "D3", "U1", "U3")),
    *(f"40GBASE-{end}" for end in ("KR4", "CR4", "SR4", "FR", "LR4")),
    *(f"100GBASE-{end}" for end in ("CR10", "SR10", "LR4", "ER4")),
    "MAU type 79",
    *("1000BASE-PX30D", "1000BASE-PX30U", "1000BASE-PX40D", "1000BASE-PX40U"),
    *("10/1GBASE-PRX-D4", "10/1GBASE-PRX-U4", "10GBASE-PR-D4", "10GBASE-PR-U4"),
    *(f"25GBASE-{end}" for end in ("CR", "CR-S", "KR", "KR-S", "R", "SR", "T")),
    *("40GBASE-ER4", "40GBASE-R", "40GBASE-T"),
    *(f"100GBASE-{end}" for end in ("CR4", "KR4", "KP4", "R", "SR4")),
    *("2.5GBASE-T", "5GBASE-T"),
)


def kind(number: int) -> str:
    """Return the name of an operational MAU type; its number if it is newer than the list."""
    return _KINDS[number] if number < len(_KINDS) else f"MAU type {number}"
