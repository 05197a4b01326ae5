"""Commands to a Redfish system, with sushy; each function is idempotent, except for the restarts, which are sent once.

They raise sushy's exceptions; ``failures.translate`` turns those into ``BmcError``. Deadlines, sessions and retries are
handled by the caller.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import sushy

from ferroscope.bmc.redfish import attached_media as attached_media
from ferroscope.bmc.redfish import health as health
from ferroscope.bmc.redfish import identity as identity
from ferroscope.bmc.redfish import inventory as inventory
from ferroscope.bmc.redfish import media as media
from ferroscope.bmc.redfish.boot import boot_device as boot_device
from ferroscope.bmc.redfish.boot import clear_boot_device as clear_boot_device
from ferroscope.bmc.redfish.boot import set_boot_device as set_boot_device
from ferroscope.bmc.redfish.failures import InvalidAnswerError, TaskFailedError, is_temporary
from ferroscope.bmc.redfish.info import Access
from ferroscope.bmc.redfish.reader import Reader, path_key, path_of
from ferroscope.bmc.redfish.resources import spell_values, system_of
from ferroscope.bmc.redfish.restarts import boot_marks as boot_marks
from ferroscope.bmc.redfish.restarts import is_booting as is_booting
from ferroscope.bmc.redfish.restarts import restarted_since as restarted_since
from ferroscope.bmc.redfish.tasks import is_running
from ferroscope.contracts.bmc import Power, Switch, unsettled
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from ferroscope.core.values import many
from ferroscope.hardware.parts import mapping
from ferroscope.remote.retry import Once

# The values of PowerState; one that is paused has power. All others, among them null and what is no text, are unknown.
_POWERS: Final = {
    "On": Power.ON,
    "Paused": Power.ON,
    "Off": Power.OFF,
    "PoweringOn": Power.CHANGING,
    "PoweringOff": Power.CHANGING,
}
# How many systems a message lists.
_MAX_LISTED_SYSTEMS: Final = 8


def system(root: Any, access: Access) -> Any:
    """Return the node's system; the only one if the node names none."""
    if access.system is not None:
        return system_of(root, access.system)
    paths = systems(root)
    if len(paths) == 1:
        return system_of(root, paths[0])
    if not paths:  # redhat-performance/jetlag#778: for a while after a restart
        message = f"the BMC at {access.url} lists no system; it may be restarting"
        raise BmcError(message, transient=True, reason=Reason.BMC_SYSTEM_UNCLEAR, pause=0.0)
    listed = ", ".join(paths[:_MAX_LISTED_SYSTEMS]) + (", ..." if len(paths) > _MAX_LISTED_SYSTEMS else "")
    message = f"the BMC at {access.url} has {many(len(paths), 'system')}; set redfish_system_id to one of: {listed}"
    raise BmcError(message, transient=False, reason=Reason.BMC_SYSTEM_UNCLEAR)


def systems(root: Any) -> list[str]:
    """Return the paths of all systems; ``BmcError`` and sushy's exceptions if the BMC shows something else."""
    reader = Reader(root._conn, patient=True)
    links = reader.links(mapping(root.json).get("Systems") or f"{root.path}Systems")
    paths: dict[str, str] = {}
    for path in filter(None, map(path_of, links)):
        paths.setdefault(path_key(path), path)
    if not paths and isinstance(reader.error, InvalidAnswerError):  # the service itself was read before
        message = f"the BMC answers with {reader.error.content} instead of its systems; it may be restarting"
        raise BmcError(message, transient=True, reason=Reason.BMC_NOT_READY, pause=0.0)
    if not paths and reader.error is not None and not isinstance(reader.error, sushy.exceptions.ResourceNotFoundError):
        raise reader.error
    return list(paths.values())


def power(system: Any) -> Power:
    """Return its power state, by the words of the BMC and nothing else."""
    state = _power_state(system)
    return _POWERS.get(state, Power.UNKNOWN) if isinstance(state, str) else Power.UNKNOWN


def _power_state(system: Any) -> Any:
    return system.json.get("PowerState")


def set_power(system: Any, wanted: Switch) -> None:
    """Set the power state, unless the machine is in it, or is being powered on already.

    One that is powering off may be waiting for its operating system, so its power is cut all the same.
    """
    if power(system) is wanted or (wanted is Power.ON and _power_state(system) == "PoweringOn"):
        return
    kind = sushy.RESET_FORCE_OFF
    if wanted is Power.ON:
        is_plain = sushy.RESET_ON in system.get_allowed_reset_system_values()
        kind = sushy.RESET_ON if is_plain else sushy.RESET_FORCE_ON
    try:
        _reset(system, kind)
    except (sushy.exceptions.HTTPError, TaskFailedError) as exc:
        if isinstance(exc, sushy.exceptions.AccessError) or is_temporary(exc):
            raise
        system.refresh(force=True)  # it may have been in this state, and only its BMC was late
        if power(system) is not wanted:
            raise


def force_off(system: Any) -> bool:
    """Send ``ForceOff`` in any state; return False if the BMC has refused it and says that the system is off."""
    try:
        _reset(system, sushy.RESET_FORCE_OFF)
    except sushy.exceptions.AccessError:
        raise
    except sushy.exceptions.HTTPError:
        system.refresh(force=True)
        if power(system) is not Power.OFF:
            raise
        return False
    return True


def reboot(system: Any, once: Once) -> None:
    """Restart a system that is on; power on one that is off; ``BmcError`` (transient) if it is neither for certain."""
    now = power(system)
    if now is Power.OFF:
        set_power(system, Power.ON)
        return
    if now is not Power.ON:
        raise unsettled("reboot", now)
    _reset(system, sushy.RESET_FORCE_RESTART, once)


def soft_power_off(system: Any) -> None:
    """Have the operating system shut down, unless the machine is off or powering off."""
    if power(system) is not Power.OFF and _power_state(system) != "PoweringOff":
        _reset(system, sushy.RESET_GRACEFUL_SHUTDOWN)


def soft_reboot(system: Any, once: Once) -> None:
    """Have the operating system restart."""
    _reset(system, sushy.RESET_GRACEFUL_RESTART, once)


def _reset(system: Any, kind: sushy.ResetType, once: Once | None = None) -> None:
    allowed = system.get_allowed_reset_system_values()
    if kind not in allowed:
        raise sushy.exceptions.InvalidParameterValueError(
            parameter="ResetType", value=kind.value, valid_values=spell_values(allowed)
        )
    if once is not None:
        once.sent = True
    system.reset_system(kind)
    if task := str(system._conn.task):
        with contextlib.suppress(sushy.exceptions.SushyError, BmcError):  # it was accepted: power says the rest
            is_running(system._conn, task)
