"""Helpers for hooks: messages, capabilities, PCI devices, ports, and access to untrusted data.

The interfaces are those that ``validate-interfaces`` accepted. Hooks may run before it, and other hooks may have
replaced plugin data, so data of an unexpected type is treated as missing.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope.hooks.base import HookContext, HookError, HookTask
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.reasons import Reason
from ferroscope_client.hardware.readings import named_interfaces

# Untrusted values in messages: short, printable, of any type.
#
# Messages reach the journal, ``last_error`` and terminals, so they must not contain megabytes or control characters
# from a ramdisk.

# reprlib reads only the first few items, so a huge value costs nothing.
_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def printable(value: object, *, limit: int = 80, lines: bool = False) -> str:
    """Return ``value`` for a message: at most ``limit`` characters, with line breaks only if ``lines``."""
    text = value if isinstance(value, str) else "missing" if value is None else _REPR.repr(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(char if char.isprintable() or char in kept else _REPLACEMENT for char in text)


def listing(values: Iterable[object], *, limit: int = 10) -> str:
    """Return the values for a message, separated by commas: the first ``limit``, and the number of further ones."""
    texts = [printable(value) for value in values]
    more = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {more} more" if more > 0 else "")


def set_number(task: HookTask, name: str, value: int) -> None:
    """Set a property of the node; as text with ``properties_as_text``, as ironic-inspector did."""
    task.node.properties[name] = str(value) if task.settings.properties_as_text else value


# The property ``capabilities``: ``"boot_mode:uefi,cpu_vt:true"``, names and values in one string.
#
# Source: the Bare Metal service. Existing entries keep their order.

_MAX_VALUE_CHARACTERS: Final = 255


def update(node: Node, new: Mapping[str, Any], remove: Iterable[str] = ()) -> None:
    """Set these capabilities of the node and remove others; ``HookError`` if the existing ones are malformed."""
    capabilities = _parse_capabilities(node.properties)
    for name in remove:
        capabilities.pop(name, None)
    capabilities.update({name: str(value) for name, value in new.items()})
    text = ",".join(f"{name}:{value}" for name, value in capabilities.items())
    if text or "capabilities" in node.properties:
        node.properties["capabilities"] = text


def is_value(value: object) -> bool:
    """Whether this is a valid value of a capability: a machine must not inject other capabilities."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _MAX_VALUE_CHARACTERS
        and value.isprintable()
        and not set(value) & set(",:")
    )


def _parse_capabilities(properties: Document) -> dict[str, str]:
    text = properties.get("capabilities")
    if not text:
        return {}
    pairs = [item.partition(":") for item in text.split(",")] if isinstance(text, str) else []
    if not pairs or not all(colon for _name, colon, _value in pairs):
        raise HookError(
            Reason.HOOK_FAILED,
            f"the node's property capabilities is not 'name:value,...' but {printable(text)}; correct it, then reapply",
        )
    return {name: value for name, _colon, value in pairs}


# The PCI devices of a machine, from any source, normalized.


class PciDevice(NamedTuple):
    """One device: four lower-case hexadecimal digits each, and its address (``0000:3b:00.0``)."""

    vendor: str
    product: str
    address: object


def devices(inventory: Document, plugin_data: Document) -> list[PciDevice] | None:
    """Return the devices, preferably those that the ramdisk collected rather than the BMC's; None if there are none."""
    for source in (plugin_data, inventory):
        pci_devices = source.get("pci_devices")
        if isinstance(pci_devices, list) and (pci_devices or source is inventory):
            return list(_readable(pci_devices))
    return [] if isinstance(plugin_data.get("pci_devices"), list) else None


def _readable(records: list[object]) -> Iterator[PciDevice]:
    for record in records:
        if not isinstance(record, dict):
            continue
        vendor, product = record.get("vendor_id"), record.get("product_id")
        if isinstance(vendor, str) and isinstance(product, str):
            yield PciDevice(vendor.lower(), product.lower(), record.get("bus"))


# The node's ports as changed by the hooks so far: each hook sees the changes of those before it.


def current(task: HookContext) -> dict[str, Port]:
    """Return the ports by MAC, with all changes so far."""
    changes = task.port_changes
    kept = [changes.updated.get(port.uuid, port) for port in task.ports if port.uuid not in changes.removed]
    return {port.address: port for port in (*kept, *changes.added)}


def save(task: HookContext, port: Port) -> None:
    """Add a new port, or save a changed copy of one from ``current``."""
    changes = task.port_changes
    for index, added in enumerate(changes.added):
        if added.uuid == port.uuid:
            changes.added[index] = port
            return
    if any(stored.uuid == port.uuid for stored in task.ports):
        changes.updated[port.uuid] = port
    else:
        changes.added.append(port)


def remove(task: HookContext, port: Port) -> None:
    """Delete ``port``."""
    changes = task.port_changes
    changes.updated.pop(port.uuid, None)
    before = len(changes.added)
    changes.added[:] = [added for added in changes.added if added.uuid != port.uuid]
    if len(changes.added) == before:
        changes.removed.add(port.uuid)


# Access to the ramdisk's data, which may have any type anywhere: data of an unexpected type is treated as missing.
#
# A hook that lacks optional data calls ``warn`` and continues.


def part(document: Document, name: str) -> Document:
    """Return the object with this name in ``document``, an empty one if there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def records(document: Document, name: str) -> list[Document]:
    """Return the objects in the list with this name in ``document``, none if there is no list."""
    members = document.get(name)
    return [record for record in members if isinstance(record, dict)] if isinstance(members, list) else []


def warn(task: HookTask, hook: str, message: str) -> None:
    """Record on the timeline, under the hook's name, which data cannot be used."""
    task.note(hook, message, severity=Severity.WARNING, reason=Reason.INVALID_INVENTORY)


class Nic(NamedTuple):
    """One interface: its name, its normalized MAC, and the inventory's record."""

    name: str
    mac: str
    record: Document


def valid_nics(inventory: Document, plugin_data: Document) -> Iterator[Nic]:
    """Return the interfaces in ``plugin_data.all_interfaces``, in the inventory's order."""
    interfaces = plugin_data.get("all_interfaces")
    if not isinstance(interfaces, dict):
        return
    for name, record in named_interfaces(inventory):
        mac = mac_addresses.written_mac(record.get("mac_address"))
        if name in interfaces and mac is not None:
            yield Nic(name, mac, record)
