"""``boot-mode``: sets the capability ``boot_mode`` from ``inventory.boot.current_boot_mode``."""

from __future__ import annotations

from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import part, shown, warn


class BootModeHook(InspectionHook):
    """Sets the capability `boot_mode`, `bios` or `uefi`, to the boot mode of the ramdisk."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        mode = part(inventory, "boot").get("current_boot_mode")
        if helpers.is_value(mode):
            helpers.update(task.node, {"boot_mode": mode})
            return
        warn(task, "boot-mode", f"the inventory has no boot mode (boot.current_boot_mode is {shown(mode)})")
