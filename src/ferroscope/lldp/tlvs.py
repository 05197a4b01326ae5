"""The TLVs of IEEE 802.1AB, 802.1 and 802.3, as named values, and the switch and port at the other end.

What a switch sends too much is ignored, and what it cuts off costs only what was cut off: the values before it count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ferroscope.core.values import normalized_mac
from ferroscope.lldp import ethernet, frames
from ferroscope.lldp.frames import FieldError, Tlv, neighbour

CHASSIS_ID, PORT_ID, PORT_DESCRIPTION, SYSTEM_NAME = 1, 2, 4, 5
SYSTEM_DESCRIPTION, CAPABILITIES, MANAGEMENT_ADDRESS, ORGANIZATIONAL = 6, 7, 8, 127

# Subtypes of the identifiers whose value is not text.
_CHASSIS_MAC, _CHASSIS_ADDRESS, _CHASSIS_TEXTS = 4, 5, frozenset({1, 2, 3, 6, 7})
_PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS = 3, 4, frozenset({1, 2, 5, 7})
_WRITTEN_MAC: Final = 17

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


Found = dict[str, Any]
Read = Iterator[tuple[str, Any]]


def chassis_id(value: bytes) -> str:
    """Return the identifier of the switch: a MAC, a network address or a text."""
    return _identifier(value, _CHASSIS_MAC, _CHASSIS_ADDRESS, _CHASSIS_TEXTS)


def chassis_mac(value: bytes) -> str | None:
    """Return the MAC that identifies the switch, also one that it has written out; None for other identifiers."""
    if frames.number(value, 0, 1) not in {_CHASSIS_MAC, *_CHASSIS_TEXTS}:
        return None
    return normalized_mac(chassis_id(value))


def port_id(value: bytes) -> str:
    """Return the identifier of the switch's port."""
    return _identifier(value, _PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS)


def management_address(value: bytes) -> str | None:
    """Return the management address of the switch; None if its family is unknown."""
    return frames.address(frames.number(value, 1, 1), value[2:])


def capabilities(value: bytes) -> Read:
    """Yield the supported and the enabled capabilities of the switch."""
    yield "switch_capabilities_support", frames.names(frames.number(value, 0, 2), _CAPABILITIES)
    yield "switch_capabilities_enabled", frames.names(frames.number(value, 2, 2), _CAPABILITIES)


def _identifier(value: bytes, mac: int, address: int, texts: frozenset[int]) -> str:
    subtype, rest = frames.number(value, 0, 1), value[1:]
    if subtype in texts:
        return frames.identifier(rest)
    if subtype == mac:  # some switches write it out
        written = normalized_mac(rest[:_WRITTEN_MAC].decode("latin-1")) if len(rest) >= _WRITTEN_MAC else None
        return written or frames.mac(rest)
    found = frames.address(frames.number(rest, 0, 1), rest[1:]) if subtype == address else None
    if found is None:
        raise FieldError(f"has an unknown subtype or address family ({subtype})")
    return found


# The organizational TLVs of IEEE 802.1 (VLANs) and IEEE 802.3 (the link): subtype -> named values.
#
# A list in a value means that such a TLV may occur several times.


def _port_vlan(value: bytes) -> Read:
    yield "switch_port_untagged_vlan_id", frames.number(value, 0, 2)


def _protocol_vlan(value: bytes) -> Read:
    flags = frames.number(value, 0, 1)
    yield "switch_port_protocol_vlan_enabled", bool(flags & 4)
    yield "switch_port_protocol_vlan_support", bool(flags & 2)
    yield "switch_port_protocol_vlan_ids", [frames.number(value, 1, 2)]


def _vlan_name(value: bytes) -> Read:
    number, length = frames.number(value, 0, 2), frames.number(value, 2, 1) if len(value) > 2 else 0
    yield "switch_port_vlans", [{"name": frames.text(value[3 : 3 + length]), "id": number}]
    frames.part(value, 2, 1 + length)


def _protocol(value: bytes) -> Read:
    yield "switch_protocol_identities", [frames.part(value, 1, frames.number(value, 0, 1)).hex()]


def _management_vlan(value: bytes) -> Read:
    yield "switch_port_management_vlan_id", frames.number(value, 0, 2)


def _aggregation(value: bytes) -> Read:
    status = frames.number(value, 0, 1)
    yield "switch_port_link_aggregation_enabled", bool(status & 2)
    yield "switch_port_link_aggregation_support", bool(status & 1)
    yield "switch_port_link_aggregation_id", frames.number(value, 1, 4)


def _phy(value: bytes) -> Read:
    status = frames.number(value, 0, 1)
    yield "switch_port_autonegotiation_enabled", bool(status & 2)
    yield "switch_port_autonegotiation_support", bool(status & 1)
    yield "switch_port_physical_capabilities", sorted(frames.names(frames.number(value, 1, 2), ethernet.ADVERTISED))
    yield "switch_port_mau_type", ethernet.kind(frames.number(value, 3, 2))


def _mtu(value: bytes) -> Read:
    yield "switch_port_mtu", frames.number(value, 0, 2)


_IEEE_802_1: Final[dict[int, Callable[[bytes], Read]]] = {
    1: _port_vlan,
    2: _protocol_vlan,
    3: _vlan_name,
    4: _protocol,
    6: _management_vlan,
    7: _aggregation,
}
# Link aggregation moved to 802.1; switches still send the old subtype.
_IEEE_802_3: Final[dict[int, Callable[[bytes], Read]]] = {1: _phy, 3: _aggregation, 4: _mtu}
_BY_OUI: Final = {bytes.fromhex("0080c2"): _IEEE_802_1, bytes.fromhex("00120f"): _IEEE_802_3}


def organizational(value: bytes) -> Read:
    """Yield the values of an organizational TLV (type 127); none for an unknown organization or subtype."""
    read = _BY_OUI.get(frames.part(value, 0, 3), {}).get(frames.number(value, 3, 1))
    if read is not None:
        yield from read(value[4:])


# The names are those of the Bare Metal service's ``parse-lldp``. Of a value that may occur once, the first counts;
# values that may occur several times are lists.


def _single(name: str, read: Callable[[bytes], Any]) -> Callable[[bytes], Read]:
    def once(value: bytes) -> Read:
        yield name, read(value)

    return once


def _management(value: bytes) -> Read:
    found = management_address(value)
    if found is not None:
        yield "switch_mgmt_addresses", [found]


_READ: Final[dict[int, Callable[[bytes], Read]]] = {
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
    """Return all values of the neighbour by name (``switch_...``), and messages about malformed TLVs."""
    found: Found = {}
    problems = []
    for kind, value in neighbour(tlvs):
        read = _READ.get(kind)
        if read is None:
            continue
        try:
            for name, item in read(value):
                if name in _REPEATED:
                    found.setdefault(name, []).extend(item)
                else:
                    found.setdefault(name, item)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
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
    """Return the other end, using the last value of each kind that is not empty, and messages about malformed TLVs."""
    found: dict[str, str] = {}
    problems = []
    for kind, value in neighbour(tlvs):
        if kind not in _READ_LINK:
            continue
        name, read = _READ_LINK[kind]
        try:
            item = read(value)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
            continue
        if item:
            found[name] = item
    return Link(**found), problems
