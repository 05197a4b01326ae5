"""``accelerators``: sets the node's property ``accelerators`` from its PCI devices and a list of known devices."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookSetupError, HookTask, InspectionHook
from ferroscope.hooks.helpers import warn


class AcceleratorsHook(InspectionHook):
    """Sets `properties.accelerators`: each known device with its entry in the file and its PCI address."""

    def __init__(self) -> None:
        self._known: Mapping[tuple[str, str], Document] = {}

    def configure(self, settings: InspectorSettings) -> None:
        self._known = _load(settings.known_accelerators)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        found = helpers.devices(inventory, plugin_data)
        if not found:
            warn(task, "accelerators", "the data has no PCI devices, so accelerators cannot be detected")
            return
        task.node.properties["accelerators"] = [
            {**known, "pci_address": device.address}
            for device in found
            if (known := self._known.get((device.vendor, device.product))) and isinstance(device.address, str)
        ]


def _load(path: str) -> Mapping[tuple[str, str], Document]:
    """Return the known devices of the file by vendor and device."""
    where = f"[inspector] known_accelerators = {path}"
    try:
        source = Path(path) if path else files("ferroscope.hooks") / "known_accelerators.yaml"
        content = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise HookSetupError(f"cannot read {where}: {exc}") from exc
    listed = content.get("pci_devices") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise HookSetupError(f"{where} has no list 'pci_devices'")
    known: dict[tuple[str, str], Document] = {}
    for number, device in enumerate(listed, 1):
        known.setdefault(_key(device, f"{where}: device number {number}"), device)
    return known


def _key(device: Any, where: str) -> tuple[str, str]:
    vendor, product = (device.get("vendor_id"), device.get("device_id")) if isinstance(device, dict) else (None, None)
    if not isinstance(vendor, str) or not isinstance(product, str) or not vendor or not product:
        raise HookSetupError(
            f'{where} requires vendor_id and device_id, in quotes: {{vendor_id: "10de", device_id: "1eb8"}}'
        )
    return vendor.lower(), product.lower()
