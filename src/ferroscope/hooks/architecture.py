"""``architecture``: sets the node's property ``cpu_arch`` from ``inventory.cpu.architecture``."""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import part, shown

_MAX_LENGTH: Final = 64


class ArchitectureHook(InspectionHook):
    """Sets ``properties.cpu_arch``; rejects an inventory without an architecture."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        architecture = part(inventory, "cpu").get("architecture")
        if not _is_name(architecture):
            raise HookError(
                Reason.INVALID_INVENTORY,
                f"the inventory has no CPU architecture (cpu.architecture is {shown(architecture)})",
            )
        task.node.properties["cpu_arch"] = architecture


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_LENGTH and value.isprintable() and not value.isspace()
