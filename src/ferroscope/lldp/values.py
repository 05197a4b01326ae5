"""What a switch says, under the names that the Bare Metal service's ``parse-lldp`` has for it.

A value that may come once is the first that came; values that may come several times are lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ferroscope.lldp import basic, fields
from ferroscope.lldp.fields import FieldError
from ferroscope.lldp.frame import Tlv
from ferroscope.lldp.organizational import organizational

Found = dict[str, Any]


def _single(name: str, read: Callable[[bytes], Any]) -> Callable[[bytes], Found]:
    return lambda value: {name: read(value)}


def _management(value: bytes) -> Found:
    found = basic.management_address(value)
    return {} if found is None else {"switch_mgmt_addresses": [found]}


_READ: Final[dict[int, Callable[[bytes], Found]]] = {
    basic.CHASSIS_ID: _single("switch_chassis_id", basic.chassis_id),
    basic.PORT_ID: _single("switch_port_id", basic.port_id),
    basic.PORT_DESCRIPTION: _single("switch_port_description", fields.text),
    basic.SYSTEM_NAME: _single("switch_system_name", fields.text),
    basic.SYSTEM_DESCRIPTION: _single("switch_system_description", fields.text),
    basic.CAPABILITIES: basic.capabilities,
    basic.MANAGEMENT_ADDRESS: _management,
    basic.ORGANIZATIONAL: organizational,
}


# Which values are one of several. Capabilities are lists too, but come once.
_REPEATED: Final = frozenset(
    {
        "switch_mgmt_addresses",
        "switch_port_protocol_vlan_ids",
        "switch_port_vlans",
        "switch_protocol_identities",
    }
)


def values(tlvs: Iterable[Tlv]) -> tuple[Found, list[str]]:
    """Return all that the TLVs say by name (``switch_...``), and in words which cannot be read."""
    found: Found = {}
    problems = []
    for kind, value in tlvs:
        read = _READ.get(kind)
        if read is None:
            continue
        try:
            told = read(value)
        except FieldError as exc:
            problems.append(f"the TLV of type {kind} {exc}")
            continue
        for name, item in told.items():
            if name in _REPEATED:
                found.setdefault(name, []).extend(item)
            else:
                found.setdefault(name, item)
    return found, problems
