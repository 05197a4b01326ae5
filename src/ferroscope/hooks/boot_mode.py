"""``boot-mode``: the capability ``boot_mode`` from ``inventory.boot.current_boot_mode``."""

from __future__ import annotations

from ferroscope.domain.model import Document, Severity
from ferroscope.domain.reasons import Reason
from ferroscope.hooks import capabilities
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.text import shown


class BootModeHook(InspectionHook):
    """Sets the capability `boot_mode`, `bios` or `uefi`, to the mode in which the ramdisk booted."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        boot = inventory.get("boot")
        mode = boot.get("current_boot_mode") if isinstance(boot, dict) else None
        if capabilities.is_value(mode):
            capabilities.update(task.node, {"boot_mode": mode})
            return
        task.note(
            "boot-mode",
            f"the inventory does not tell the boot mode (boot.current_boot_mode is {shown(mode)})",
            severity=Severity.WARNING,
            reason=Reason.INVALID_INVENTORY,
        )
