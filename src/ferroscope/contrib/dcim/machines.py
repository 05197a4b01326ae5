"""The data of a machine for a DCIM, from its node and its inventory. Pure.

Texts are cut to the lengths that Nautobot stores. A machine without a name, a vendor or a model is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ferroscope.hardware import parts
from ferroscope_client.core import mac_addresses, values
from ferroscope_client.hardware import names

_MAX_NAME_CHARACTERS: Final = 64
_MAX_ITEM_CHARACTERS: Final = 64
_MAX_SERIAL_CHARACTERS: Final = 50


class DcimInterface(msgspec.Struct, frozen=True):
    """``switch`` and ``port``: the other end as LLDP reports it."""

    name: str
    mac: str
    switch: str | None = None
    port: str | None = None


class InventoryItem(msgspec.Struct, frozen=True):
    """A disk or a DIMM; ``name`` is unique within the machine."""

    name: str
    part: str
    serial: str
    manufacturer: str | None = None


class DcimMachine(msgspec.Struct, frozen=True):
    """A machine as a device."""

    name: str
    manufacturer: str
    model: str
    serial: str
    interfaces: tuple[DcimInterface, ...] = ()
    items: tuple[InventoryItem, ...] = ()


def machine(node: Mapping[str, Any], inventory: Any, plugin_data: Any) -> DcimMachine | None:
    """Return the machine; None if too little is known about it."""
    machine_parts = parts.parts(inventory, plugin_data)
    own = machine_parts[0].fields
    vendor, product = _text(own.get("vendor"), 100), _text(own.get("product"), 100)
    if not node["name"] or not vendor or not product:
        return None
    interfaces, items = [], []
    for part in machine_parts:
        fields = part.fields
        if part.kind == "nic" and (mac := mac_addresses.normalized_mac(fields.get("mac"))) and fields.get("name"):
            switch, port = _text(fields.get("switch")), _text(fields.get("port"))
            interfaces.append(
                DcimInterface(_text(fields["name"], _MAX_NAME_CHARACTERS), mac, switch or None, port or None)
            )
        elif part.kind in ("disk", "dimm") and (name := fields.get("name") or fields.get("slot")):
            items.append(
                InventoryItem(
                    _text(name, _MAX_ITEM_CHARACTERS),
                    _text(fields.get("model"), _MAX_SERIAL_CHARACTERS),
                    _text(fields.get("serial"), _MAX_SERIAL_CHARACTERS),
                    _text(fields.get("vendor"), 100) or None,
                )
            )
    return DcimMachine(
        str(node["name"])[:_MAX_NAME_CHARACTERS],
        vendor,
        names.model(product)[:100],
        _text(own.get("serial"), _MAX_SERIAL_CHARACTERS),
        tuple({interface.name: interface for interface in interfaces}.values()),
        tuple({item.name: item for item in items}.values()),
    )


def _text(value: Any, limit: int = 255) -> str:
    return values.one_line(value, 10_000)[:limit].strip() if isinstance(value, str) else ""
