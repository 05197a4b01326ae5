"""How tasks bring a machine to its ramdisk, and take away afterwards what was put in for that.

What was inserted is noted on the node, so that whoever ends the inspection (finish, abort,
time-out, a failed start) takes out just that. Taking it out never fails an inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from ferroscope.contracts.bmc import BootDevice, Image, OutOfBand, Power, RamdiskBoot, ResetTime
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import Boot, BootError, callback_url, choose
from ferroscope.core.delivery import Next, Retry
from ferroscope.core.model import Document, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event, State
from ferroscope.worker.context import TaskContext

# On the node, in what drivers note for themselves; the first one has the Bare Metal service's name.
MANAGED: Final = "inspector_manage_boot"
_INSERTED: Final = "inserted_ramdisk"
_INSERT: Final = "insert ramdisk"

_log = structlog.get_logger(__name__)


def how(context: TaskContext) -> Boot:
    """Return how this inspection boots its machine; ``BmcError`` (permanent) where it cannot."""
    driver = context.known_driver
    try:
        return choose(
            context.node,
            drivers=context.settings.drivers.enabled,
            manage_boot=context.inspection is None or context.inspection.manage_boot,
            iso=_iso(context),
            boots_itself=isinstance(driver, RamdiskBoot),
            knows_hardware=isinstance(driver, OutOfBand),
            require_managed=context.settings.inspector.require_managed_boot,
        )
    except BootError as exc:
        raise BmcError(str(exc), transient=False, reason=Reason.UNMANAGED_BOOT) from None


def touches_power(context: TaskContext) -> bool:
    """Whether the machine's power is ours to switch in this inspection."""
    try:
        return how(context) in (Boot.NETWORK, Boot.VIRTUAL_MEDIA)
    except BmcError:  # it never got further than that
        return context.inspection is None or context.inspection.manage_boot


def note(context: TaskContext, way: Boot) -> None:
    """Note on the node how it is booted, and what will be in its drives; also for a rerun that does neither."""
    context.node.internal[MANAGED] = way is Boot.VIRTUAL_MEDIA
    if way is Boot.VIRTUAL_MEDIA:
        image = _image(context)
        context.node.internal[_INSERTED] = {"iso": image.iso, "parameters": image.parameters}


def insert(context: TaskContext) -> None:
    """Put the ramdisk in and let the next boot come from it; the intent is recorded before."""
    driver, image = context.driver(), _image(context)
    if not isinstance(driver, RamdiskBoot):
        raise TypeError(f"{type(driver).__name__} cannot boot a ramdisk")
    context.intend(_INSERT)
    remark = context.command(partial(driver.insert_ramdisk, context.node, image))
    context.note("virtual media", f"inserted {image.iso}; the next boot comes from it")
    if not image.parameters:
        remark = "no callback URL configured: set [inspector] callback_endpoint_override, or the image must have it"
    if remark:
        context.note("virtual media", remark, severity=Severity.WARNING)


def eject_quietly(context: TaskContext) -> None:
    """Take out what an inspection put in; a failure is noted and no more."""
    image = _inserted(context)
    if image is None:
        return
    try:
        try:
            _eject(context, image)
        except BmcError as exc:
            if not exc.transient:
                raise
            context.pause(context.settings.drivers.power_poll_interval)
            _eject(context, image)
    except BmcError as exc:
        _log.warning("could not eject the ramdisk", node=context.node.uuid, error=str(exc))
        message = f"could not take the ramdisk out: {exc}"
        context.note("virtual media", message, severity=Severity.WARNING, reason=exc.reason)


def _eject(context: TaskContext, image: Image) -> None:
    driver = context.driver()
    if isinstance(driver, RamdiskBoot) and context.command(partial(driver.eject_ramdisk, context.node, image)):
        context.note("virtual media", "took the ramdisk out")
    context.node.internal.pop(_INSERTED, None)


def eject_leftover(context: TaskContext) -> None:
    """Take out what an earlier inspection could not take out, before the machine boots from elsewhere."""
    if _INSERTED in context.node.internal:
        eject_quietly(context)


def _inserted(context: TaskContext) -> Image | None:
    """Return what is in, as far as anybody noted; what a start may have inserted that never came to its end."""
    noted = context.node.internal.get(_INSERTED)
    if isinstance(noted, dict):
        return Image(iso=str(noted.get("iso", "")), parameters=str(noted.get("parameters", "")))
    try:
        return _image(context) if how(context) is Boot.VIRTUAL_MEDIA else None
    except BmcError:
        return None


def _iso(context: TaskContext) -> str:
    own = context.node.driver_info.get("deploy_iso")
    return own if isinstance(own, str) and own else context.settings.inspector.ramdisk_iso


def _image(context: TaskContext) -> Image:
    base = context.settings.callback_base
    try:
        callback_url(base)
    except ValueError:
        return Image(iso=_iso(context))
    return Image(iso=_iso(context), parameters=f"{base.rstrip('/')}/v1/ramdisk_parameters/{context.node.uuid}/disk.img")


# Machines that must not be powered off (``disable_power_off``): rebooted into the ramdisk, and out of it.
#
# A power state tells whether an earlier attempt's power-on took effect; of a reboot it tells nothing.
# The boot device does: it is set for one boot just before, so where the BMC still has it, the machine
# has not booted from it yet. But it may be about to: a BMC takes seconds to carry a reset out, and a
# second one in that time would let the machine boot twice, the second time from disk. So a BMC is given
# its time before anything is repeated, and asked when it has last reset the machine, if it can tell.
# Source: the node field of that name in the Bare Metal API, version 1.95.

REBOOT: Final = "reboot"
_OUT: Final = "reboot out of the ramdisk"
# Seconds until the next look at a machine that may be about to reboot.
_LOOK_AGAIN: Final = 5.0


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


# Power as tasks use it: command, then read until it is so; the BMC's word alone is not enough.

# Seconds between two looks at a power state that takes its time: a real BMC is not asked more often.
_SLOWEST_POLL: Final = 2.0


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
    if not touches_power(context):
        return
    if stays_on(context.node):
        eject_quietly(context)  # before it boots again
        if context.settings.inspector.power_off:
            leave_ramdisk_quietly(context)
        return
    if not context.settings.inspector.power_off or _powered_off(context):
        eject_quietly(context)


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
