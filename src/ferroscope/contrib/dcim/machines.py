"""What a DCIM should have of a machine, from its node and its inventory. Pure.

Texts are cut to the lengths that Nautobot stores. A machine without a name, a vendor or a model is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ferroscope.core import mac_addresses, values
from ferroscope.hardware import names, parts

_NAME: Final = 64
_ITEM: Final = 64
_SERIAL: Final = 50


class Interface(msgspec.Struct, frozen=True):
    """``switch`` and ``port``: what LLDP says is at the other end."""

    name: str
    mac: str
    switch: str | None = None
    port: str | None = None


class Item(msgspec.Struct, frozen=True):
    """A disk or a DIMM; ``name`` is unique within the machine."""

    name: str
    part: str
    serial: str
    manufacturer: str | None = None


class Machine(msgspec.Struct, frozen=True):
    """A machine as a device."""

    name: str
    manufacturer: str
    model: str
    serial: str
    interfaces: tuple[Interface, ...] = ()
    items: tuple[Item, ...] = ()


def machine(node: Mapping[str, Any], inventory: Any, plugin_data: Any) -> Machine | None:
    """Return the machine; None if too little is known of it."""
    found = parts.parts(inventory, plugin_data)
    own = found[0].fields
    vendor, product = _text(own.get("vendor"), 100), _text(own.get("product"), 100)
    if not node["name"] or not vendor or not product:
        return None
    interfaces, items = [], []
    for part in found:
        known = part.fields
        if part.kind == "nic" and (mac := mac_addresses.normalized_mac(known.get("mac"))) and known.get("name"):
            switch, port = _text(known.get("switch")), _text(known.get("port"))
            interfaces.append(Interface(_text(known["name"], _NAME), mac, switch or None, port or None))
        elif part.kind in ("disk", "dimm") and (name := known.get("name") or known.get("slot")):
            items.append(
                Item(_text(name, _ITEM), _text(known.get("model"), _SERIAL), _text(known.get("serial"), _SERIAL),
                     _text(known.get("vendor"), 100) or None)
            )  # fmt: skip
    return Machine(
        str(node["name"])[:_NAME],
        vendor,
        names.model(product)[:100],
        _text(own.get("serial"), _SERIAL),
        tuple({one.name: one for one in interfaces}.values()),
        tuple({one.name: one for one in items}.values()),
    )


def _text(value: Any, most: int = 255) -> str:
    return values.one_line(value, 10_000)[:most].strip() if isinstance(value, str) else ""
