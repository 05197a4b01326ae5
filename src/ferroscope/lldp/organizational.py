"""The organizational TLVs of IEEE 802.1 (VLANs) and IEEE 802.3 (the link): subtype -> values by their names.

A value in a list is one of several: such a TLV may come more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ferroscope.lldp import fields, mau

Found = dict[str, Any]


def _port_vlan(value: bytes) -> Found:
    return {"switch_port_untagged_vlan_id": fields.number(value, 0, 2)}


def _protocol_vlan(value: bytes) -> Found:
    flags = fields.number(fields.exactly(value, 3), 0, 1)
    return {
        "switch_port_protocol_vlan_enabled": bool(flags & 4),
        "switch_port_protocol_vlan_support": bool(flags & 2),
        "switch_port_protocol_vlan_ids": [fields.number(value, 1, 2)],
    }


def _vlan_name(value: bytes) -> Found:
    name = fields.part(value, 3, fields.number(value, 2, 1))
    vlan = {"name": fields.text(name.rstrip(b"\0")), "id": fields.number(value, 0, 2)}
    return {"switch_port_vlans": [vlan]}


def _protocol(value: bytes) -> Found:
    return {"switch_protocol_identities": [fields.part(value, 1, fields.number(value, 0, 1)).hex()]}


def _management_vlan(value: bytes) -> Found:
    return {"switch_port_management_vlan_id": fields.number(value, 0, 2)}


def _aggregation(value: bytes) -> Found:
    status = fields.number(fields.exactly(value, 5), 0, 1)
    return {
        "switch_port_link_aggregation_enabled": bool(status & 2),
        "switch_port_link_aggregation_support": bool(status & 1),
        "switch_port_link_aggregation_id": fields.number(value, 1, 4),
    }


def _phy(value: bytes) -> Found:
    status = fields.number(fields.exactly(value, 5), 0, 1)
    return {
        "switch_port_autonegotiation_enabled": bool(status & 2),
        "switch_port_autonegotiation_support": bool(status & 1),
        "switch_port_physical_capabilities": sorted(fields.names(fields.number(value, 1, 2), mau.ADVERTISED)),
        "switch_port_mau_type": mau.kind(fields.number(value, 3, 2)),
    }


def _mtu(value: bytes) -> Found:
    return {"switch_port_mtu": fields.number(value, 0, 2)}


_IEEE_802_1: Final[dict[int, Callable[[bytes], Found]]] = {
    1: _port_vlan,
    2: _protocol_vlan,
    3: _vlan_name,
    4: _protocol,
    6: _management_vlan,
    7: _aggregation,
}
# Link aggregation moved to 802.1; switches still send it under its old number.
_IEEE_802_3: Final[dict[int, Callable[[bytes], Found]]] = {1: _phy, 3: _aggregation, 4: _mtu}
_BY_OUI: Final = {bytes.fromhex("0080c2"): _IEEE_802_1, bytes.fromhex("00120f"): _IEEE_802_3}


def organizational(value: bytes) -> Found:
    """Return what an organizational TLV (type 127) says; nothing for an organization or subtype that is not known."""
    read = _BY_OUI.get(fields.part(value, 0, 3), {}).get(fields.number(value, 3, 1))
    return {} if read is None else read(value[4:])
