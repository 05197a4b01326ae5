"""What a Redfish BMC shows of a restart, beside its power state, which stays "On" during a reset of many machines.

A changed ``LastResetTime`` proves a restart; one that is as before proves nothing: OpenBMC's is that of the chassis,
which a restart of the host does not change (ibm-openbmc/dev#3429). ``BootProgress`` only goes forward during
a boot, so a step back proves a restart, and so does the same step at another time. If it has a step and the time of it,
and neither has changed, the machine was not restarted: firmware reports its first step within seconds.
Source of the steps: DMTF's ComputerSystem schema (DSP8010).
"""

from __future__ import annotations

from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope.hardware.parts import mapping

_RESET, _STEP, _AT = "last_reset", "boot_step", "boot_step_at"
# In order. "None" is missing: some show it after their own restart, too.
_STEPS: Final = (
    "PrimaryProcessorInitializationStarted",
    "BusInitializationStarted",
    "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted",
    "PCIResourceConfigStarted",
    "SystemHardwareInitializationComplete",
    "SetupEntered",
    "OSBootStarted",
    "OSRunning",
)


def boot_marks(system: Any) -> Document:
    """Return what a restart changes, as far as the BMC shows it."""
    progress = mapping(system.json.get("BootProgress"))
    step = progress.get("LastState")
    is_known = isinstance(step, str) and step in _STEPS
    marks = {
        _RESET: system.json.get("LastResetTime"),
        _STEP: step if is_known else None,
        _AT: progress.get("LastStateTime") if is_known else None,
    }
    return {name: value for name, value in marks.items() if isinstance(value, str) and value}


def is_booting(system: Any) -> bool | None:
    """Whether the firmware is at work; None if the BMC does not show it.

    ``OSBootStarted`` shows nothing: it stays where nobody tells the BMC that the operating system runs.
    """
    step = mapping(system.json.get("BootProgress")).get("LastState")
    if step not in _STEPS or step == "OSBootStarted":
        return None
    return bool(step != "OSRunning")


def restarted_since(system: Any, before: Document) -> bool | None:
    """Whether the machine was restarted since its marks were these; None if they do not show it."""
    now = boot_marks(system)
    if _differ(now, before, _RESET):
        return True
    step, earlier = now.get(_STEP), before.get(_STEP)
    if step not in _STEPS or earlier not in _STEPS:
        return None
    if step != earlier:
        return True if _STEPS.index(step) < _STEPS.index(earlier) else None
    if _AT not in now or _AT not in before:
        return None
    return _differ(now, before, _AT)


def _differ(now: Document, before: Document, name: str) -> bool:
    return name in now and name in before and now[name] != before[name]
