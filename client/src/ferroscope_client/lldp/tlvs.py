"""TLVs as the ramdisk records them, as named values, and the switch and port at the other end.

The TLVs are those of IEEE 802.1AB, 802.1 and 802.3. Surplus data of a switch is ignored. If a TLV is cut off, the
values before the cut count.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from socket import AF_INET6, inet_ntop
from typing import Any, Final, NamedTuple

import msgspec

from ferroscope_client.core.json_safety import clean_text
from ferroscope_client.core.mac_addresses import normalized_mac, written_mac
from ferroscope_client.core.values import many, normalized_ip

CHASSIS_ID, PORT_ID, PORT_DESCRIPTION, SYSTEM_NAME = 1, 2, 4, 5
SYSTEM_DESCRIPTION, CAPABILITIES, MANAGEMENT_ADDRESS, ORGANIZATIONAL = 6, 7, 8, 127

# The record of the ramdisk: ``[[1, "04aabbccddeeff"], ...]``, types, and values in hexadecimal.
#
# Limits: a value has at most 511 bytes (its length field has 9 bits), and at most ``MAX_TLVS`` of a frame are read.

MAX_VALUE_BYTES: Final = 511
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
        tlv = _tlv(item)
        if type(tlv) is Tlv:
            tlvs.append(tlv)
        else:
            problems.append(f"TLV number {number} {tlv}")
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
    if len(text) > 2 * MAX_VALUE_BYTES:
        return f"(type {kind}) has more than {MAX_VALUE_BYTES} bytes"
    try:
        return Tlv(kind, binascii.unhexlify(text))
    except ValueError:
        return f"(type {kind}) has no hexadecimal value"


# The neighbors of one NIC: the ramdisk records the frames of all of them in sequence. A switch without LLDP forwards
# the frames of others, and the firmware of some NICs sends its own.

_END_TYPE: Final = 0
_BRIDGE_OR_ROUTER_BITS: Final = 0b10100


def neighbours(tlvs: Iterable[Tlv]) -> list[list[Tlv]]:
    """Return the TLVs of each neighbor. Data after the end of a frame that does not begin another frame is padding."""
    frames: list[list[Tlv]] = [[]]
    kinds: set[int] = set()
    ended = False
    for tlv in tlvs:
        if tlv.kind == _END_TYPE:
            ended = bool(frames[-1])
        elif tlv.kind == CHASSIS_ID and (ended or kinds >= {CHASSIS_ID, PORT_ID}):
            frames.append([tlv])
            kinds = {tlv.kind}
            ended = False
        elif not ended:
            frames[-1].append(tlv)
            kinds.add(tlv.kind)
    return frames


def neighbour(tlvs: Iterable[Tlv]) -> list[Tlv]:
    """Return the TLVs of the relevant neighbor: the first switch, or else the first neighbor."""
    return max(neighbours(tlvs), key=_importance)  # the first of equal ones


def _importance(tlvs: list[Tlv]) -> int:
    enabled = (int.from_bytes(tlv.value[2:4], "big") for tlv in tlvs if tlv.kind == CAPABILITIES)
    if any(bits & _BRIDGE_OR_ROUTER_BITS for bits in enabled):
        return 2
    return int(any(tlv.kind == CHASSIS_ID for tlv in tlvs))


# The fields in a value. These functions raise ``FieldError`` if it is too short or invalid.

_IPV4, _IPV6, _MAC = 1, 2, 6  # IANA's address family numbers
_SIZES: Final = {_IPV4: 4, _IPV6: 16, _MAC: 6}


class FieldError(ValueError):
    """A malformed TLV; the message begins with a verb."""


def _number(value: bytes, start: int, size: int) -> int:
    """Return the big-endian unsigned number of ``size`` bytes at ``start``."""
    return int.from_bytes(_part(value, start, size), "big")


def _part(value: bytes, start: int, size: int) -> bytes:
    """Return ``size`` bytes at ``start``."""
    part = value[start : start + size]
    if len(part) < size:
        raise FieldError(f"is too short: {len(value)} bytes")
    return part


# Characters that switches add to a text: padding of fields, and the line breaks of configurations and banners.
_BLANK_BYTES: Final = b" \t\r\n\v\f"


def _text(value: bytes) -> str:
    """Return the value as text, without padding; bytes that are not UTF-8 are replaced."""
    text = clean_text(value.decode(errors="replace")).strip()
    if not text and value.strip(b"\0" + _BLANK_BYTES):
        raise FieldError("is not valid UTF-8")
    return text


def _text_or_hex(value: bytes) -> str:
    """Return an identifier that should be a text, in hexadecimal if it is not."""
    try:
        # A leading NUL belongs to a number, whose last byte may look like a blank.
        text = (value.rstrip(b"\0") if value.startswith(b"\0") else value.strip(b"\0" + _BLANK_BYTES)).decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()


def _mac(value: bytes) -> str:
    """Return the MAC address at the beginning."""
    return _part(value, 0, 6).hex(":")


def _address(family: int, value: bytes) -> str | None:
    """Return the network address at the beginning of ``value``; None for an unknown family."""
    size = _SIZES.get(family)
    if size is None:
        return None
    address = _part(value, 0, size)
    if family == _IPV4:
        return ".".join(str(byte) for byte in address)
    return inet_ntop(AF_INET6, address) if family == _IPV6 else address.hex(":")


def _names(bits: int, meanings: dict[int, str]) -> list[str]:
    """Return the names of the set bits, in the order of ``meanings`` (bit number -> name)."""
    return [meaning for bit, meaning in meanings.items() if bits >> bit & 1]


# Subtypes of the identifiers whose value is not text.
_CHASSIS_MAC, _CHASSIS_ADDRESS, _CHASSIS_TEXTS = 4, 5, frozenset({1, 2, 3, 6, 7})
_PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS = 3, 4, frozenset({1, 2, 5, 7})
_WRITTEN_MAC_CHARACTERS: Final = 17

_CAPABILITIES: Final = dict(enumerate((
    "Repeater", "Bridge", "WLAN", "Router", "Telephone", "DOCSIS cable device", "Station only", "C-Vlan", "S-Vlan",
    "TPMR",
), start=1))  # fmt: skip


ValuesByName = dict[str, Any]
NamedValues = Iterator[tuple[str, Any]]


def chassis_id(value: bytes) -> str:
    """Return the identifier of the switch: a MAC, a network address or a text."""
    return _identifier(value, _CHASSIS_MAC, _CHASSIS_ADDRESS, _CHASSIS_TEXTS)


def chassis_mac(value: bytes) -> str | None:
    """Return the MAC that identifies the switch, also in text form; None for other identifiers."""
    if _number(value, 0, 1) not in {_CHASSIS_MAC, *_CHASSIS_TEXTS}:
        return None
    return normalized_mac(chassis_id(value))


def port_id(value: bytes) -> str:
    """Return the identifier of the switch's port."""
    return _identifier(value, _PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS)


def capabilities(value: bytes) -> NamedValues:
    """Yield the supported and the enabled capabilities of the switch."""
    yield "switch_capabilities_support", _names(_number(value, 0, 2), _CAPABILITIES)
    yield "switch_capabilities_enabled", _names(_number(value, 2, 2), _CAPABILITIES)


def _identifier(value: bytes, mac: int, address: int, texts: frozenset[int]) -> str:
    subtype, rest = _number(value, 0, 1), value[1:]
    if subtype in texts:
        return _text_or_hex(rest)
    if subtype == mac:  # some switches write it out
        return written_mac(rest[:_WRITTEN_MAC_CHARACTERS].rstrip(b"\0").decode("latin-1")) or _mac(rest)
    text = _address(_number(rest, 0, 1), rest[1:]) if subtype == address else None
    if text is None:
        raise FieldError(f"has an unknown subtype or address family ({subtype})")
    return text


# What auto-negotiation advertises, and the operational MAU types, in the Bare Metal service's spelling.
# Source: RFC 4836, and IANA-MAU-MIB, which continues it (IANAifMauAutoNegCapBits and IANAifMauTypeListBits).
#
# Bit -> advertised capability; the first bit on the wire is number 15 and means "other".
_ADVERTISED: Final = dict(enumerate((
    "1000BASE-T fdx", "1000BASE-T hdx", "1000BASE-X fdx", "1000BASE-X hdx", "Asym and Sym PAUSE fdx",
    "Sym PAUSE fdx", "Asym PAUSE fdx", "PAUSE fdx", "100BASE-T2 fdx", "100BASE-T2 hdx",
    "100BASE-TX fdx", "100BASE-TX hdx", "10BASE-T4", "10BASE-T fdx", "10BASE-T hdx",
)))  # fmt: skip

_HALF_AND_FULL: Final = ("100BASE-TX", "100BASE-FX", "100BASE-T2", *(f"1000BASE-{end}" for end in ("X", "LX", "SX")))
_10_GIGABIT: Final = ("X", "LX4", "R", "ER", "LR", "SR", "W", "EW", "LW", "SW", "CX4")

# Operational MAU types, by number from 0.
_MAU_TYPES: Final = (
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


# The organizational TLVs of IEEE 802.1 (VLANs) and IEEE 802.3 (the link): subtype -> named values.
#
# A list in a value means that such a TLV may occur several times.


def _protocol_vlan(value: bytes) -> NamedValues:
    flags = _number(value, 0, 1)
    yield "switch_port_protocol_vlan_enabled", bool(flags & 4)
    yield "switch_port_protocol_vlan_support", bool(flags & 2)
    yield "switch_port_protocol_vlan_ids", [_number(value, 1, 2)]


def _vlan_name(value: bytes) -> NamedValues:
    number, length = _number(value, 0, 2), _number(value, 2, 1) if len(value) > 2 else 0
    yield "switch_port_vlans", [{"name": _text(value[3 : 3 + length]), "id": number}]
    _part(value, 2, 1 + length)


def _protocol(value: bytes) -> NamedValues:
    yield "switch_protocol_identities", [_part(value, 1, _number(value, 0, 1)).hex()]


def _aggregation(value: bytes) -> NamedValues:
    status = _number(value, 0, 1)
    yield "switch_port_link_aggregation_enabled", bool(status & 2)
    yield "switch_port_link_aggregation_support", bool(status & 1)
    yield "switch_port_link_aggregation_id", _number(value, 1, 4)


def _phy(value: bytes) -> NamedValues:
    status = _number(value, 0, 1)
    yield "switch_port_autonegotiation_enabled", bool(status & 2)
    yield "switch_port_autonegotiation_support", bool(status & 1)
    yield "switch_port_physical_capabilities", sorted(_names(_number(value, 1, 2), _ADVERTISED))
    mau_type = _number(value, 3, 2)
    is_known = mau_type < len(_MAU_TYPES)  # it may be newer than the list
    yield "switch_port_mau_type", _MAU_TYPES[mau_type] if is_known else f"MAU type {mau_type}"


def _single(name: str, read: Callable[[bytes], Any]) -> Callable[[bytes], NamedValues]:
    def once(value: bytes) -> NamedValues:
        yield name, read(value)

    return once


def _short(value: bytes) -> int:
    return _number(value, 0, 2)


_IEEE_802_1: Final[dict[int, Callable[[bytes], NamedValues]]] = {
    1: _single("switch_port_untagged_vlan_id", _short),
    2: _protocol_vlan,
    3: _vlan_name,
    4: _protocol,
    6: _single("switch_port_management_vlan_id", _short),
    7: _aggregation,
}
# Link aggregation moved to 802.1; switches still send the old subtype.
_IEEE_802_3: Final[dict[int, Callable[[bytes], NamedValues]]] = {
    1: _phy, 3: _aggregation, 4: _single("switch_port_mtu", _short),
}  # fmt: skip
_BY_OUI: Final = {bytes.fromhex("0080c2"): _IEEE_802_1, bytes.fromhex("00120f"): _IEEE_802_3}


def organizational(value: bytes) -> NamedValues:
    """Yield the values of an organizational TLV (type 127); none for an unknown organization or subtype."""
    read = _BY_OUI.get(_part(value, 0, 3), {}).get(_number(value, 3, 1))
    if read is not None:
        yield from read(value[4:])


# The names are those of the Bare Metal service's ``parse-lldp``. Of a value that may occur once, the first counts;
# values that may occur several times are lists.


def _management(value: bytes) -> NamedValues:
    address = _address(_number(value, 1, 1), value[2:])
    if address is not None:
        yield "switch_mgmt_addresses", [address]


_READ: Final[dict[int, Callable[[bytes], NamedValues]]] = {
    CHASSIS_ID: _single("switch_chassis_id", chassis_id),
    PORT_ID: _single("switch_port_id", port_id),
    PORT_DESCRIPTION: _single("switch_port_description", _text),
    SYSTEM_NAME: _single("switch_system_name", _text),
    SYSTEM_DESCRIPTION: _single("switch_system_description", _text),
    CAPABILITIES: capabilities,
    MANAGEMENT_ADDRESS: _management,
    ORGANIZATIONAL: organizational,
}


# Values that may occur several times. Capabilities are lists too, but occur once.
_REPEATED: Final = frozenset({
    "switch_mgmt_addresses", "switch_port_protocol_vlan_ids", "switch_port_vlans", "switch_protocol_identities",
})  # fmt: skip


def values(tlvs: Iterable[Tlv]) -> tuple[ValuesByName, list[str]]:
    """Return all values of the neighbour by name (``switch_...``), and messages about malformed TLVs."""
    by_name: ValuesByName = {}
    problems = []
    for kind, value in neighbour(tlvs):
        read = _READ.get(kind)
        if read is None:
            continue
        try:
            for name, item in read(value):
                if name in _REPEATED:
                    by_name.setdefault(name, []).extend(item)
                else:
                    by_name.setdefault(name, item)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
    return by_name, problems


class SwitchLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """The other end of a cable: the switch's MAC, its port, its name; None if unknown."""

    switch_id: str | None = None
    port_id: str | None = None
    switch_info: str | None = None


_READ_LINK: Final[dict[int, tuple[str, Callable[[bytes], str | None]]]] = {
    # Users of ``switch_id`` accept only a MAC.
    CHASSIS_ID: ("switch_id", chassis_mac),
    PORT_ID: ("port_id", port_id),
    SYSTEM_NAME: ("switch_info", _text),
}


def link(tlvs: Iterable[Tlv]) -> tuple[SwitchLink, list[str]]:
    """Return the other end, using the last value of each kind that is not empty, and messages about malformed TLVs."""
    fields: dict[str, str] = {}
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
            fields[name] = item
    return SwitchLink(**fields), problems


# The name of the port at the other end of a cable. Most switches send it as the identifier. Juniper and ArubaOS send an
# SNMP index instead, and Brocade, Avaya and SONiC may send a MAC address. Their name of the port is in the description,
# but that is often a person's note about the cable: it counts only if it reads as a name and the identifier does not.
# Sources: netbox-community/netbox#11196 and #5818, dainok/netdoc#116, Uninett/nav#840, sonic-net/SONiC#116.

# An index, or bytes in hexadecimal.
_NO_NAME: Final = re.compile(r"[0-9]+|[0-9a-f]{8,}")
# ge-0/0/11.0, 10GigabitEthernet1/3/5, 1/E8, GigabitEthernet 0/48; and numbers after one of the usual words.
_PORT_NAME: Final = re.compile(
    r"(?:[0-9]*[a-z][a-z-]*[ :]?)?[0-9]+(?:/[a-z]?[0-9]+)+(?:[.:][0-9]+)*"
    r"|(?:port|eth|ethernet|ethernet interface|interface|swp|[tfgx]e|gi|lan)[ :-]?\(?[0-9]+\)?(?:[.:][0-9]+)*",
    re.IGNORECASE,
)
_MAX_DESCRIPTION_CHARACTERS: Final = 64


def port_name(named_values: Mapping[str, Any]) -> str | None:
    """Return the name of the switch's port; its MAC address or index if it sends no name."""
    ident, description = (_plain_text(named_values.get(f"switch_port_{end}")) for end in ("id", "description"))
    if ident and not (_NO_NAME.fullmatch(ident) or normalized_mac(ident) or normalized_ip(ident)):
        return ident
    is_name = len(description) <= _MAX_DESCRIPTION_CHARACTERS and _PORT_NAME.fullmatch(description)
    return (description if is_name else "") or ident or description or None


def _plain_text(value: object) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""
