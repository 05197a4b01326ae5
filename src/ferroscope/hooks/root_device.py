"""``root-device``: determines the disk for the operating system, and its size.

The node's hints (``properties.root_device``) select one of the disks that ``properties.skip_block_devices`` does not
exclude; without hints it is the disk selected by the ramdisk. The result is ``plugin_data.root_disk`` and, in GiB,
``local_gb`` in plugin data and properties.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import listed, records, shown, warn
from ferroscope.hooks.root_hints import HintError, Hints

_GIB: Final = 1 << 30
_LARGEST: Final = 1 << 80


class RootDeviceHook(InspectionHook):
    """Writes `plugin_data.root_disk` by the node's hints, and `local_gb`, less `disk_partitioning_spacing`."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        hints = task.node.properties.get("root_device")
        if hints:
            plugin_data["root_disk"] = copy.deepcopy(_chosen(task, hints, inventory))
        size = _local_gb(task, plugin_data.get("root_disk"))
        plugin_data["local_gb"] = task.node.properties["local_gb"] = size


def _chosen(task: HookTask, hints: Any, inventory: Document) -> Document:
    """Return the first disk that matches the hints; ``HookError`` if none does."""
    try:
        candidates = _without_skipped(task, records(inventory, "disks"))
        found = next(Hints(hints).matching(candidates), None)
    except HintError as exc:
        raise HookError(
            Reason.HOOK_FAILED, f"{exc}; correct the node's properties root_device or skip_block_devices, then reapply"
        ) from exc
    if found is None:
        names = listed(disk.get("name") for disk in candidates) or "none"
        raise HookError(
            Reason.INVALID_INVENTORY, f"no disk matches the root device hints {shown(hints)}; disks: {names}"
        )
    return found


def _without_skipped(task: HookTask, disks: list[Document]) -> list[Document]:
    """Return the disks that match no entry of ``skip_block_devices``."""
    entries = task.node.properties.get("skip_block_devices")
    if not entries:
        return disks
    if not isinstance(entries, list):
        raise HintError(f"skip_block_devices must be a list of hints, not {shown(entries)}")
    skipped = {id(disk) for entry in entries for disk in Hints(entry).matching(disks)}
    return [disk for disk in disks if id(disk) not in skipped]


def _local_gb(task: HookTask, disk: Any) -> int:
    if not disk:
        return 0  # a machine without disks needs no warning
    size = disk.get("size") if isinstance(disk, dict) else None
    whole = isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < _LARGEST
    gib = int(size // _GIB) if whole and size is not None else 0
    if not gib:
        warn(task, "root-device", f"the root disk is smaller than 1 GiB, or its size is unknown ({shown(size)})")
    return max(0, gib - task.settings.disk_partitioning_spacing)
