"""The inventory's interfaces that ``validate-interfaces`` found good, for hooks that complete ports.

Hooks may be configured before that one has run in vain, or plugin data may have been replaced by
another hook: whatever is not as expected is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ferroscope.core import values
from ferroscope.core.model import Document
from ferroscope.hooks.reading import part, records


class Nic(NamedTuple):
    """One interface: its name, its MAC in the stored form, and the inventory's record."""

    name: str
    mac: str
    record: Document


def of(inventory: Document, plugin_data: Document) -> Iterator[Nic]:
    """Return the interfaces that are in ``plugin_data.all_interfaces``, in the inventory's order."""
    known = plugin_data.get("all_interfaces")
    if not isinstance(known, dict):
        return
    for name, record in named(inventory):
        mac = values.normalize(record.get("mac_address"))
        if name in known and mac is not None:
            yield Nic(name, mac, record)


def named(inventory: Document) -> Iterator[tuple[str, Document]]:
    """Return the interface records that have a name, in the inventory's order."""
    for record in records(inventory, "interfaces"):
        name = record.get("name")
        if isinstance(name, str) and name:
            yield name, record


def lldp(name: str, record: Document, plugin_data: Document) -> Any:
    """Return what was recorded of LLDP on this interface: the collector's record, else the inventory's."""
    return part(plugin_data, "lldp_raw").get(name) or record.get("lldp")
