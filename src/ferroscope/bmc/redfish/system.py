"""A Redfish system: which one it is, its power, and the tasks that carry out its commands later.

The functions raise sushy's exceptions and ``BmcError``; callers handle deadlines, sessions and retries. All are
idempotent, except for the restarts, which are sent once.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import sushy
from sushy.exceptions import AccessError, BadRequestError, HTTPError, ResourceNotFoundError, SushyError
from sushy.resources.system import system as sushy_system

from ferroscope.bmc.redfish.failures import InvalidAnswerError, TaskFailedError, is_partial, is_temporary
from ferroscope.bmc.redfish.resources import Lenient, Reader, path_key, path_of
from ferroscope.contracts.bmc import Power, Switch, unsettled
from ferroscope.contracts.errors import BmcError
from ferroscope.core import json_safety
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.values import many, one_line
from ferroscope.hardware import machine_identity
from ferroscope.hardware.parts import mapping, mappings, text
from ferroscope.remote.calls import Once

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
_RUNNING: Final = frozenset({"new", "starting", "running", "pending", "stopping", "suspended", "cancelling", "service"})
_FAILED: Final = frozenset({"exception", "killed", "cancelled", "interrupted"})
_MAX_SHOWN_CHARACTERS: Final = 200


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

    def set_system_boot_options(self, **options: Any) -> None:
        """Write boot options; to the system itself if the link to its settings leads nowhere."""
        try:
            super().set_system_boot_options(**options)
        except (AttributeError, TypeError, ResourceNotFoundError):
            if self._settings is None:
                raise
            self._settings = None
            super().set_system_boot_options(**options)
        except BadRequestError as exc:
            matched = _FUTURE.search(str(exc.body))
            if matched is None or self.settings:
                raise
            self._future = matched[1]
            self._settings = SimpleNamespace(resource_uri=self._future)
            super().set_system_boot_options(**options)


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


def is_running(connector: Any, monitor: str) -> bool:
    """Whether a task goes on; ``TaskFailedError`` if it has failed, sushy's exceptions if that is unknown.

    The task monitor answers 202 until the task has ended, and then as the command would have been answered. Some
    services lead to the task instead, with its ``TaskState``. Source: DSP0266, 13.5.6.
    """
    try:
        answer = connector.get(path=monitor)
    except InvalidAnswerError:  # an empty one
        return bool(connector.status == HTTPStatus.ACCEPTED)
    except AccessError:
        raise
    except HTTPError as exc:
        if exc.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):  # it has ended, and is forgotten
            return False
        if is_temporary(exc):
            raise
        raise TaskFailedError(one_line(str(exc.detail or f"HTTP {exc.status_code}"), _MAX_SHOWN_CHARACTERS)) from None
    task = mapping(json_safety.decode(answer.content))
    state = str(task.get("TaskState")).lower()
    if state in _FAILED:
        texts = [words for message in mappings(task.get("Messages")) if (words := text(message.get("Message")))]
        raise TaskFailedError(one_line(texts[-1] if texts else state, _MAX_SHOWN_CHARACTERS))
    return state in _RUNNING or (answer.status_code == HTTPStatus.ACCEPTED and "TaskState" not in task)
