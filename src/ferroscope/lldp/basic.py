"""The basic TLVs of IEEE 802.1AB: who the switch is, which port it is, what it can do, where it is managed."""

from __future__ import annotations

from typing import Any, Final

from ferroscope.lldp import fields
from ferroscope.lldp.fields import FieldError

CHASSIS_ID, PORT_ID, PORT_DESCRIPTION, SYSTEM_NAME = 1, 2, 4, 5
SYSTEM_DESCRIPTION, CAPABILITIES, MANAGEMENT_ADDRESS, ORGANIZATIONAL = 6, 7, 8, 127

# Subtypes of the two identifiers whose value is no text.
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
    """Return the MAC by which the switch identifies itself; None where it does so by something else."""
    return fields.mac(value[1:]) if fields.number(value, 0, 1) == _CHASSIS_MAC else None


def port_id(value: bytes) -> str:
    """Return the identifier of the switch's port."""
    return _identifier(value, _PORT_MAC, _PORT_ADDRESS, _PORT_TEXTS)


def management_address(value: bytes) -> str | None:
    """Return the address by which the switch is managed; None where its kind is not known."""
    return fields.address(fields.number(value, 1, 1), value[2:])


def capabilities(value: bytes) -> dict[str, Any]:
    """Return what the switch can do and what of it is enabled."""
    fields.exactly(value, 4)
    return {
        "switch_capabilities_support": fields.names(fields.number(value, 0, 2), _CAPABILITIES),
        "switch_capabilities_enabled": fields.names(fields.number(value, 2, 2), _CAPABILITIES),
    }


def _identifier(value: bytes, mac: int, address: int, texts: frozenset[int]) -> str:
    subtype, rest = fields.number(value, 0, 1), value[1:]
    if subtype in texts:
        return fields.text(rest)
    if subtype == mac:
        return fields.mac(rest)
    found = fields.address(fields.number(rest, 0, 1), rest[1:]) if subtype == address else None
    if found is None:
        raise FieldError(f"has a subtype or an address of a kind that is not known ({subtype})")
    return found
