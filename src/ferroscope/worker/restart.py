"""The next boot of a machine: the boot device that a start has set, and restarts without a power-off.

A start sets the boot device for one boot. A worker takes it back if the machine has not come to it: otherwise the next
restart, by the machine's owner or by a fault, would boot it into a ramdisk that no inspection awaits. It takes back
only what it has set, and only if the BMC shows it as it was set.

Machines that must not be powered off (``disable_power_off``, a node field of the Bare Metal API since 1.95) are reset
into the ramdisk and out of it. A machine stays "on" during a reset, so its power state does not show whether a BMC that
has accepted the reset carried it out. Other things do:

* the power state, if the BMC shows the moment in which it is not "on";
* what the driver knows (``ShowsRestarts``), such as the time of the last reset and the progress of the boot;
* the boot device for one boot: if the BMC has it no more, the machine has booted from it.

A machine that boots slowly shows none of these for minutes, and a second reset would boot it twice. So a reset is
repeated only if the BMC would have shown the first one, or still has the boot device after its time. Otherwise the
inspection waits for the ramdisk, and its time-out says what was missed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

import structlog

from ferroscope.contracts.bmc import BootDevice, ClearsBootDevice, Power, ShowsRestarts, unsettled
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import FROM_NETWORK, REBOOT, Boot, keeps_boot_order
from ferroscope.core.delivery import Next, Retry
from ferroscope.core.model import Document, Node
from ferroscope.core.states import Event
from ferroscope.worker.attempt import Attempt
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State

_DEVICE_NAMES: Final = {BootDevice.PXE: "the network", BootDevice.CDROM: "virtual media"}
# The intent of a reset out of the ramdisk.
_OUT: Final = "reboot out of the ramdisk"
# A key of the node's ``internal`` document: a reset that the BMC does not show yet.
UNSEEN: Final = "unseen_reset"
# Seconds until a machine is checked again that may be about to reboot.
_RECHECK_SECONDS: Final = 5.0
_IGNORED: Final = "the BMC accepted the reset, but the machine did not restart"

_log = structlog.get_logger(__name__)


def device_of(node: Node, booted: Boot | None) -> BootDevice | None:
    """Return the boot device that such an inspection sets for the next boot; None if it sets none."""
    if booted is Boot.VIRTUAL_MEDIA:
        return BootDevice.CDROM
    return BootDevice.PXE if booted in FROM_NETWORK and not keeps_boot_order(node) else None


def has_next_boot(attempt: Attempt, device: BootDevice) -> bool:
    """Whether the BMC shows this device for one boot; ``BmcError``."""
    shown, persistent = attempt.driver().get_boot_device(attempt.node)
    return shown is device and persistent is not True


def forget_next_boot_quietly(attempt: Attempt, booted: Boot | None) -> bool:
    """Take back the boot device of a boot that has not come; a failure is only noted.

    Return whether the BMC still had it: then the machine has not booted since it was set.
    """
    device = device_of(attempt.node, booted)
    if device is None:
        return False
    try:
        try:
            return _forget(attempt, device)
        except BmcError as exc:
            if not exc.transient or exc.waits:
                raise
            attempt.pause(attempt.services.power_poll_seconds)
            return _forget(attempt, device)
    except BmcError as exc:
        note_left_boot(attempt, booted, exc)
        return False


def note_left_boot(attempt: Attempt, booted: Boot | None, why: BmcError | None = None) -> None:
    """Say that the BMC may still have the boot device of this inspection."""
    device = device_of(attempt.node, booted)
    if device is None:
        return
    _log.warning("could not clear the boot device", node=attempt.node.uuid, error=str(why or ""))
    message = f"the BMC may still have {_DEVICE_NAMES[device]} as its next boot device"
    message += f", which could not be cleared: {why}" if why else "; it does not respond, so the device is not cleared"
    attempt.warn("boot device", message, reason=None if why is None else why.reason)


def _forget(attempt: Attempt, device: BootDevice) -> bool:
    driver, name = attempt.driver(), _DEVICE_NAMES[device]
    if isinstance(driver, ClearsBootDevice):
        if not attempt.command(partial(driver.clear_boot_device, attempt.node, device)):
            return False
        attempt.note("boot device", f"the machine did not boot from {name}; the one-time boot device was cleared")
        return True
    if not has_next_boot(attempt, device):
        return False
    message = f"the BMC still has {name} as its next boot device, and driver {attempt.node.driver} cannot clear it"
    _log.warning("cannot clear the boot device", node=attempt.node.uuid, error=message)
    attempt.warn("boot device", message)
    return True


class RestartSign(Enum):
    """What a BMC shows after a reset. ``NOT``: it would show a restart. ``PENDING``: it still has the boot device."""

    RESTARTED = 1
    NOT = 2
    PENDING = 3
    UNKNOWN = 4


def is_on(attempt: Attempt, subject: str) -> bool:
    """Whether the machine is on; ``BmcError`` (transient) for ``subject`` if that is not certain."""
    power = attempt.driver().get_power(attempt.node)
    if not power.settled:
        attempt.node.power_state = None
        raise unsettled(subject, power)
    return power is Power.ON


def observed_before_reboot(attempt: Attempt, booted: Boot | None = None) -> Document:
    """Return what shows afterwards whether a reset took effect; ``booted``: how the ramdisk will boot, if one does."""
    driver = attempt.driver()
    marks = driver.boot_marks(attempt.node) if isinstance(driver, ShowsRestarts) else {}
    device = device_of(attempt.node, booted)
    return {"marks": marks, "boot_device": device is not None and has_next_boot(attempt, device)}


def reboot(attempt: Attempt, *, confirm: Callable[[], None] = lambda: None, intent: str | None = None) -> None:
    """Reset the machine without powering it off. Not idempotent. ``BmcError``, ``ClaimLostError``."""
    bmc = attempt.driver()
    attempt.reported_power.forget()
    attempt.command(partial(bmc.reboot, attempt.node), confirm=confirm, intent=intent)
    attempt.note("reboot", "commanded a reboot, because disable_power_off is set")
    attempt.node.power_state, attempt.node.target_power_state = Power.ON, None


def reboot_and_look(attempt: Attempt, *, intent: str | None = None) -> None:
    """Reset the machine; ``BmcError`` (transient) if its BMC would show a restart, and shows none in time."""
    before = observed_before_reboot(attempt)
    shows = shows_no_restart(attempt, before)
    reboot(attempt, intent=intent)
    if shows:
        _follow(attempt, None, before)


def shows_no_restart(attempt: Attempt, before: Document) -> bool:
    """Whether the BMC shows that the machine was not restarted since ``before`` was observed; ``BmcError``."""
    return bool(before["marks"]) and _ask_restart_sign(attempt, None, before) is RestartSign.NOT


def follow_into_ramdisk(attempt: Attempt, booted: Boot, before: Document) -> None:
    """Wait until the BMC shows that the machine was restarted; ``BmcError`` (transient) as ``reboot_and_look``."""
    if _follow(attempt, booted, before) is not RestartSign.RESTARTED:
        attempt.node.internal[UNSEEN] = {**before, "inspection": attempt.before.inspection}
        attempt.note("reboot", "the BMC accepted the reset, but does not show a restart yet")


def _follow(attempt: Attempt, booted: Boot | None, before: Document) -> RestartSign:
    drivers, clock = attempt.settings.drivers, attempt.clock
    until = clock.monotonic() + drivers.power_timeout
    went = False
    while True:
        seen, power = RestartSign.UNKNOWN, Power.UNKNOWN
        try:
            power = attempt.driver().get_power(attempt.node)
            went = went or power in (Power.OFF, Power.CHANGING)
            seen = RestartSign.RESTARTED if went else _ask_restart_sign(attempt, booted, before)
        except BmcError as exc:
            if not exc.transient or exc.waits:  # others: it settles after the reset
                raise
        if seen is RestartSign.RESTARTED and (power is Power.ON or not went):
            return seen
        if clock.monotonic() > until:
            break
        attempt.pause(attempt.services.power_poll_seconds)
    if went:
        attempt.node.power_state = power.published
        message = f"still {power} {drivers.power_timeout:g} s after a reset"
        raise BmcError(message, transient=True, reason=Reason.POWER_FAILED)
    if seen is RestartSign.NOT:
        message = f"{_IGNORED}: {drivers.power_timeout:g} s later its boot progress is unchanged"
        raise BmcError(message, transient=True, reason=Reason.NOT_RESTARTED)
    return seen


def _ask_restart_sign(attempt: Attempt, booted: Boot | None, before: Document) -> RestartSign:
    """Ask the BMC what it shows now; ``BmcError``."""
    driver = attempt.driver()
    shown = driver.restarted_since(attempt.node, before["marks"]) if isinstance(driver, ShowsRestarts) else None
    device = device_of(attempt.node, booted)
    waits = not shown and device is not None and has_next_boot(attempt, device)
    if shown or (device is not None and before["boot_device"] and not waits):
        return RestartSign.RESTARTED
    if shown is False:
        return RestartSign.NOT
    return RestartSign.PENDING if waits else RestartSign.UNKNOWN


def earlier_reboot(attempt: Attempt, booted: Boot) -> Next | Retry | None:
    """Return what follows from the reboot that an earlier attempt intended; None if it has to be repeated.

    ``Next``: it took effect, or nothing says that it did not. ``Retry``: the BMC may still be carrying it out.
    """
    before = {"marks": {}, "boot_device": False} | attempt.progress[REBOOT]
    is_off = attempt.driver().get_power(attempt.node) is Power.OFF
    if not is_off and _ask_restart_sign(attempt, booted, before) in (RestartSign.RESTARTED, RestartSign.UNKNOWN):
        return Next(Event.WAIT)
    now = attempt.store.read(lambda tx: tx.now)
    if now < before["at"]:  # the database's clock was set back: start the BMC's time anew
        attempt.intend(REBOOT, seen=before)
        now = attempt.progress[REBOOT]["at"]
    left = attempt.progress[REBOOT]["at"] + attempt.settings.drivers.power_timeout - now
    if left <= 0:
        return None
    message = "waiting for the BMC to carry out an earlier reset"
    return Retry(min(left, _RECHECK_SECONDS), Reason.POWER_FAILED, message, counted=False)


def missed_restart(attempt: Attempt, booted: Boot | None) -> str | None:
    """Return the message about a reset into the ramdisk that the BMC has not carried out; None if it may have."""
    before = _unseen_reboot(attempt)
    if before is None:
        return None
    try:
        seen = _ask_restart_sign(attempt, booted, before)
    except BmcError:
        return None
    if seen is RestartSign.PENDING:
        return f"{_IGNORED}: the boot device that was set for its next boot is still set"
    return f"{_IGNORED}: its boot progress is unchanged" if seen is RestartSign.NOT else None


def was_seen(attempt: Attempt) -> bool:
    """Whether the BMC has shown that the machine was restarted for this inspection, before it was waited for."""
    return attempt.before.state is State.WAITING and _unseen_reboot(attempt) is None


def _unseen_reboot(attempt: Attempt) -> Document | None:
    before = attempt.before.internal.get(UNSEEN)
    return before if isinstance(before, dict) and before.get("inspection") == attempt.before.inspection else None


def leave_ramdisk_quietly(attempt: Attempt) -> None:
    """Reboot the machine out of its ramdisk, at most once; a failure is only noted.

    A machine that no attempt has booted yet is left alone: it may be running its workload.
    """
    if attempt.has_intended(_OUT) or (attempt.before.state is State.STARTING and not attempt.has_intended(REBOOT)):
        return
    try:
        attempt.intend(_OUT)
        reboot_and_look(attempt, intent=_OUT)
    except BmcError as exc:
        if exc.waits:
            raise
        _log.warning("could not reboot", node=attempt.node.uuid, error=str(exc))
        attempt.warn("reboot", f"could not reboot the machine out of the ramdisk: {exc}", reason=exc.reason)
