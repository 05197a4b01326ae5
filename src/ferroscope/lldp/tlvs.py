"""The TLVs of IEEE 802.1AB, 802.1 and 802.3, as named values, and the switch and port at the other end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from ferroscope.lldp import frames
from ferroscope.lldp.frames import FieldError, Tlv

CHASSIS_ID, PORT_ID, PORT_DESCRIPTION, SYSTEM_NAME = 1, 2, 4, 5
SYSTEM_DESCRIPTION, CAPABILITIES, MANAGEMENT_ADDRESS, ORGANIZATIONAL = 6, 7, 8, 127

# Subtypes of the identifiers whose value is not text.
_CHASSIS_MAC, _CHASSIS_ADDRESS, _CHASSIS_TEXTS = 4, 5, frozenset({1, 2, 3, 6, 7})
_PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS = 3, 4, frozenset({1, 2, 5, 7})

_CAPABILITIES: Final = {
    1: "Repeater",
    2: "Bridge",
    3: "WLAN",
    4: "Router",
    5: "Telephone",
    6: "DOCSIS cable device",
    7: "Station only",
    8: "C-Vlan",
    9: "S-Vlan",
    10: "TPMR",
}


def chassis_id(value: bytes) -> str:
    """Return the identifier of the switch: a MAC, a network address or a text."""
    return _identifier(value, _CHASSIS_MAC, _CHASSIS_ADDRESS, _CHASSIS_TEXTS)


def chassis_mac(value: bytes) -> str | None:
    """Return the MAC that identifies the switch; None if it uses another identifier."""
    return frames.mac(value[1:]) if frames.number(value, 0, 1) == _CHASSIS_MAC else None


def port_id(value: bytes) -> str:
    """Return the identifier of the switch's port."""
    return _identifier(value, _PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS)


def management_address(value: bytes) -> str | None:
    """Return the management address of the switch; None if its family is unknown."""
    return frames.address(frames.number(value, 1, 1), value[2:])


def capabilities(value: bytes) -> dict[str, Any]:
    """Return the supported and the enabled capabilities of the switch."""
    frames.exactly(value, 4)
    return {
        "switch_capabilities_support": frames.names(frames.number(value, 0, 2), _CAPABILITIES),
        "switch_capabilities_enabled": frames.names(frames.number(value, 2, 2), _CAPABILITIES),
    }


def _identifier(value: bytes, mac: int, address: int, texts: frozenset[int]) -> str:
    subtype, rest = frames.number(value, 0, 1), value[1:]
    if subtype in texts:
        return frames.text(rest)
    if subtype == mac:
        return frames.mac(rest)
    found = frames.address(frames.number(rest, 0, 1), rest[1:]) if subtype == address else None
    if found is None:
        raise FieldError(f"has an unknown subtype or address family ({subtype})")
    return found


# Types of Ethernet links: what auto-negotiation advertises, and the operational MAU type.
#
# Source: RFC 4836 (IANAifMauAutoNegCapBits and IANAifMauTypeListBits), in the Bare Metal service's spelling.

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
)


def kind(number: int) -> str:
    """Return the name of an operational MAU type."""
    if number >= len(_KINDS):
        raise FieldError(f"has an unknown MAU type ({number})")
    return _KINDS[number]


# The organizational TLVs of IEEE 802.1 (VLANs) and IEEE 802.3 (the link): subtype -> named values.
#
# A list in a value means that such a TLV may occur several times.

Found = dict[str, Any]


def _port_vlan(value: bytes) -> Found:
    return {"switch_port_untagged_vlan_id": frames.number(value, 0, 2)}


def _protocol_vlan(value: bytes) -> Found:
    flags = frames.number(frames.exactly(value, 3), 0, 1)
    return {
        "switch_port_protocol_vlan_enabled": bool(flags & 4),
        "switch_port_protocol_vlan_support": bool(flags & 2),
        "switch_port_protocol_vlan_ids": [frames.number(value, 1, 2)],
    }


def _vlan_name(value: bytes) -> Found:
    name = frames.part(value, 3, frames.number(value, 2, 1))
    vlan = {"name": frames.text(name.rstrip(b"\0")), "id": frames.number(value, 0, 2)}
    return {"switch_port_vlans": [vlan]}


def _protocol(value: bytes) -> Found:
    return {"switch_protocol_identities": [frames.part(value, 1, frames.number(value, 0, 1)).hex()]}


def _management_vlan(value: bytes) -> Found:
    return {"switch_port_management_vlan_id": frames.number(value, 0, 2)}


def _aggregation(value: bytes) -> Found:
    status = frames.number(frames.exactly(value, 5), 0, 1)
    return {
        "switch_port_link_aggregation_enabled": bool(status & 2),
        "switch_port_link_aggregation_support": bool(status & 1),
        "switch_port_link_aggregation_id": frames.number(value, 1, 4),
    }


def _phy(value: bytes) -> Found:
    status = frames.number(frames.exactly(value, 5), 0, 1)
    return {
        "switch_port_autonegotiation_enabled": bool(status & 2),
        "switch_port_autonegotiation_support": bool(status & 1),
        "switch_port_physical_capabilities": sorted(frames.names(frames.number(value, 1, 2), ADVERTISED)),
        "switch_port_mau_type": kind(frames.number(value, 3, 2)),
    }


def _mtu(value: bytes) -> Found:
    return {"switch_port_mtu": frames.number(value, 0, 2)}


_IEEE_802_1: Final[dict[int, Callable[[bytes], Found]]] = {
    1: _port_vlan,
    2: _protocol_vlan,
    3: _vlan_name,
    4: _protocol,
    6: _management_vlan,
    7: _aggregation,
}
# Link aggregation moved to 802.1; switches still send the old subtype.
_IEEE_802_3: Final[dict[int, Callable[[bytes], Found]]] = {1: _phy, 3: _aggregation, 4: _mtu}
_BY_OUI: Final = {bytes.fromhex("0080c2"): _IEEE_802_1, bytes.fromhex("00120f"): _IEEE_802_3}


def organizational(value: bytes) -> Found:
    """Return the values of an organizational TLV (type 127); empty for an unknown organization or subtype."""
    read = _BY_OUI.get(frames.part(value, 0, 3), {}).get(frames.number(value, 3, 1))
    return {} if read is None else read(value[4:])


# The names are those of the Bare Metal service's ``parse-lldp``. Of a value that may occur once, the first counts;
# values that may occur several times are lists.


def _single(name: str, read: Callable[[bytes], Any]) -> Callable[[bytes], Found]:
    return lambda value: {name: read(value)}


def _management(value: bytes) -> Found:
    found = management_address(value)
    return {} if found is None else {"switch_mgmt_addresses": [found]}


_READ: Final[dict[int, Callable[[bytes], Found]]] = {
    CHASSIS_ID: _single("switch_chassis_id", chassis_id),
    PORT_ID: _single("switch_port_id", port_id),
    PORT_DESCRIPTION: _single("switch_port_description", frames.text),
    SYSTEM_NAME: _single("switch_system_name", frames.text),
    SYSTEM_DESCRIPTION: _single("switch_system_description", frames.text),
    CAPABILITIES: capabilities,
    MANAGEMENT_ADDRESS: _management,
    ORGANIZATIONAL: organizational,
}


# Values that may occur several times. Capabilities are lists too, but occur once.
_REPEATED: Final = frozenset(
    {
        "switch_mgmt_addresses",
        "switch_port_protocol_vlan_ids",
        "switch_port_vlans",
        "switch_protocol_identities",
    }
)


def values(tlvs: Iterable[Tlv]) -> tuple[Found, list[str]]:
    """Return all values by name (``switch_...``), and messages about malformed TLVs."""
    found: Found = {}
    problems = []
    for kind, value in tlvs:
        read = _READ.get(kind)
        if read is None:
            continue
        try:
            parsed = read(value)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
            continue
        for name, item in parsed.items():
            if name in _REPEATED:
                found.setdefault(name, []).extend(item)
            else:
                found.setdefault(name, item)
    return found, problems


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """The other end of a cable: the switch's MAC, its port, its name; None if unknown."""

    switch_id: str | None = None
    port_id: str | None = None
    switch_info: str | None = None


_READ_LINK: Final[dict[int, tuple[str, Callable[[bytes], str | None]]]] = {
    # Users of ``switch_id`` accept only a MAC.
    CHASSIS_ID: ("switch_id", chassis_mac),
    PORT_ID: ("port_id", port_id),
    SYSTEM_NAME: ("switch_info", frames.text),
}


def link(tlvs: Iterable[Tlv]) -> tuple[Link, list[str]]:
    """Return the other end, using the last value of each kind, and messages about malformed TLVs."""
    found: dict[str, str] = {}
    problems = []
    for kind, value in tlvs:
        if kind not in _READ_LINK:
            continue
        name, read = _READ_LINK[kind]
        try:
            item = read(value)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
            continue
        if item is not None:
            found[name] = item
    return Link(**found), problems
