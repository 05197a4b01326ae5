"""The boot device of the next boot, which a start has set for one boot: taken back if the machine has not come to it.

Otherwise the next restart of the machine, by its owner or by a fault, would boot it into a ramdisk that nobody awaits.
Only what we set is taken back, and only if the BMC shows it as we set it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog

from ferroscope.contracts.bmc import BootDevice, ClearsBootDevice
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import FROM_NETWORK, Boot, keeps_boot_order
from ferroscope.core.model import Node, Severity
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.services import Services

_STEP: Final = "boot device"
_NAMES: Final = {BootDevice.PXE: "the network", BootDevice.CDROM: "virtual media"}

_log = structlog.get_logger(__name__)


def device_of(node: Node, booted: Boot | None) -> BootDevice | None:
    """Return the device that is set for the next boot of such an inspection; None if none is."""
    if booted is Boot.VIRTUAL_MEDIA:
        return BootDevice.CDROM
    return BootDevice.PXE if booted in FROM_NETWORK and not keeps_boot_order(node) else None


def has_next_boot(attempt: Attempt, device: BootDevice) -> bool:
    """Whether the BMC shows this device for one boot; ``BmcError``."""
    shown, persistent = attempt.driver().get_boot_device(attempt.node)
    return shown is device and persistent is not True


def forget_next_boot_quietly(attempt: Attempt, journal: Journal, services: Services, booted: Boot | None) -> bool:
    """Take back the boot device of a boot that has not come; a failure is only noted.

    Return whether the BMC still had it: then the machine has not booted since it was set.
    """
    device = device_of(attempt.node, booted)
    if device is None:
        return False
    try:
        try:
            return _forget(attempt, journal, device)
        except BmcError as exc:
            if not exc.transient or exc.waits:
                raise
            attempt.pause(services.power_poll_seconds)
            return _forget(attempt, journal, device)
    except BmcError as exc:
        note_left_boot(attempt, journal, booted, exc)
        return False


def note_left_boot(attempt: Attempt, journal: Journal, booted: Boot | None, why: BmcError | None = None) -> None:
    """Say that the BMC may still have the boot device of this inspection."""
    device = device_of(attempt.node, booted)
    if device is None:
        return
    _log.warning("could not clear the boot device", node=attempt.node.uuid, error=str(why or ""))
    message = f"the BMC may still have {_NAMES[device]} as its next boot device"
    message += f", which could not be cleared: {why}" if why else "; it does not respond, so the device is not cleared"
    reason = None if why is None else why.reason
    journal.note(_STEP, message, severity=Severity.WARNING, reason=reason)


def _forget(attempt: Attempt, journal: Journal, device: BootDevice) -> bool:
    driver, name = attempt.driver(), _NAMES[device]
    if isinstance(driver, ClearsBootDevice):
        if not attempt.command(partial(driver.clear_boot_device, attempt.node, device)):
            return False
        journal.note(_STEP, f"the machine did not boot from {name}; the one-time boot device was cleared")
        return True
    if not has_next_boot(attempt, device):
        return False
    message = f"the BMC still has {name} as its next boot device, and driver {attempt.node.driver} cannot clear it"
    _log.warning("cannot clear the boot device", node=attempt.node.uuid, error=message)
    journal.note(_STEP, message, severity=Severity.WARNING)
    return True
