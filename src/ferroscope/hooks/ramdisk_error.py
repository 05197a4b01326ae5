"""``ramdisk-error``: ends the inspection if the ramdisk reports an error."""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import listing, part, printable

_MAX_LENGTH: Final = 2000


class RamdiskErrorHook(InspectionHook):
    """Rejects data in which `error` is set; notes at which NICs the firmware kept LLDP from the ramdisk."""

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        error = plugin_data.get("error")
        if error:
            message = printable(error, limit=_MAX_LENGTH, lines=True)
            raise HookError(Reason.RAMDISK_ERROR, f"Ramdisk reported error: {message}")

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        kept = [f"{printable(nic)} ({printable(why)})" for nic, why in part(plugin_data, "lldp_kept").items()]
        if kept:
            message = f"no LLDP from {listing(kept, limit=5)}: the firmware of the NIC keeps it"
            task.note("ramdisk-error", message)
