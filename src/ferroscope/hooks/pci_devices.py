"""``pci-devices``: capabilities that count devices of interest, such as ``gpu_t4:2``.

Several kinds of devices may share a name; they are counted together. A count that is nil now is
taken away: a card that was pulled is no reason to place work on a machine.
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
    """Sets a capability for each name in `pci_device_alias` to the number of such devices."""

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
            warn(task, "pci-devices", "the ramdisk told of no PCI devices: it needs the collector pci-devices")
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
            f"[inspector] pci_device_alias = {text} cannot be used ({exc}); write it as"
            ' {"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}'
        ) from exc
    if not helpers.is_value(alias.name):
        raise HookSetupError(
            f"[inspector] pci_device_alias has the name {alias.name!r}, which cannot be a capability's name"
        )
    return alias
