"""The PCI devices of a machine, wherever they are told, and in the form in which they are looked up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ferroscope.core.model import Document


class PciDevice(NamedTuple):
    """One device: four hexadecimal digits each, lower case, and where it is plugged in (``0000:3b:00.0``)."""

    vendor: str
    product: str
    address: object


def devices(inventory: Document, plugin_data: Document) -> list[PciDevice] | None:
    """Return the devices, those that the ramdisk collected rather than those of the BMC; None: not told."""
    for source in (plugin_data, inventory):
        found = source.get("pci_devices")
        if isinstance(found, list) and (found or source is inventory):
            return list(_readable(found))
    return [] if isinstance(plugin_data.get("pci_devices"), list) else None


def _readable(records: list[object]) -> Iterator[PciDevice]:
    for record in records:
        if not isinstance(record, dict):
            continue
        vendor, product = record.get("vendor_id"), record.get("product_id")
        if isinstance(vendor, str) and isinstance(product, str):
            yield PciDevice(vendor.lower(), product.lower(), record.get("bus"))
