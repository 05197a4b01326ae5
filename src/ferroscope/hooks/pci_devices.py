"""``pci-devices``: sets capabilities that count certain PCI devices, such as ``gpu_t4:2``.

Several devices may share a name and are then counted together. If none is left, the capability is removed, so that no
work is scheduled for a card that was removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookSetupError, HookTask, InspectionHook
from ferroscope.hooks.helpers import warn


class _Alias(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    vendor_id: str
    product_id: str
    name: str


_decode_alias = msgspec.json.Decoder(_Alias).decode


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
        found = helpers.devices(inventory, plugin_data)
        if found is None:
            warn(task, "pci-devices", "the ramdisk sent no PCI devices; enable its collector pci-devices")
            return
        counts: dict[str, int] = {}
        for device in found:
            name = self._names.get((device.vendor, device.product))
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        helpers.update(task.node, counts, remove=set(self._names.values()) - set(counts))


def _alias(text: str) -> _Alias:
    try:
        alias = _decode_alias(text)
    except msgspec.DecodeError as exc:
        raise HookSetupError(
            f"invalid [inspector] pci_device_alias = {text} ({exc}); expected"
            ' {"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}'
        ) from exc
    if not helpers.is_value(alias.name):
        raise HookSetupError(f"[inspector] pci_device_alias has the invalid capability name {alias.name!r}")
    return alias
