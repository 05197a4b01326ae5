"""``cpu-capabilities``: sets capabilities of the node from the flags of its CPU.

Capabilities are never removed, because the firmware may have hidden a missing flag.
"""

from __future__ import annotations

from collections.abc import Mapping

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookSetupError, HookTask, InspectionHook
from ferroscope.hooks.helpers import part, warn


class CpuCapabilitiesHook(InspectionHook):
    """Sets the capabilities in `cpu_capabilities` to `true` if the CPU has the flag."""

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}

    def configure(self, settings: InspectorSettings) -> None:
        bad = [name for name in settings.cpu_capabilities.values() if not helpers.is_value(name)]
        if bad:
            raise HookSetupError(f"[inspector] cpu_capabilities has the invalid capability name {bad[0]!r}")
        self._names = settings.cpu_capabilities

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        flags = part(inventory, "cpu").get("flags")
        if not isinstance(flags, list) or not flags:
            warn(task, "cpu-capabilities", "the inventory has no CPU flags")
            return
        present = {flag for flag in flags if isinstance(flag, str)}
        helpers.update(task.node, {name: "true" for flag, name in self._names.items() if flag in present})
