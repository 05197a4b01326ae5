"""``cpus``: sets the node's property ``cpus`` from ``inventory.cpu.count``."""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Document
from ferroscope.hooks.base import HookTask, InspectionHook
from ferroscope.hooks.helpers import part, shown, warn

_MAX: Final = 1 << 20


class CpusHook(InspectionHook):
    """Sets `properties.cpus`, the number of logical CPUs."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        reported = part(inventory, "cpu").get("count")
        count = _count(reported)
        if count is not None:
            task.node.properties["cpus"] = count
            return
        warn(task, "cpus", f"the inventory has no number of CPUs (cpu.count is {shown(reported)})")


def _count(value: object) -> int | None:
    if isinstance(value, str) and len(value) < 10 and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, float) and 0 < value <= _MAX:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX:
        return value
    return None
