"""Hooks that set one property or capability each: CPUs, architecture, memory, boot mode.

``architecture`` sets ``properties.cpu_arch`` from ``inventory.cpu.architecture``, or else from what a collector knows
about the ramdisk's kernel. ``cpus`` sets ``properties.cpus`` from ``inventory.cpu.count``. ``memory`` sets
``properties.memory_mb`` from ``inventory.memory.physical_mb``, or else from the memory modules that the ramdisk
knows, or from the size that its kernel sees.
``cpu-capabilities`` sets capabilities from the flags of the CPU; they are never removed, because the firmware may have
hidden a missing flag. ``boot-mode`` sets the capability ``boot_mode`` from ``inventory.boot.current_boot_mode``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Document
from ferroscope.hardware import parts as hardware
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookError, HookSetupError, HookTask, InspectionHook
from ferroscope.hooks.extra_hardware import convert_records, is_list_of_records
from ferroscope.hooks.helpers import part, printable, warn
from ferroscope_client.core.reasons import Reason
from ferroscope_client.hardware import readings

_MAX_NAME: Final = 64


class ArchitectureHook(InspectionHook):
    """Sets ``properties.cpu_arch``; rejects an inventory without an architecture."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        reported = part(inventory, "cpu").get("architecture")
        architecture = _name(reported)
        if architecture is None:
            kernel = part(part(part(_with_records(plugin_data), "extra"), "system"), "kernel")
            architecture = _name(kernel.get("arch"))
            if architecture is None:
                raise HookError(
                    Reason.INVALID_INVENTORY,
                    f"the inventory has no CPU architecture (cpu.architecture is {printable(reported)})",
                )
            warn(task, "architecture", f"cpu.architecture is {printable(reported)}; {architecture} is the kernel's")
        task.node.properties["cpu_arch"] = architecture


def _name(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > _MAX_NAME or not value.strip().isprintable():
        return None
    return readings.text(value)


_MAX_CPUS: Final = 1 << 20


class CpusHook(InspectionHook):
    """Sets `properties.cpus`, the number of logical CPUs."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        reported = part(inventory, "cpu").get("count")
        count = _count(reported)
        if count is not None:
            helpers.set_number(task, "cpus", count)
            return
        warn(task, "cpus", f"the inventory has no number of CPUs (cpu.count is {printable(reported)})")


def _count(value: object) -> int | None:
    number = readings.number(value)
    return int(number) if number is not None and 1 <= number <= _MAX_CPUS else None


class CpuCapabilitiesHook(InspectionHook):
    """Sets the capabilities in `cpu_capabilities` to `true` if the CPU has the flag."""

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}

    def configure(self, settings: InspectorSettings) -> None:
        invalid = [name for name in settings.cpu_capabilities.values() if not helpers.is_value(name)]
        if invalid:
            raise HookSetupError(f"[inspector] cpu_capabilities has the invalid capability name {invalid[0]!r}")
        self._names = settings.cpu_capabilities

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        flags = part(inventory, "cpu").get("flags")
        if not isinstance(flags, list) or not flags:
            warn(task, "cpu-capabilities", "the inventory has no CPU flags")
            return
        present = {flag for flag in flags if isinstance(flag, str)}
        helpers.update(task.node, {name: "true" for flag, name in self._names.items() if flag in present})


# One exbibyte. No machine has more, and schedulers could not store it.
_MAX_MB: Final = 1 << 40
_BYTES_PER_MIB: Final = 1 << 20


class MemoryHook(InspectionHook):
    """Sets ``properties.memory_mb``, in MiB; rejects an inventory without the memory size."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        memory = part(inventory, "memory")
        reported = memory.get("physical_mb")
        size = _megabytes(reported)
        if size is None:
            size, source = _sum_modules(inventory, plugin_data), "the memory modules"
            if size is None:
                size, source = (
                    _megabytes(_in_mib(memory, "total")),
                    "memory.total, which lacks what the firmware reserves",
                )
            if size is None:
                raise HookError(
                    Reason.INVALID_INVENTORY,
                    f"the inventory has no memory size (memory.physical_mb is {printable(reported)}, memory.total is "
                    f"{printable(memory.get('total'))}, and no memory modules are listed)",
                )
            warn(task, "memory", f"memory.physical_mb is {printable(reported)}; {size} MiB is taken from {source}")
        helpers.set_number(task, "memory_mb", size)


def _megabytes(value: object) -> int | None:
    number = readings.number(value)
    return int(number) if number is not None and 1 <= number <= _MAX_MB else None


def _sum_modules(inventory: Document, plugin_data: Document) -> int | None:
    """Return the sum of the memory modules that collectors found."""
    collected = _with_records(plugin_data)
    sizes = [module.fields.get("size") for module in hardware.parts(inventory, collected) if module.kind == "dimm"]
    total = sum(size for size in sizes if isinstance(size, float))
    return _megabytes(total / _BYTES_PER_MIB) or _megabytes(
        _in_mib(part(part(part(collected, "extra"), "memory"), "total"), "size")
    )


def _with_records(plugin_data: Document) -> Document:
    """Return the data with the records of the collector extra-hardware, whether its hook has run or not."""
    if "extra" in plugin_data or not is_list_of_records(plugin_data.get("data"), strict=False):
        return plugin_data
    return {**plugin_data, "extra": convert_records(plugin_data["data"])[0]}


def _in_mib(document: Document, name: str) -> float | None:
    size = readings.number(document.get(name))
    return None if size is None else size / _BYTES_PER_MIB


class BootModeHook(InspectionHook):
    """Sets the capability `boot_mode`, `bios` or `uefi`, to the boot mode of the ramdisk."""

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        mode = part(inventory, "boot").get("current_boot_mode")
        if helpers.is_value(mode):
            helpers.update(task.node, {"boot_mode": mode})
            return
        warn(task, "boot-mode", f"the inventory has no boot mode (boot.current_boot_mode is {printable(mode)})")
