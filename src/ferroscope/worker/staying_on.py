"""Machines that must not be powered off (``disable_power_off``): rebooted into the ramdisk, and out of it.

A power state tells whether an earlier attempt's power-on took effect; of a reboot it tells nothing.
The boot device does: it is set for one boot just before, so where the BMC still has it, the machine
has not booted from it yet, and another reboot interrupts nothing. Source: the node field of that
name in the Bare Metal API, version 1.95.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.domain.boot import Boot
from ferroscope.domain.model import Node, Severity
from ferroscope.domain.states import State
from ferroscope.ports.bmc import BootDevice, Power
from ferroscope.ports.errors import BmcError
from ferroscope.worker.context import TaskContext

REBOOT: Final = "reboot"
_OUT: Final = "reboot out of the ramdisk"

_log = structlog.get_logger(__name__)


def stays_on(node: Node) -> bool:
    """Whether nobody may power this machine off."""
    return bool(node.attributes.get("disable_power_off"))


def reboot(context: TaskContext, *, confirm: Callable[[], None] = lambda: None) -> None:
    """Let the machine boot anew without being off in between. Not idempotent. ``BmcError``, ``ClaimLostError``."""
    bmc = context.driver()
    context.confirm()
    confirm()
    bmc.reboot(context.node)
    context.note("reboot", "commanded a reboot, for it must not be powered off")
    context.node.power_state, context.node.target_power_state = Power.ON, None


def has_rebooted(context: TaskContext, way: Boot) -> bool:
    """Whether an earlier attempt's reboot took effect; a BMC that does not say counts as yes."""
    if not context.intended(REBOOT):
        return False
    device, persistent = context.driver().get_boot_device(context.node)
    wanted = BootDevice.CDROM if way is Boot.VIRTUAL_MEDIA else BootDevice.PXE
    return device is not wanted or persistent is True


def leave_ramdisk_quietly(context: TaskContext) -> None:
    """Reboot the machine out of its ramdisk, once at the most; a failure is noted, for what matters is done.

    A machine that no attempt has booted yet is left alone: it may be at work.
    """
    if context.intended(_OUT) or (context.before.state is State.STARTING and not context.intended(REBOOT)):
        return
    try:
        context.intend(_OUT)
        reboot(context)
    except BmcError as exc:
        _log.warning("could not reboot", node=context.node.uuid, error=str(exc))
        message = f"could not reboot it out of the ramdisk: {exc}"
        context.note("reboot", message, severity=Severity.WARNING, reason=exc.reason)
