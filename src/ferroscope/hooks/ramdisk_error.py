"""``ramdisk-error``: ends the inspection if the ramdisk reports an error."""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import shown

_MAX_LENGTH: Final = 2000


class RamdiskErrorHook(InspectionHook):
    """Rejects data in which ``error`` is set."""

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        error = plugin_data.get("error")
        if error:
            message = shown(error, limit=_MAX_LENGTH, lines=True)
            raise HookError(Reason.RAMDISK_ERROR, f"Ramdisk reported error: {message}")
