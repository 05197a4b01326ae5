"""Commands to a Redfish system, with sushy; each function is idempotent.

They raise sushy's exceptions; ``session.translate`` turns those into ``BmcError``. Deadlines, sessions and retries are
handled by the caller.
"""

from __future__ import annotations

from typing import Any, Final

import sushy

from ferroscope.bmc.redfish import health as health
from ferroscope.bmc.redfish import inventory as inventory
from ferroscope.bmc.redfish.info import Access
from ferroscope.contracts.bmc import BootDevice, Image, Power, Switch, unsettled
from ferroscope.contracts.errors import BmcError

_DEVICES: Final = {
    BootDevice.PXE: sushy.BOOT_SOURCE_TARGET_PXE,
    BootDevice.DISK: sushy.BOOT_SOURCE_TARGET_HDD,
    BootDevice.CDROM: sushy.BOOT_SOURCE_TARGET_CD,
    BootDevice.BIOS: sushy.BOOT_SOURCE_TARGET_BIOS_SETUP,
}
_NAMES: Final = {target: device for device, target in _DEVICES.items()}
_MODES: Final = {"uefi": sushy.BOOT_SOURCE_MODE_UEFI, "bios": sushy.BOOT_SOURCE_MODE_BIOS}
# The values of PowerState; one that is paused has power. All others, among them null and what is no text, are unknown.
_POWERS: Final = {
    "On": Power.ON,
    "Paused": Power.ON,
    "Off": Power.OFF,
    "PoweringOn": Power.CHANGING,
    "PoweringOff": Power.CHANGING,
}
_CDS: Final = (sushy.VIRTUAL_MEDIA_CD, sushy.VIRTUAL_MEDIA_DVD)
_DISKS: Final = (sushy.VIRTUAL_MEDIA_USBSTICK, sushy.VIRTUAL_MEDIA_FLOPPY)


def system(root: Any, access: Access) -> Any:
    """Return the node's system; the only one if the node names none."""
    return root.get_system(access.system)


def systems(root: Any) -> list[str]:
    """Return the paths of all systems."""
    return [str(path) for path in root.get_system_collection().members_identities]


def power(system: Any) -> Power:
    """Return its power state, by the words of the BMC and nothing else."""
    said = _said(system)
    return _POWERS.get(said, Power.UNKNOWN) if isinstance(said, str) else Power.UNKNOWN


def _said(system: Any) -> Any:
    return system.json.get("PowerState")


def set_power(system: Any, wanted: Switch) -> None:
    """Set the power state, unless the machine is in it, or is being powered on already.

    One that is powering off may be waiting for its operating system, so its power is cut all the same.
    """
    if power(system) is wanted or (wanted is Power.ON and _said(system) == "PoweringOn"):
        return
    allowed = system.get_allowed_reset_system_values()
    on = sushy.RESET_ON if sushy.RESET_ON in allowed else sushy.RESET_FORCE_ON
    system.reset_system(on if wanted is Power.ON else sushy.RESET_FORCE_OFF)


def force_off(system: Any) -> bool:
    """Send ``ForceOff`` in any state; return False if the BMC has refused it and says that the system is off."""
    try:
        system.reset_system(sushy.RESET_FORCE_OFF)
    except sushy.exceptions.AccessError:
        raise
    except sushy.exceptions.HTTPError:
        system.refresh(force=True)
        if power(system) is not Power.OFF:
            raise
        return False
    return True


def reboot(system: Any) -> None:
    """Restart a system that is on; power on one that is off; ``BmcError`` (transient) if it is neither for certain."""
    now = power(system)
    if now is Power.OFF:
        set_power(system, Power.ON)
        return
    if now is not Power.ON:
        raise unsettled("reboot", now)
    _reset(system, sushy.RESET_FORCE_RESTART)


def soft_power_off(system: Any) -> None:
    """Have the operating system shut down, unless the machine is off or powering off."""
    if power(system) is not Power.OFF and _said(system) != "PoweringOff":
        _reset(system, sushy.RESET_GRACEFUL_SHUTDOWN)


def soft_reboot(system: Any) -> None:
    """Have the operating system restart."""
    _reset(system, sushy.RESET_GRACEFUL_RESTART)


def _reset(system: Any, kind: sushy.ResetType) -> None:
    if kind not in system.get_allowed_reset_system_values():
        raise sushy.exceptions.MissingActionError(action=kind.value, resource=system.path)
    system.reset_system(kind)


def set_boot_device(system: Any, device: BootDevice, *, persistent: bool, mode: str | None = None) -> None:
    """Boot from ``device`` once or always; some services support optical drives only as USB devices."""
    target = _DEVICES.get(device)
    if target is None:
        raise sushy.exceptions.InvalidParameterValueError(
            parameter="boot_device", value=str(device), valid_values=", ".join(map(str, _DEVICES))
        )
    allowed = system.get_allowed_system_boot_source_values()
    usb_cd = sushy.BootSource.USB_CD
    if target is sushy.BOOT_SOURCE_TARGET_CD and target not in allowed and usb_cd in allowed:
        target = usb_cd
    often = sushy.BOOT_SOURCE_ENABLED_CONTINUOUS if persistent else sushy.BOOT_SOURCE_ENABLED_ONCE
    system.set_system_boot_options(target=target, enabled=often, mode=_MODES.get(mode or ""))


def boot_device(system: Any) -> tuple[BootDevice | None, bool | None]:
    """Return device and persistence, as far as they are known."""
    boot = system.boot
    if boot is None or boot.target is None or boot.enabled is sushy.BOOT_SOURCE_ENABLED_DISABLED:
        return None, None
    target = sushy.BOOT_SOURCE_TARGET_CD if boot.target is sushy.BootSource.USB_CD else boot.target
    persistent = None if boot.enabled is None else boot.enabled is sushy.BOOT_SOURCE_ENABLED_CONTINUOUS
    return _NAMES.get(target), persistent


def last_reset(system: Any) -> str | None:
    """Return the time of the system's last reset, in the BMC's format."""
    found = system.json.get("LastResetTime")
    return found if isinstance(found, str) and found else None


def insert(system: Any, image: Image, mode: str | None) -> str | None:
    """Insert the ramdisk's image, and its parameters if there is a second drive; boot from the image once."""
    drives = _drives(system)
    cd = _slot(drives, _CDS)
    if cd is None:
        raise sushy.exceptions.MissingAttributeError(attribute="a virtual CD drive", resource=system.path)
    _put(cd, image.iso)
    remark = None
    if image.parameters:
        disk = _slot([drive for drive in drives if drive is not cd], _DISKS)
        if disk is None:
            remark = "no virtual drive for the ramdisk's parameters; the image must contain them"
        else:
            _put(disk, image.parameters)
    set_boot_device(system, BootDevice.CDROM, persistent=False, mode=mode)
    return remark


def eject(system: Any, image: Image) -> bool:
    """Eject what ``insert`` inserted; other media are left alone."""
    ours = {url for url in (image.iso, image.parameters) if url}
    inserted = [drive for drive in _drives(system) if drive.inserted and drive.image in ours]
    for drive in inserted:
        _take_out(drive)
    return bool(inserted)


def _put(drive: Any, url: str) -> None:
    if drive.inserted and drive.image == url:
        return
    if drive.inserted:
        _take_out(drive)
    drive.insert_media(url, inserted=True, write_protected=True)


def _take_out(drive: Any) -> None:
    """Eject, and verify that the drive is empty: sushy reports most refusals as success."""
    drive.eject_media()
    drive.refresh(force=True)
    if drive.inserted:
        raise BmcError(f"virtual media {drive.identity} is still inserted after eject", transient=True)


def _slot(drives: list[Any], kinds: tuple[Any, ...]) -> Any:
    """Return the first drive of the most preferred kind."""
    return next((drive for kind in kinds for drive in drives if kind in drive.media_types), None)


def _drives(system: Any) -> list[Any]:
    """Return the virtual drives of the system, or of its managers if it has none."""
    try:
        return list(system.virtual_media.get_members())
    except (sushy.exceptions.MissingAttributeError, sushy.exceptions.ResourceNotFoundError):
        return [drive for manager in system.managers for drive in manager.virtual_media.get_members()]
