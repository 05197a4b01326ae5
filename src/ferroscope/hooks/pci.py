"""Hooks that read the list of PCI devices.

``pci-devices`` sets capabilities that count certain devices, such as ``gpu_t4:2``. Several devices may share a name and
are then counted together. If none is left, the capability is removed, so that no work is scheduled for a card that was
removed. ``accelerators`` sets the property ``accelerators`` from a list of known devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookSetupError, HookTask, InspectionHook
from ferroscope.hooks.helpers import warn
from ferroscope_client.core import json_safety
from ferroscope_client.core.text_files import text_of


class _Alias(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    vendor_id: str
    product_id: str
    name: str


class PciDevicesHook(InspectionHook):
    """Sets a capability for each name in `pci_device_alias` to the number of these devices."""

    def __init__(self) -> None:
        self._names: Mapping[tuple[str, str], str] = {}

    def configure(self, settings: InspectorSettings) -> None:
        aliases = [_alias(text) for text in settings.pci_device_alias]
        self._names = {(alias.vendor_id.lower(), alias.product_id.lower()): alias.name for alias in aliases}

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        if not self._names:
            return
        devices = helpers.devices(inventory, plugin_data)
        if devices is None:
            warn(task, "pci-devices", "the ramdisk sent no PCI devices; enable its collector pci-devices")
            return
        counts: dict[str, int] = {}
        for device in devices:
            name = self._names.get((device.vendor, device.product))
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        helpers.update(task.node, counts, remove=set(self._names.values()) - set(counts))


def _alias(text: str) -> _Alias:
    try:
        alias = json_safety.decode_own(text, _Alias)
    except json_safety.JsonError as exc:
        raise HookSetupError(
            f"invalid [inspector] pci_device_alias = {text} ({exc}); expected"
            ' {"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}'
        ) from exc
    if not helpers.is_value(alias.name):
        raise HookSetupError(f"[inspector] pci_device_alias has the invalid capability name {alias.name!r}")
    return alias


class AcceleratorsHook(InspectionHook):
    """Sets `properties.accelerators`: each known device with its entry in the file and its PCI address."""

    def __init__(self) -> None:
        self._accelerators: Mapping[tuple[str, str], Document] = {}

    def configure(self, settings: InspectorSettings) -> None:
        self._accelerators = _known_accelerators(settings.known_accelerators)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        devices = helpers.devices(inventory, plugin_data)
        if not devices:
            warn(task, "accelerators", "the data has no PCI devices, so accelerators cannot be detected")
            return
        task.node.properties["accelerators"] = [
            {**accelerator, "pci_address": device.address}
            for device in devices
            if (accelerator := self._accelerators.get((device.vendor, device.product)))
            and isinstance(device.address, str)
        ]


def _known_accelerators(path: str) -> Mapping[tuple[str, str], Document]:
    """Return the known devices of the file by vendor and device."""
    where = f"[inspector] known_accelerators = {path}"
    try:
        source = Path(path) if path else files("ferroscope.hooks") / "known_accelerators.yaml"
        content = yaml.safe_load(text_of(source.read_bytes()))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise HookSetupError(f"cannot read {where}: {exc}") from exc
    members = content.get("pci_devices") if isinstance(content, dict) else None
    if not isinstance(members, list) or not members:
        raise HookSetupError(f"{where} has no list 'pci_devices'")
    accelerators: dict[tuple[str, str], Document] = {}
    for number, device in enumerate(members, 1):
        accelerators.setdefault(_key(device, f"{where}: device number {number}"), device)
    return accelerators


def _key(device: Any, where: str) -> tuple[str, str]:
    vendor, product = (device.get("vendor_id"), device.get("device_id")) if isinstance(device, dict) else (None, None)
    if not isinstance(vendor, str) or not isinstance(product, str) or not vendor or not product:
        raise HookSetupError(
            f'{where} requires vendor_id and device_id, in quotes: {{vendor_id: "10de", device_id: "1eb8"}}'
        )
    return vendor.lower(), product.lower()
