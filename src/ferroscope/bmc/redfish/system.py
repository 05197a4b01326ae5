"""A Redfish system: which one it is, its power, the device that it boots from, and what shows that it has restarted.

The functions raise sushy's exceptions and ``BmcError``; callers handle deadlines, sessions and retries. All are
idempotent, except for the restarts, which are sent once.

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

import contextlib
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import sushy
from sushy.exceptions import AccessError, BadRequestError, HTTPError, ResourceNotFoundError, SushyError
from sushy.resources.system import system as sushy_system

from ferroscope.bmc.redfish.failures import InvalidAnswerError, TaskFailedError, is_partial, is_running, is_temporary
from ferroscope.bmc.redfish.resources import Lenient, Reader, path_key, path_of
from ferroscope.contracts.bmc import BootDevice, Power, Switch, unsettled
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.hardware import machine_identity
from ferroscope.remote.retry import Once
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many, one_line
from ferroscope_client.hardware.readings import mapping

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.driver import RedfishAccess

# The values of PowerState; one that is paused has power. All others, among them null and what is no text, are unknown.
_POWERS: Final = {
    "On": Power.ON,
    "Paused": Power.ON,
    "Off": Power.OFF,
    "PoweringOn": Power.CHANGING,
    "PoweringOff": Power.CHANGING,
}
_MAX_LISTED_SYSTEMS: Final = 8
_FUTURE: Final = re.compile(r"FutureState ?URI ?\((/redfish/[^\s()]{1,200})\)")
_MAX_SHOWN_CHARACTERS: Final = 60
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
_RESET, _STEP, _AT = "last_reset", "boot_step", "boot_step_at"
# The steps of BootProgress, in order. "None" is missing: some BMCs show it after their own restart, too.
_STEPS: Final = (
    "PrimaryProcessorInitializationStarted", "BusInitializationStarted", "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted", "PCIResourceConfigStarted", "SystemHardwareInitializationComplete",
    "SetupEntered", "OSBootStarted", "OSRunning",
)  # fmt: skip


class System(Lenient, sushy_system.System):  # type: ignore[misc]
    """A computer system. ``patient``: while it is read, errors that may pass are raised; see ``Reader``."""

    boot: Any
    manufacturer: Any
    patient = True
    _settings: Any
    # Where the BMC says that settings are written: AMI's does not link it from the system (DMTF/Redfish-Tacklebox#144).
    _future = ""

    def _parse_attributes(self, json_doc: Document) -> Document:
        super()._parse_attributes(json_doc)
        # sushy reads these without checking whether they are there.
        self.manufacturer = self.manufacturer if isinstance(self.manufacturer, str) else None
        if self.boot is not None and self.boot.allowed_values is None:
            self.boot.allowed_values = []
        return {}

    @property
    def document(self) -> Document:
        """The resource as the BMC shows it."""
        return mapping(self.json)

    def reader(self) -> Reader:
        """Return a reader of this system's service."""
        return Reader(self._conn, patient=self.patient)

    def get_allowed_system_boot_source_values(self) -> set[Any]:
        """Return the boot devices that the BMC lists, in any case; all if it lists no known one."""
        listed = getattr(self.boot, "allowed_values", None)
        words = {str(value).lower() for value in listed} if isinstance(listed, list) else set()
        return {source for source in sushy.BootSource if source.value.lower() in words} or set(sushy.BootSource)

    def get_allowed_reset_system_values(self) -> set[Any]:
        """Return the resets that the BMC lists; all if it lists none in a known form."""
        self._get_reset_action_element()
        with contextlib.suppress(AttributeError, LookupError, TypeError):
            return super().get_allowed_reset_system_values() or set(sushy.ResetType)
        return set(sushy.ResetType)

    @property
    def settings(self) -> str:
        """The path of the resource with the settings for the next boot; "" if there is none."""
        link = mapping(mapping(self.document.get("@Redfish.Settings")).get("SettingsObject")).get("@odata.id")
        return link if isinstance(link, str) else self._future

    def write_boot(self, present_mode: Any, **options: Any) -> None:
        """Write boot options; to the system itself if the link to its settings leads nowhere.

        ``present_mode`` is written, too, if the BMC demands it (ansible-collections/community.general#11542).
        """
        try:
            self.set_system_boot_options(**options)
        except (AttributeError, TypeError, ResourceNotFoundError):
            if self._settings is None:
                raise
            self._settings = None
            self.write_boot(present_mode, **options)
        except BadRequestError as exc:
            matched = _FUTURE.search(str(exc.body))
            if matched and not self.settings:
                self._future = matched[1]
                self._settings = SimpleNamespace(resource_uri=self._future)
            elif present_mode is not None and _MODE in str(exc.body):
                options, present_mode = options | {"mode": present_mode}, None
            else:
                raise
            self.write_boot(present_mode, **options)


def find_system(root: Any, access: RedfishAccess) -> System:
    """Return the node's system; the only one if the node names none.

    Sushy's exceptions; ``BmcError`` if there are several, or the BMC shows, for now, only a part of it.
    """
    path = access.system
    if path is None:
        paths = list_systems(root)
        if not paths:  # redhat-performance/jetlag#778: for a while after a restart
            message = f"the BMC at {access.url} lists no system; it may be restarting"
            raise BmcError(message, transient=True, reason=Reason.BMC_SYSTEM_UNCLEAR, pause=0.0)
        path, *others = paths
        if others:
            listed = ", ".join(paths[:_MAX_LISTED_SYSTEMS]) + (", ..." if len(paths) > _MAX_LISTED_SYSTEMS else "")
            hint = f"set redfish_system_id to one of: {listed}"
            message = f"the BMC at {access.url} has {many(len(paths), 'system')}; {hint}"
            raise BmcError(message, transient=False, reason=Reason.BMC_SYSTEM_UNCLEAR)
    version, registries = root.redfish_version, root.lazy_registries
    system = System(root._conn, path, redfish_version=version, registries=registries, root=root)
    if is_partial(system.document) and not system.document.get("Actions"):
        message = f"the BMC answers with part of the system {path} and an error"
        raise BmcError(message, transient=True, reason=Reason.BMC_NOT_READY, pause=0.0)
    return system


def list_systems(root: Any) -> list[str]:
    """Return the paths of all systems; ``BmcError`` and sushy's exceptions if the BMC shows something else."""
    reader = Reader(root._conn, patient=True)
    links = reader.links(mapping(root.json).get("Systems") or f"{root.path}Systems")
    paths: dict[str, str] = {}
    for path in filter(None, map(path_of, links)):
        paths.setdefault(path_key(path), path)
    if not paths and isinstance(reader.error, InvalidAnswerError):  # the service itself was read before
        message = f"the BMC answers with {reader.error} instead of its systems; it may be restarting"
        raise BmcError(message, transient=True, reason=Reason.BMC_NOT_READY, pause=0.0)
    if not paths and reader.error is not None and not isinstance(reader.error, ResourceNotFoundError):
        raise reader.error
    return list(paths.values())


def read_identity(system: System) -> Document:
    """Return serial number and UUID of the system; empty if it shows nothing that tells machines apart."""
    identity = _identity(system)
    return {name: value for name, value in (("serial", identity.serial), ("uuid", identity.uuid)) if value is not None}


def check_machine(system: System, access: RedfishAccess, node: Node) -> None:
    """Raise ``BmcError`` if the system belongs to another machine than before.

    DHCP may give a BMC's address to another BMC, and a blade may move to another bay. With one password for all,
    commands would reach the other machine. The comparison uses what the BMC said before, not what a ramdisk has read:
    the two may differ on one and the same machine.
    """
    expected = machine_identity.behind_bmc(node)
    if expected is None or machine_identity.is_same(expected, now := _identity(system)) is not False:
        return
    pairs = (("serial number", now.serial, expected.serial), ("system UUID", now.uuid, expected.uuid))
    differences = "; ".join(f"{name} {value}, was {before}" for name, value, before in pairs if value and before)
    message = f"another machine is at {access.url} than before: {differences}; nothing was done to it"
    raise BmcError(message, transient=False, reason=Reason.BMC_OTHER_MACHINE)


def _identity(system: System) -> machine_identity.MachineIdentity:
    vendor = {"serial_number": system.document.get("SerialNumber")}
    return machine_identity.identify(vendor, system.document.get("UUID"), ())


def read_power(system: Any) -> Power:
    """Return the power state, by the BMC's own words only."""
    state = _power_state(system)
    return _POWERS.get(state, Power.UNKNOWN) if isinstance(state, str) else Power.UNKNOWN


def _power_state(system: Any) -> Any:
    return system.json.get("PowerState")


def set_power(system: System, wanted: Switch) -> None:
    """Set the power state, unless the machine has it already, or is being powered on already.

    A machine that is powering off may be waiting for its operating system, so its power is cut all the same.
    """
    if read_power(system) is wanted or (wanted is Power.ON and _power_state(system) == "PoweringOn"):
        return
    kind = sushy.RESET_FORCE_OFF
    if wanted is Power.ON:
        is_plain = sushy.RESET_ON in system.get_allowed_reset_system_values()
        kind = sushy.RESET_ON if is_plain else sushy.RESET_FORCE_ON
    try:
        _reset(system, kind)
    except (HTTPError, TaskFailedError) as exc:
        if isinstance(exc, AccessError) or is_temporary(exc):
            raise
        system.refresh(force=True)  # it may have had this state already, and only its BMC was late
        if read_power(system) is not wanted:
            raise


def force_off(system: System) -> bool:
    """Send ``ForceOff`` in any state; return False if the BMC has refused it and says that the system is off."""
    try:
        _reset(system, sushy.RESET_FORCE_OFF)
    except AccessError:
        raise
    except HTTPError:
        system.refresh(force=True)
        if read_power(system) is not Power.OFF:
            raise
        return False
    return True


def reboot(system: System, once: Once) -> None:
    """Reset a system that is on; power on one that is off; ``BmcError`` (transient) if it is neither for certain.

    The reset is ``ForceRestart``; other resets are power cycles, or may never happen.
    """
    power = read_power(system)
    if power is Power.OFF:
        set_power(system, Power.ON)
        return
    if power is not Power.ON:
        raise unsettled("reboot", power)
    _reset(system, sushy.RESET_FORCE_RESTART, once)


def soft_power_off(system: System) -> None:
    """Have the operating system shut down, unless the machine is off or powering off."""
    if read_power(system) is not Power.OFF and _power_state(system) != "PoweringOff":
        _reset(system, sushy.RESET_GRACEFUL_SHUTDOWN)


def soft_reboot(system: System, once: Once) -> None:
    """Have the operating system restart."""
    _reset(system, sushy.RESET_GRACEFUL_RESTART, once)


def _reset(system: System, kind: sushy.ResetType, once: Once | None = None) -> None:
    allowed = system.get_allowed_reset_system_values()
    if kind not in allowed:
        raise sushy.exceptions.InvalidParameterValueError(
            parameter="ResetType", value=kind.value, valid_values=spell_values(allowed)
        )
    if once is not None:
        once.sent = True
    system.reset_system(kind)
    if task := str(system._conn.task):
        with contextlib.suppress(SushyError, BmcError):  # it was accepted: the power state tells the rest
            is_running(system._conn, task)


def spell_values(values: Iterable[Any]) -> str:
    """Return sushy's constants in Redfish's spelling, for messages."""
    return ", ".join(sorted(str(constant.value) for constant in values))


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
        mode, present_mode = (None, _KNOWN_MODES.get(str(before))) if mode_matches else (wanted_mode, None)
        system.write_boot(present_mode, target=target, enabled=enabled, mode=mode)
    except sushy.exceptions.BadRequestError:
        # What the BMC does counts, not what it answers.
        if not is_set and not _is_set(_reread_boots(system), target, enabled):
            raise
    boots = _reread_boots(system)
    expected = wanted_mode.value if wanted_mode else before
    if expected in _KNOWN_MODES and not _may_have_mode(boots, expected):
        # The BMC changed the mode by itself, or ignored it.
        system.write_boot(None, target=target, enabled=enabled, mode=_KNOWN_MODES[expected])
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
    system.write_boot(_KNOWN_MODES.get(str(boots[0].get(_MODE))), target=target, enabled=_DISABLED)
    if _ONCE.value in _enabled_values(_reread_boots(system), target):
        raise _ignored_error("that the boot device is cleared", f"{target.value}, {_ONCE.value}")
    return True


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
