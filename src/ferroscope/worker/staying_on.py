"""Machines that must not be powered off (``disable_power_off``): rebooted into the ramdisk, and out of it.

A power state tells whether an earlier attempt's power-on took effect; of a reboot it tells nothing.
The boot device does: it is set for one boot just before, so where the BMC still has it, the machine
has not booted from it yet. But it may be about to: a BMC takes seconds to carry a reset out, and a
second one in that time would let the machine boot twice, the second time from disk. So a BMC is given
its time before anything is repeated, and asked when it has last reset the machine, if it can tell.
Source: the node field of that name in the Bare Metal API, version 1.95.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from ferroscope.contracts.bmc import BootDevice, Power, ResetTime
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import Boot
from ferroscope.core.delivery import Next, Retry
from ferroscope.core.model import Document, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event, State
from ferroscope.worker.context import TaskContext

REBOOT: Final = "reboot"
_OUT: Final = "reboot out of the ramdisk"
# Seconds until the next look at a machine that may be about to reboot.
_LOOK_AGAIN: Final = 5.0

_log = structlog.get_logger(__name__)


def stays_on(node: Node) -> bool:
    """Whether nobody may power this machine off."""
    return bool(node.attributes.get("disable_power_off"))


def reboot(context: TaskContext, *, confirm: Callable[[], None] = lambda: None) -> None:
    """Let the machine boot anew without being off in between. Not idempotent. ``BmcError``, ``ClaimLostError``."""
    bmc = context.driver()
    context.command(partial(bmc.reboot, context.node), confirm=confirm)
    context.note("reboot", "commanded a reboot, for it must not be powered off")
    context.node.power_state, context.node.target_power_state = Power.ON, None


def seen(context: TaskContext) -> Document:
    """Return what tells afterwards whether a reboot took effect."""
    driver = context.driver()
    return {"last_reset": driver.last_reset(context.node) if isinstance(driver, ResetTime) else None}


def earlier_reboot(context: TaskContext, way: Boot) -> Next | Retry | None:
    """Return what follows from an earlier attempt's reboot; None where it may be, or has to be, repeated.

    ``Next``: it took effect, as far as anybody can tell. ``Retry``: the BMC may still be at it.
    """
    if not context.intended(REBOOT):
        return None
    before = context.progress[REBOOT]
    if _has_rebooted(context, way, before.get("last_reset")):
        return Next(Event.WAIT)
    now = context.store.read(lambda tx: tx.now)
    if now < before["at"]:  # the database's clock was set back: the BMC has its time from now on
        context.intend(REBOOT, seen=before)
        now = context.progress[REBOOT]["at"]
    left = context.progress[REBOOT]["at"] + context.settings.drivers.power_timeout - now
    if left <= 0:
        return None
    return Retry(
        min(left, _LOOK_AGAIN), Reason.POWER_FAILED, "the BMC may still carry out an earlier reset", counted=False
    )


def _has_rebooted(context: TaskContext, way: Boot, last_reset: str | None) -> bool:
    """Whether the machine was reset since then; a BMC that says nothing at all counts as yes."""
    latest = seen(context)["last_reset"]
    if latest is not None and last_reset is not None and latest != last_reset:
        return True
    device, persistent = context.driver().get_boot_device(context.node)
    if device is None:
        return last_reset is None or latest is None
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
