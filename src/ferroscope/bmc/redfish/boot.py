"""The boot of a Redfish system: the device that it boots from, and what shows that it has restarted.

The driver writes a boot device only where it differs, and verifies it by what the BMC shows afterwards. Some BMCs
refuse a write of properties that are read-only, even with their present value
(ansible-collections/community.general#3509, ironcore-dev/metal-operator#608); some change what was not written
(DMTF/Redfishtool#106), and some accept what they ignore (kubevirtbmc/kubevirtbmc#165, bmc-toolbox/bmclib#459). Others
apply it with the next boot, and show it in a resource of settings until then.

The power state stays "On" while many machines restart, so other properties show a restart. A changed ``LastResetTime``
proves one. An unchanged one proves nothing: OpenBMC's is the chassis's, which a restart of the host does not change
(ibm-openbmc/dev#3429). ``BootProgress`` only goes forward during a boot, so a step back proves a restart, and so does
the same step at another time. If step and time are unchanged, the machine was not restarted: firmware reports its first
step within seconds. Source of the steps: DMTF's ComputerSystem schema (DSP8010).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sushy

from ferroscope.bmc.redfish.resources import Reader
from ferroscope.bmc.redfish.system import System, read_power, spell_values
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import one_line
from ferroscope_client.hardware.readings import mapping

_DEVICES: Final = {
    BootDevice.PXE: sushy.BOOT_SOURCE_TARGET_PXE,
    BootDevice.DISK: sushy.BOOT_SOURCE_TARGET_HDD,
    BootDevice.CDROM: sushy.BOOT_SOURCE_TARGET_CD,
    BootDevice.BIOS: sushy.BOOT_SOURCE_TARGET_BIOS_SETUP,
}
_NAMES: Final = {target.value: device for device, target in _DEVICES.items()}
_MODES: Final = {"uefi": sushy.BOOT_SOURCE_MODE_UEFI, "bios": sushy.BOOT_SOURCE_MODE_BIOS}
_KNOWN_MODES: Final = {mode.value: mode for mode in _MODES.values()}
_CDS: Final = frozenset({sushy.BOOT_SOURCE_TARGET_CD.value, sushy.BootSource.USB_CD.value})
_ONCE, _ALWAYS = sushy.BOOT_SOURCE_ENABLED_ONCE, sushy.BOOT_SOURCE_ENABLED_CONTINUOUS
_DISABLED: Final = sushy.BOOT_SOURCE_ENABLED_DISABLED
# Some spell these words in lower case.
_WORDS: Final = {
    word.value.lower(): word.value
    for words in (sushy.BootSource, sushy.BootSourceOverrideEnabled, sushy.BootSourceOverrideMode)
    for word in words
}
_TARGET, _ENABLED, _MODE = (f"BootSourceOverride{name}" for name in ("Target", "Enabled", "Mode"))
_MAX_SHOWN_CHARACTERS: Final = 60
_RESET, _STEP, _AT = "last_reset", "boot_step", "boot_step_at"
# The steps of BootProgress, in order. "None" is missing: some BMCs show it after their own restart, too.
_STEPS: Final = (
    "PrimaryProcessorInitializationStarted", "BusInitializationStarted", "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted", "PCIResourceConfigStarted", "SystemHardwareInitializationComplete",
    "SetupEntered", "OSBootStarted", "OSRunning",
)  # fmt: skip


def set_boot_device(system: System, device: BootDevice, *, persistent: bool, mode: str | None = None) -> None:
    """Boot from ``device`` once or always; an error that may pass if the BMC does not show it afterwards."""
    target, enabled = _target(system, device), _ALWAYS if persistent else _ONCE
    boots = _read_boots(system)
    wanted_mode, before = _MODES.get(mode or ""), boots[0].get(_MODE)
    # A BMC that does not show the mode does not let clients write it either (ironcore-dev/metal-operator#985).
    has_mode = any(_MODE in boot for boot in boots)
    mode_matches = wanted_mode is None or not has_mode or any(boot.get(_MODE) == wanted_mode.value for boot in boots)
    is_set = mode_matches and _is_set(boots, target, enabled)
    if is_set and persistent:
        return
    try:
        # Also if it is set already: BMCs may show an override for one boot that is used up.
        _write(system, target, enabled, None if mode_matches else wanted_mode, before if mode_matches else None)
    except sushy.exceptions.BadRequestError:
        # What the BMC does counts, not what it answers.
        if not is_set and not _is_set(_reread_boots(system), target, enabled):
            raise
    boots = _reread_boots(system)
    expected = wanted_mode.value if wanted_mode else before
    if expected in _KNOWN_MODES and not _may_have_mode(boots, expected):
        # The BMC changed the mode by itself, or ignored it.
        system.set_system_boot_options(target=target, enabled=enabled, mode=_KNOWN_MODES[expected])
        boots = _reread_boots(system)
        if not _may_have_mode(boots, expected):
            raise _ignored_error(f"boot mode {expected}", boots[0].get(_MODE))
    # A BMC that does not show boot devices at all is believed.
    is_shown = any(boot.get(_TARGET) is not None or boot.get(_ENABLED) is not None for boot in boots)
    if is_shown and not _is_set(boots, target, enabled):
        present = f"{boots[0].get(_TARGET)}, {boots[0].get(_ENABLED)}"
        raise _ignored_error(f"boot device {target.value}, {enabled.value}", present)


def get_boot_device(system: System) -> tuple[BootDevice | None, bool | None]:
    """Return device and persistence, as far as they are known."""
    boot = next((boot for boot in _read_boots(system) if boot.get(_TARGET) is not None), {})
    target, enabled = boot.get(_TARGET), boot.get(_ENABLED)
    if target is None or enabled == _DISABLED.value:
        return None, None
    persistence = {_ONCE.value: False, _ALWAYS.value: True}
    return BootDevice.CDROM if target in _CDS else _NAMES.get(target), persistence.get(enabled)


def clear_boot_device(system: System, device: BootDevice) -> bool:
    """Disable the override if it is ``device`` for one boot; return whether it was, ``BmcError`` if it still is."""
    target = _target(system, device)
    boots = _read_boots(system)
    if _ONCE.value not in _enabled_values(boots, target):
        return False
    # The target is written as it is: some refuse a disabled override without one (ironcore-dev/metal-operator#998).
    _write(system, target, _DISABLED, None, boots[0].get(_MODE))
    if _ONCE.value in _enabled_values(_reread_boots(system), target):
        raise _ignored_error("that the boot device is cleared", f"{target.value}, {_ONCE.value}")
    return True


def _write(system: System, target: Any, enabled: Any, mode: Any, present_mode: Any) -> None:
    """Write the override, with the present mode if the BMC demands it (ansible-collections/community.general#11542)."""
    try:
        system.set_system_boot_options(target=target, enabled=enabled, mode=mode)
    except sushy.exceptions.BadRequestError as exc:
        if present_mode not in _KNOWN_MODES or _MODE not in str(exc.body):
            raise
        system.set_system_boot_options(target=target, enabled=enabled, mode=_KNOWN_MODES[present_mode])


def _target(system: System, device: BootDevice) -> Any:
    """Return Redfish's name of the device; some services support optical drives only as USB devices."""
    target = _DEVICES.get(device)
    if target is None:
        raise sushy.exceptions.InvalidParameterValueError(
            parameter="boot_device", value=str(device), valid_values=", ".join(map(str, _DEVICES))
        )
    allowed = system.get_allowed_system_boot_source_values()
    if target is sushy.BOOT_SOURCE_TARGET_CD and target not in allowed:
        target = sushy.BootSource.USB_CD
    if target not in allowed:
        raise sushy.exceptions.InvalidParameterValueError(
            parameter=_TARGET, value=_DEVICES[device].value, valid_values=spell_values(allowed)
        )
    return target


def _reread_boots(system: System) -> list[Document]:
    system.refresh(force=True)
    return _read_boots(system)


def _read_boots(system: System) -> list[Document]:
    """Return what the BMC shows of booting: now, and in its resource of settings, if it has one."""
    later = mapping(Reader(system._conn).get(system.settings).get("Boot")) if system.settings else {}
    boots = [mapping(system.document.get("Boot")), *([later] if later else [])]
    # The three properties that are there, in Redfish's spelling.
    names = (_TARGET, _ENABLED, _MODE)
    return [{name: _WORDS.get(str(boot[name]).lower(), boot[name]) for name in names if name in boot} for boot in boots]


def _is_set(boots: Sequence[Document], target: Any, enabled: Any) -> bool:
    """Whether a place shows the device; some machines cannot boot from it once only (kubevirtbmc/kubevirtbmc#165)."""
    return any(value in (enabled.value, _ALWAYS.value, None) for value in _enabled_values(boots, target))


def _enabled_values(boots: Sequence[Document], target: Any) -> list[Any]:
    """Return how long the override is enabled, from each place that shows this target."""
    targets = _CDS if target.value in _CDS else {target.value}
    return [boot.get(_ENABLED) for boot in boots if boot.get(_TARGET) in targets]


def _may_have_mode(boots: Sequence[Document], mode: Any) -> bool:
    return any(boot.get(_MODE) in (mode, None) for boot in boots)


def _ignored_error(accepted: str, shown: Any) -> BmcError:
    message = f"the BMC accepted {accepted}, and still shows {one_line(str(shown), _MAX_SHOWN_CHARACTERS)}"
    return BmcError(message, transient=True, reason=Reason.BMC_REFUSED)


def power_and_boot(system: System) -> tuple[Power, bool | None]:
    """Return the power state, and whether the firmware is at work; None if the BMC does not show it.

    ``OSBootStarted`` shows nothing: it stays where no operating system tells the BMC that it runs.
    """
    step = mapping(system.document.get("BootProgress")).get("LastState")
    return read_power(system), step != "OSRunning" if step in _STEPS and step != "OSBootStarted" else None


def boot_marks(system: System) -> Document:
    """Return the properties that a restart changes, as far as the BMC shows them."""
    progress = mapping(system.document.get("BootProgress"))
    step = progress.get("LastState")
    is_known = isinstance(step, str) and step in _STEPS
    marks = {
        _RESET: system.document.get("LastResetTime"),
        _STEP: step if is_known else None,
        _AT: progress.get("LastStateTime") if is_known else None,
    }
    return {name: value for name, value in marks.items() if isinstance(value, str) and value}


def restarted_since(system: System, before: Document) -> bool | None:
    """Whether the machine was restarted since its marks were ``before``; None if they do not show it."""
    now = boot_marks(system)
    changed = {name: now[name] != before[name] for name in (_RESET, _STEP, _AT) if name in now and name in before}
    if changed.get(_RESET):
        return True
    if _STEP not in changed or before[_STEP] not in _STEPS:
        return None
    if changed[_STEP]:
        return True if _STEPS.index(now[_STEP]) < _STEPS.index(before[_STEP]) else None
    return changed.get(_AT)
