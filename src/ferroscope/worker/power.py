"""Power as tasks use it: command, then read until it is so; the BMC's word alone is not enough."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Severity
from ferroscope.core.reasons import Reason
from ferroscope.worker import boot
from ferroscope.worker.context import TaskContext
from ferroscope.worker.staying_on import leave_ramdisk_quietly, stays_on

# Seconds between two looks at a power state that takes its time: a real BMC is not asked more often.
_SLOWEST_POLL: Final = 2.0

_log = structlog.get_logger(__name__)


def ensure_power(context: TaskContext, power: Power, *, confirm: Callable[[], None] = lambda: None) -> None:
    """Bring the machine to ``power``; does nothing where it is so already.

    ``confirm`` is called just before the command and may raise. Raises ``BmcError`` (transient,
    when the state did not follow in time; permanent, when it must not be), ``StoppedError`` and ``ClaimLostError``.
    """
    bmc = context.driver()
    node, drivers = context.node, context.settings.drivers
    if bmc.get_power(node) is not power:
        if power is Power.OFF and stays_on(node):
            message = "it must not be powered off: disable_power_off is set on the node"
            raise BmcError(message, transient=False, reason=Reason.POWER_OFF_DISABLED)
        context.command(partial(bmc.set_power, node, power), confirm=confirm)
        context.note(str(power), f"commanded {power}")
        node.power_state = power  # all that a driver without a BMC can go by
        deadline = context.clock.monotonic() + drivers.power_timeout
        pause = drivers.power_poll_interval
        while (actual := bmc.get_power(node)) is not power:
            if context.clock.monotonic() > deadline:
                node.power_state = actual
                message = f"still {actual} {drivers.power_timeout:g} s after {power}"
                raise BmcError(message, transient=True, reason=Reason.POWER_FAILED)
            context.pause(pause)
            pause = min(pause * 1.5, max(drivers.power_poll_interval, _SLOWEST_POLL))
    node.power_state = power
    node.target_power_state = None


def power_off_quietly(context: TaskContext) -> None:
    """Power off where that is wanted, or reboot where it must not be off, and take out what booted the ramdisk.

    A failure is noted, because what matters has happened before.
    """
    if not boot.touches_power(context):
        return
    if stays_on(context.node):
        boot.eject_quietly(context)  # before it boots again
        if context.settings.inspector.power_off:
            leave_ramdisk_quietly(context)
        return
    if not context.settings.inspector.power_off or _powered_off(context):
        boot.eject_quietly(context)


def _powered_off(context: TaskContext) -> bool:
    """Power off, in two tries; return whether the BMC answers at all."""
    try:
        try:
            ensure_power(context, Power.OFF)
        except BmcError as exc:
            if not exc.transient:
                raise
            context.pause(context.settings.drivers.power_poll_interval)
            ensure_power(context, Power.OFF)
    except BmcError as exc:
        _log.warning("could not power off", node=context.node.uuid, error=str(exc))
        context.note("power off", f"could not power off: {exc}", severity=Severity.WARNING, reason=exc.reason)
        return exc.reason is Reason.POWER_FAILED
    return True


def boot_from_network(context: TaskContext) -> None:
    """Let the next boot, and only that, come from the network."""
    bmc = context.driver()
    context.command(partial(bmc.set_boot_device, context.node, BootDevice.PXE, persistent=False))
    context.note("boot device", "the next boot comes from the network")
