"""The boot device of a Redfish system: written only where it differs, and verified by what the BMC shows afterwards.

Some BMCs refuse a write of what they do not let anybody change, even with its present value
(ansible-collections/community.general#3509, ironcore-dev/metal-operator#608); some change what was not written
(DMTF/Redfishtool#106), and some accept what they ignore (kubevirtbmc/kubevirtbmc#165, bmc-toolbox/bmclib#459). Others
apply it with the next boot, and show it in a resource of settings until then.
"""

from __future__ import annotations

from typing import Any, Final

import sushy

from ferroscope.bmc.redfish.reader import Reader
from ferroscope.bmc.redfish.resources import spell_values
from ferroscope.contracts.bmc import BootDevice
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.core.values import one_line
from ferroscope.hardware.parts import mapping

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
_PERSISTENT: Final = {sushy.BOOT_SOURCE_ENABLED_ONCE.value: False, sushy.BOOT_SOURCE_ENABLED_CONTINUOUS.value: True}
# Some spell these words in lower case.
_WORDS: Final = {
    word.value.lower(): word.value
    for words in (sushy.BootSource, sushy.BootSourceOverrideEnabled, sushy.BootSourceOverrideMode)
    for word in words
}
_TARGET, _ENABLED, _MODE = (f"BootSourceOverride{name}" for name in ("Target", "Enabled", "Mode"))
_MAX_SHOWN_CHARACTERS: Final = 60


def set_boot_device(system: Any, device: BootDevice, *, persistent: bool, mode: str | None = None) -> None:
    """Boot from ``device`` once or always; an error that may pass if the BMC does not show it afterwards."""
    target = _target(system, device)
    enabled = sushy.BOOT_SOURCE_ENABLED_CONTINUOUS if persistent else sushy.BOOT_SOURCE_ENABLED_ONCE
    boots = _read_boots(system)
    wanted_mode = _MODES.get(mode or "")
    before = boots[0].get(_MODE)
    # One that does not show the mode does not let anybody write it either (ironcore-dev/metal-operator#985).
    has_mode = any(_MODE in boot for boot in boots)
    is_mode = wanted_mode is None or not has_mode or any(boot.get(_MODE) == wanted_mode.value for boot in boots)
    is_set = is_mode and _is_set(boots, target, enabled)
    if is_set and persistent:
        return
    try:
        # Also if it is so already: BMCs may show an override for one boot that is used up.
        system.set_system_boot_options(target=target, enabled=enabled, mode=None if is_mode else wanted_mode)
    except sushy.exceptions.BadRequestError as exc:
        if is_mode and before in _KNOWN_MODES and _MODE in str(exc.body):
            # Some require the mode although it stays as it is (ansible-collections/community.general#11542).
            system.set_system_boot_options(target=target, enabled=enabled, mode=_KNOWN_MODES[before])
        elif not is_set:
            system.refresh(force=True)
            # It counts what the BMC has done, not what it says of it.
            if not _is_set(_read_boots(system), target, enabled):
                raise
    system.refresh(force=True)
    boots = _read_boots(system)
    expected = wanted_mode.value if wanted_mode else before
    if expected in _KNOWN_MODES and all(boot.get(_MODE) not in (expected, None) for boot in boots):
        # The BMC changed the mode by itself, or ignored it.
        system.set_system_boot_options(target=target, enabled=enabled, mode=_KNOWN_MODES[expected])
        system.refresh(force=True)
        boots = _read_boots(system)
        if all(boot.get(_MODE) not in (expected, None) for boot in boots):
            raise _ignored_error(f"boot mode {expected}", boots[0].get(_MODE))
    if not _is_set(boots, target, enabled) and not _shows_nothing(boots):
        raise _ignored_error(
            f"boot device {target.value}, {enabled.value}", f"{boots[0].get(_TARGET)}, {boots[0].get(_ENABLED)}"
        )


def boot_device(system: Any) -> tuple[BootDevice | None, bool | None]:
    """Return device and persistence, as far as they are known."""
    boot = next((boot for boot in _read_boots(system) if boot.get(_TARGET) is not None), {})
    target, enabled = boot.get(_TARGET), boot.get(_ENABLED)
    if target is None or enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED.value:
        return None, None
    return BootDevice.CDROM if target in _CDS else _NAMES.get(target), _PERSISTENT.get(enabled)


def clear_boot_device(system: Any, device: BootDevice) -> bool:
    """Disable the override if it is ``device`` for one boot; return whether it was, ``BmcError`` if it still is."""
    target = _target(system, device)
    before = _read_boots(system)
    if not any(_is_once(boot, target) for boot in before):
        return False
    # The target is written as it is: some refuse a disabled override without one (ironcore-dev/metal-operator#998).
    disabled = sushy.BOOT_SOURCE_ENABLED_DISABLED
    try:
        system.set_system_boot_options(target=target, enabled=disabled)
    except sushy.exceptions.BadRequestError as exc:
        mode = before[0].get(_MODE)
        if mode not in _KNOWN_MODES or _MODE not in str(exc.body):
            raise
        system.set_system_boot_options(target=target, enabled=disabled, mode=_KNOWN_MODES[mode])
    system.refresh(force=True)
    if any(_is_once(boot, target) for boot in _read_boots(system)):
        raise _ignored_error(
            "that the boot device is cleared", f"{target.value}, {sushy.BOOT_SOURCE_ENABLED_ONCE.value}"
        )
    return True


def _target(system: Any, device: BootDevice) -> Any:
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


def _read_boots(system: Any) -> list[Document]:
    """Return what the BMC shows of booting: now, and in its resource of settings, if it has one."""
    later = mapping(Reader(system._conn).get(system.settings).get("Boot")) if system.settings else {}
    return [
        _normalize_spelling(boot) for boot in (mapping(mapping(system.json).get("Boot")), *([later] if later else []))
    ]


def _normalize_spelling(boot: Document) -> Document:
    """Return the three properties that are there, in Redfish's spelling."""
    return {
        name: _WORDS.get(str(boot[name]).lower(), boot[name]) for name in (_TARGET, _ENABLED, _MODE) if name in boot
    }


def _is_set(boots: list[Document], target: Any, enabled: Any) -> bool:
    """Whether a place shows the device; what cannot boot from it once only will do (kubevirtbmc/kubevirtbmc#165)."""
    targets = _CDS if target.value in _CDS else {target.value}
    always = sushy.BOOT_SOURCE_ENABLED_CONTINUOUS.value
    return any(boot.get(_TARGET) in targets and boot.get(_ENABLED) in (enabled.value, always, None) for boot in boots)


def _is_once(boot: Document, target: Any) -> bool:
    targets = _CDS if target.value in _CDS else {target.value}
    return boot.get(_TARGET) in targets and boot.get(_ENABLED) == sushy.BOOT_SOURCE_ENABLED_ONCE.value


def _shows_nothing(boots: list[Document]) -> bool:
    """Whether the BMC does not show boot devices at all: then it is believed."""
    return all(boot.get(_TARGET) is None and boot.get(_ENABLED) is None for boot in boots)


def _ignored_error(accepted: str, shown: Any) -> BmcError:
    message = f"the BMC accepted {accepted}, and still shows {one_line(str(shown), _MAX_SHOWN_CHARACTERS)}"
    return BmcError(message, transient=True, reason=Reason.BMC_REFUSED)
