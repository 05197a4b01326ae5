"""``memory``: sets the node's property ``memory_mb`` from ``inventory.memory.physical_mb``."""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import part, shown

# One exbibyte. No machine has more, and schedulers could not store it.
_MAX_MB: Final = 1 << 40


class MemoryHook(InspectionHook):
    """Sets ``properties.memory_mb``, in MiB; rejects an inventory without the memory size."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        size = part(inventory, "memory").get("physical_mb")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MAX_MB:
            raise HookError(
                Reason.INVALID_INVENTORY,
                f"the inventory has no memory size (memory.physical_mb is {shown(size)})",
            )
        task.node.properties["memory_mb"] = size
