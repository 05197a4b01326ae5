"""``raid-device``: finds the RAID volume that was created between two inspections.

Inspect, create the volume, inspect again: if exactly one disk is new, by its serial number, it becomes the root device
hint. Nodes that have a hint are left alone.
"""

from __future__ import annotations

from ferroscope.core.model import Document
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import listing, records, warn
from ferroscope_client.hardware.readings import text


class RaidDeviceHook(InspectionHook):
    """Sets `properties.root_device` to the serial number of the only disk that is not in the previous inventory."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        if "root_device" in task.node.properties:
            return
        present = _serials(inventory)
        if not present:
            warn(task, "raid-device", "the inventory has no disk with a serial number")
            return
        previous = task.previous_inventory()
        if previous is None:
            return
        before = set(_serials(previous))
        new = [serial for serial in present if serial not in before]
        if len(new) == 1:
            task.node.properties["root_device"] = {"serial": new[0]}
            task.note("raid-device", f"the root device is the new disk with the serial number {listing(new)}")
        else:
            problem = f"several disks are new: {listing(new)}" if new else "no disk is new"
            warn(
                task,
                "raid-device",
                f"cannot determine the root device: expected one new disk since the last inspection, but {problem}",
            )


def _serials(inventory: Document) -> list[str]:
    """Return the serial numbers of all disks, each once."""
    serials = [text(disk.get("serial")) for disk in records(inventory, "disks")]
    return list(dict.fromkeys(filter(None, serials)))
