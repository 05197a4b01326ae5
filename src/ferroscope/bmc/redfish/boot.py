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
from ferroscope.bmc.redfish.resources import spelt
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
    one.value.lower(): one.value
    for words in (sushy.BootSource, sushy.BootSourceOverrideEnabled, sushy.BootSourceOverrideMode)
    for one in words
}
_TARGET, _ENABLED, _MODE = (f"BootSourceOverride{name}" for name in ("Target", "Enabled", "Mode"))
_SHOWN: Final = 60


def set_boot_device(system: Any, device: BootDevice, *, persistent: bool, mode: str | None = None) -> None:
    """Boot from ``device`` once or always; an error that may pass if the BMC does not show it afterwards."""
    target = _target(system, device)
    often = sushy.BOOT_SOURCE_ENABLED_CONTINUOUS if persistent else sushy.BOOT_SOURCE_ENABLED_ONCE
    shown = _shown(system)
    wanted_mode = _MODES.get(mode or "")
    before = shown[0].get(_MODE)
    # One that does not show the mode does not let anybody write it either (ironcore-dev/metal-operator#985).
    has_mode = any(_MODE in one for one in shown)
    is_mode = wanted_mode is None or not has_mode or any(one.get(_MODE) == wanted_mode.value for one in shown)
    is_so = is_mode and _is_so(shown, target, often)
    if is_so and persistent:
        return
    try:
        # Also if it is so already: BMCs may show an override for one boot that is used up.
        system.set_system_boot_options(target=target, enabled=often, mode=None if is_mode else wanted_mode)
    except sushy.exceptions.BadRequestError as exc:
        if is_mode and before in _KNOWN_MODES and _MODE in str(exc.body):
            # Some require the mode although it stays as it is (ansible-collections/community.general#11542).
            system.set_system_boot_options(target=target, enabled=often, mode=_KNOWN_MODES[before])
        elif not is_so:
            system.refresh(force=True)
            if not _is_so(_shown(system), target, often):  # it counts what the BMC has done, not what it says of it
                raise
    system.refresh(force=True)
    shown = _shown(system)
    kept = wanted_mode.value if wanted_mode else before
    if kept in _KNOWN_MODES and all(one.get(_MODE) not in (kept, None) for one in shown):
        # The BMC changed the mode by itself, or ignored it.
        system.set_system_boot_options(target=target, enabled=often, mode=_KNOWN_MODES[kept])
        system.refresh(force=True)
        shown = _shown(system)
        if all(one.get(_MODE) not in (kept, None) for one in shown):
            raise _ignored(f"boot mode {kept}", shown[0].get(_MODE))
    if not _is_so(shown, target, often) and not _says_nothing(shown):
        raise _ignored(
            f"boot device {target.value}, {often.value}", f"{shown[0].get(_TARGET)}, {shown[0].get(_ENABLED)}"
        )


def boot_device(system: Any) -> tuple[BootDevice | None, bool | None]:
    """Return device and persistence, as far as they are known."""
    boot = next((one for one in _shown(system) if one.get(_TARGET) is not None), {})
    target, often = boot.get(_TARGET), boot.get(_ENABLED)
    if target is None or often == sushy.BOOT_SOURCE_ENABLED_DISABLED.value:
        return None, None
    return BootDevice.CDROM if target in _CDS else _NAMES.get(target), _PERSISTENT.get(often)


def clear_boot_device(system: Any, device: BootDevice) -> bool:
    """Disable the override if it is ``device`` for one boot; return whether it was, ``_ignored`` if it still is."""
    target = _target(system, device)
    before = _shown(system)
    if not any(_is_once(one, target) for one in before):
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
    if any(_is_once(one, target) for one in _shown(system)):
        raise _ignored("that the boot device is cleared", f"{target.value}, {sushy.BOOT_SOURCE_ENABLED_ONCE.value}")
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
            parameter=_TARGET, value=_DEVICES[device].value, valid_values=spelt(allowed)
        )
    return target


def _shown(system: Any) -> list[Document]:
    """Return what the BMC shows of booting: now, and in its resource of settings, if it has one."""
    later = mapping(Reader(system._conn).get(system.settings).get("Boot")) if system.settings else {}
    return [_spelt(one) for one in (mapping(mapping(system.json).get("Boot")), *([later] if later else []))]


def _spelt(boot: Document) -> Document:
    """Return the three properties that are there, in Redfish's spelling."""
    return {
        name: _WORDS.get(str(boot[name]).lower(), boot[name]) for name in (_TARGET, _ENABLED, _MODE) if name in boot
    }


def _is_so(shown: list[Document], target: Any, often: Any) -> bool:
    """Whether a place shows the device; what cannot boot from it once only will do (kubevirtbmc/kubevirtbmc#165)."""
    targets = _CDS if target.value in _CDS else {target.value}
    always = sushy.BOOT_SOURCE_ENABLED_CONTINUOUS.value
    return any(one.get(_TARGET) in targets and one.get(_ENABLED) in (often.value, always, None) for one in shown)


def _is_once(shown: Document, target: Any) -> bool:
    targets = _CDS if target.value in _CDS else {target.value}
    return shown.get(_TARGET) in targets and shown.get(_ENABLED) == sushy.BOOT_SOURCE_ENABLED_ONCE.value


def _says_nothing(shown: list[Document]) -> bool:
    """Whether the BMC does not show boot devices at all: then it is believed."""
    return all(one.get(_TARGET) is None and one.get(_ENABLED) is None for one in shown)


def _ignored(wanted: str, shown: Any) -> BmcError:
    message = f"the BMC accepted {wanted}, and still shows {one_line(str(shown), _SHOWN)}"
    return BmcError(message, transient=True, reason=Reason.BMC_REFUSED)
