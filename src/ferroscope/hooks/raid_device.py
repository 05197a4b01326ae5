"""``raid-device``: which disk is the RAID volume that was made between two inspections.

Inspect, make the volume, inspect again: if exactly one disk is new, by its serial number, it becomes
the root device hint. A machine whose hint is known is left alone.
"""

from __future__ import annotations

from ferroscope.core.model import Document
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import listed, records, warn


class RaidDeviceHook(InspectionHook):
    """Sets `properties.root_device` to the serial number of the one disk that the previous inventory has not."""

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
            task.note("raid-device", f"the root device is the new disk with the serial number {listed(new)}")
        else:
            found = f"several are: {listed(new)}" if new else "none is"
            warn(
                task,
                "raid-device",
                f"the root device would be the one disk that is new since the inspection before; {found}",
            )


def _serials(inventory: Document) -> list[str]:
    """Return the serial numbers of all disks that have one, each once."""
    serials = [disk.get("serial") for disk in records(inventory, "disks")]
    return list(dict.fromkeys(serial for serial in serials if isinstance(serial, str) and serial))
