"""Booting a machine into the ramdisk and out of it: virtual media, boot device, power, reboot.

Inserted virtual media is recorded on the node, so that the request that ends the inspection (finish, abort, time-out, a
failed start) ejects exactly that. A failure to eject never fails an inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from ferroscope.boot_config import ipxe
from ferroscope.contracts.bmc import BootDevice, Image, Power, RamdiskBoot, ResetTime, Switch, unsettled
from ferroscope.contracts.errors import BmcError
from ferroscope.core import callback_secret
from ferroscope.core.boot import POWERED, Boot, BootError, callback_url
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.delivery import Next, Retry
from ferroscope.core.interfaces import NOOP
from ferroscope.core.model import Document, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event, State
from ferroscope.core.values import without_secrets
from ferroscope.core.virtual_media import kept
from ferroscope.worker.context import TaskContext

# Keys of the node's ``internal`` document; the first one has the same name in Ironic.
MANAGED: Final = "inspector_manage_boot"
_INSERTED: Final = "inserted_ramdisk"
# The token that a lookup has given away; see ``api.baremetal.agent``.
_AGENT: Final = "agent"
# Masked in answers, because the URL contains a key.
_PARAMETERS: Final = "parameters_secret_url"
_INSERT: Final = "insert ramdisk"
_OFF: Final = "power off a machine that was on"
POWER_ON: Final = "power on"

_log = structlog.get_logger(__name__)


def how(context: TaskContext) -> Boot:
    """Return how this inspection boots its machine; a permanent ``BmcError`` if it cannot."""
    manage_boot = context.inspection is None or context.inspection.manage_boot
    try:
        return ipxe.way(context.settings, context.node, context.known_driver, manage_boot=manage_boot)
    except BootError as exc:
        raise BmcError(str(exc), transient=False, reason=Reason.UNMANAGED_BOOT) from None


def touches_power(context: TaskContext) -> bool:
    """Whether this inspection may switch the machine's power."""
    try:
        return how(context) in POWERED
    except BmcError:  # the start failed here, too
        return context.inspection is None or context.inspection.manage_boot


def note(context: TaskContext, booted: Boot) -> None:
    """Record on the node how it is booted and what will be inserted; also for a rerun that does neither."""
    context.node.internal[MANAGED] = booted in (Boot.VIRTUAL_MEDIA, Boot.IPXE)
    if booted is Boot.VIRTUAL_MEDIA:
        image = _image(context)
        context.node.internal[_INSERTED] = {"iso": image.iso, _PARAMETERS: image.parameters}


def insert(context: TaskContext) -> None:
    """Insert the ramdisk and boot from it next time; the intent is recorded before."""
    driver, image = context.driver(), _image(context)
    if not isinstance(driver, RamdiskBoot):
        raise TypeError(f"{type(driver).__name__} cannot boot a ramdisk")
    context.intend(_INSERT)
    remark = context.attempt.command(partial(driver.insert_ramdisk, context.node, image), intent=_INSERT)
    context.note("virtual media", f"inserted {without_secrets(image.iso)}; the next boot is from virtual media")
    if not image.parameters:
        remark = (
            "no callback URL configured: set [inspector] callback_endpoint_override, unless the image has one built in"
        )
    if remark:
        context.note("virtual media", remark, severity=Severity.WARNING)
    carries = image.parameters and not remark and ipxe.carries_secret(context.settings)
    _delivered(context, Delivery.VIRTUAL_MEDIA if carries else Delivery.NONE)


def check_image(context: TaskContext) -> None:
    """Say before anything is done what is wrong with the image; a permanent ``BmcError`` if no BMC could boot it."""
    flaw = context.services.images.flaw(_image(context).iso)
    if flaw is None:
        return
    if flaw.certain:
        raise BmcError(flaw.message, transient=False, reason=flaw.reason)
    context.note("virtual media", flaw.message, severity=Severity.WARNING, reason=flaw.reason)


def insert_nothing(context: TaskContext) -> None:
    """The machine boots from the network, even if virtual media was planned."""
    inspection = context.inspection
    if inspection is not None and inspection.secret_delivery in (Delivery.PLANNED, Delivery.VIRTUAL_MEDIA):
        _delivered(context, Delivery.NONE)


def note_script(context: TaskContext) -> None:
    """Say by which files the machine boots, or that nobody can ask for its script."""
    files = ipxe.files(context.settings, context.node)
    if files is not None:
        kernel = without_secrets(files.kernel)
        context.note("ipxe", f"the next boot is from the network, by a script of this service with the kernel {kernel}")
    if not (context.ports or context.port_changes.added):
        message = "the node has no port: its script is served by MAC address, so add one, or its machine cannot get it"
        context.note("ipxe", message, severity=Severity.WARNING, reason=Reason.UNMANAGED_BOOT)


def forget_agent(context: TaskContext) -> None:
    """Let the ramdisk that is about to boot get a token of its own, if an earlier boot of this inspection got one.

    The copies forget it, too: the commit must not remove what the new ramdisk gets meanwhile.
    """
    known = context.before.internal.get(_AGENT)
    if isinstance(known, dict) and known.get("inspection") == context.before.inspection:
        for node in (context.before, context.node):
            node.internal.pop(_AGENT, None)
        context.forgotten = _AGENT


def _delivered(context: TaskContext, delivery: Delivery) -> None:
    """Record how the machine gets its secret, together with the intent to power it on."""
    inspection = context.inspection
    if inspection is not None and inspection.secret is not None and inspection.secret_delivery != delivery:
        context.secret_delivery = delivery


def eject_quietly(context: TaskContext) -> None:
    """Eject what an inspection inserted; a failure is only noted."""
    image = _inserted(context)
    if image is None:
        return
    try:
        try:
            _eject(context, image)
        except BmcError as exc:
            if not exc.transient:
                raise
            context.attempt.pause(context.settings.drivers.power_poll_interval)
            _eject(context, image)
    except BmcError as exc:
        _log.warning("could not eject the ramdisk", node=context.node.uuid, error=str(exc))
        message = f"could not eject the ramdisk: {exc}"
        context.note("virtual media", message, severity=Severity.WARNING, reason=exc.reason)


def _eject(context: TaskContext, image: Image) -> None:
    driver = context.driver()
    if isinstance(driver, RamdiskBoot) and context.attempt.command(partial(driver.eject_ramdisk, context.node, image)):
        context.note("virtual media", "ejected the ramdisk")
    context.node.internal.pop(_INSERTED, None)


def power_off_first(context: TaskContext) -> None:
    """Power the machine off before the ramdisk boots; remember that it was on, for a start that fails."""
    if disables_power_off(context.node):
        return
    power = context.recent_power() or context.driver().get_power(context.node)
    if power is Power.ON and not context.attempt.intended(_OFF):
        context.intend(_OFF)
    ensure_power(context, Power.OFF, known=power)


def undo_start_quietly(context: TaskContext) -> None:
    """After a start that failed: take back what it did to the machine, and leave alone what it did not touch.

    A machine that it may have booted is not left in the ramdisk; one that it has powered off is powered on again.
    """
    if context.attempt.intended(POWER_ON) or context.attempt.intended(REBOOT):
        power_off_quietly(context)
    else:
        eject_quietly(context)
    if not context.attempt.intended(_OFF):
        return
    try:
        power = context.driver().get_power(context.node)
        ensure_power(context, Power.ON, known=power)
        if power is not Power.ON:
            context.note("power on", "the start failed, so the machine, which was on before, is on again")
    except BmcError as exc:
        if exc.waits:
            raise
        message = f"the machine was powered off for the inspection, and could not be powered on again: {exc}"
        context.note("power on", message, severity=Severity.WARNING, reason=exc.reason)


def eject_leftover(context: TaskContext) -> None:
    """Eject what an earlier inspection could not eject, before the machine boots from the network."""
    if _INSERTED in context.node.internal:
        eject_quietly(context)


def _inserted(context: TaskContext) -> Image | None:
    """Return what is recorded as inserted, or what a start that did not finish may have inserted."""
    recorded = context.node.internal.get(_INSERTED)
    if isinstance(recorded, dict):
        parameters = recorded.get(_PARAMETERS, recorded.get("parameters", ""))
        return Image(iso=str(recorded.get("iso", "")), parameters=str(parameters), keep=kept(context.node))
    try:
        return _image(context) if how(context) is Boot.VIRTUAL_MEDIA else None
    except BmcError:
        return None


def _image(context: TaskContext) -> Image:
    base, iso = context.settings.callback_base, ipxe.iso(context.settings, context.node)
    keep = kept(context.node)
    try:
        callback_url(base)
    except ValueError:
        return Image(iso=iso, keep=keep)
    secret = callback_secret.live(context.inspection)
    disk = "disk.img" if secret is None else f"{callback_secret.disk_key(secret)}/disk.img"
    parameters = f"{base.rstrip('/')}/v1/ramdisk_parameters/{context.node.uuid}/{disk}"
    return Image(iso=iso, parameters=parameters, keep=keep)


# Machines that must not be powered off (``disable_power_off``, a node field of the Bare Metal API since 1.95) are
# rebooted into the ramdisk and out of it.
#
# The power state shows whether an earlier attempt's power-on took effect; it says nothing about a reboot. The boot
# device does: it is set for one boot just before, so as long as the BMC still has it, the machine has not booted from
# it. But it may be about to: a BMC takes seconds to carry out a reset, and a second reset in that time would boot the
# machine twice, the second time from disk. So a BMC gets time before anything is repeated, and is asked for its last
# reset time if it supports that.

REBOOT: Final = "reboot"
_OUT: Final = "reboot out of the ramdisk"
# Seconds until a machine is checked again that may be about to reboot.
_RECHECK_DELAY: Final = 5.0


def disables_power_off(node: Node) -> bool:
    """Whether this machine must not be powered off."""
    return bool(node.attributes.get("disable_power_off"))


def is_on(context: TaskContext, what: str) -> bool:
    """Whether the machine is on; ``BmcError`` (transient) for ``what`` if that is not certain."""
    power = context.driver().get_power(context.node)
    if not power.settled:
        context.node.power_state = None
        raise unsettled(what, power)
    return power is Power.ON


def reboot(context: TaskContext, *, confirm: Callable[[], None] = lambda: None, intent: str | None = None) -> None:
    """Reset the machine without powering it off. Not idempotent. ``BmcError``, ``ClaimLostError``."""
    bmc = context.driver()
    context.forget_power()
    context.attempt.command(partial(bmc.reboot, context.node), confirm=confirm, intent=intent)
    context.note("reboot", "commanded a reboot, because disable_power_off is set")
    context.node.power_state, context.node.target_power_state = Power.ON, None


def observed_before_reboot(context: TaskContext) -> Document:
    """Return what shows afterwards whether a reboot took effect."""
    driver = context.driver()
    return {"last_reset": driver.last_reset(context.node) if isinstance(driver, ResetTime) else None}


def earlier_reboot(context: TaskContext, booted: Boot) -> Next | Retry | None:
    """Return what follows from an earlier attempt's reboot; None if there was none or it has to be repeated.

    ``Next``: it took effect, as far as can be known. ``Retry``: the BMC may still be carrying it out.
    """
    if not context.attempt.intended(REBOOT):
        return None
    before = context.attempt.progress[REBOOT]
    if _has_rebooted(context, booted, before.get("last_reset")):
        return Next(Event.WAIT)
    now = context.services.store.read(lambda tx: tx.now)
    if now < before["at"]:  # the database's clock was set back: start the BMC's time anew
        context.intend(REBOOT, seen=before)
        now = context.attempt.progress[REBOOT]["at"]
    left = context.attempt.progress[REBOOT]["at"] + context.settings.drivers.power_timeout - now
    if left <= 0:
        return None
    return Retry(
        min(left, _RECHECK_DELAY),
        Reason.POWER_FAILED,
        "waiting for the BMC to carry out an earlier reset",
        counted=False,
    )


def _has_rebooted(context: TaskContext, booted: Boot, last_reset: str | None) -> bool:
    """Whether the machine was reset since then; assumed if the BMC reports neither reset time nor boot device."""
    latest = observed_before_reboot(context)["last_reset"]
    if latest is not None and last_reset is not None and latest != last_reset:
        return True
    device, persistent = context.driver().get_boot_device(context.node)
    if device is None:
        return last_reset is None or latest is None
    wanted = BootDevice.CDROM if booted is Boot.VIRTUAL_MEDIA else BootDevice.PXE
    return device is not wanted or persistent is True


def leave_ramdisk_quietly(context: TaskContext) -> None:
    """Reboot the machine out of its ramdisk, at most once; a failure is only noted.

    A machine that no attempt has booted yet is left alone: it may be running its workload.
    """
    if context.attempt.intended(_OUT) or (
        context.before.state is State.STARTING and not context.attempt.intended(REBOOT)
    ):
        return
    try:
        context.intend(_OUT)
        reboot(context, intent=_OUT)
    except BmcError as exc:
        if exc.waits:
            raise
        _log.warning("could not reboot", node=context.node.uuid, error=str(exc))
        message = f"could not reboot the machine out of the ramdisk: {exc}"
        context.note("reboot", message, severity=Severity.WARNING, reason=exc.reason)


# Power: command, then poll until the state has followed; that the BMC accepted the command is not enough.

# Longest time in seconds between two polls of a power state that follows slowly.
_LONGEST_POLL_INTERVAL: Final = 2.0


def ensure_power(
    context: TaskContext,
    power: Switch,
    *,
    confirm: Callable[[], None] = lambda: None,
    timeout: float | None = None,
    intent: str | None = None,
    known: Power | None = None,
) -> None:
    """Bring the machine to ``power``, unless it is there already; ``known`` is what the BMC has just said.

    ``confirm`` is called just before the command and may raise; ``intent`` is as in ``Attempt.command``. ``timeout``:
    seconds, instead of the configured ones. Raises ``BmcError`` (transient if the state did not follow in time,
    permanent if it is not allowed), ``StoppedError`` and ``ClaimLostError``.
    """
    bmc = context.driver()
    node, drivers = context.node, context.settings.drivers
    if (known or context.recent_power() or bmc.get_power(node)) is not power:
        if power is Power.OFF and disables_power_off(node):
            message = "power off refused: disable_power_off is set on the node"
            raise BmcError(message, transient=False, reason=Reason.POWER_OFF_DISABLED)
        context.forget_power()
        context.attempt.command(partial(bmc.set_power, node, power), confirm=confirm, intent=intent)
        context.note(str(power), f"commanded {power}")
        node.power_state = power  # all that a driver without a BMC can know
        try:
            _follow(context, power, drivers.power_timeout if timeout is None else timeout)
        except BaseException:
            if node.power_state == power:  # commanded, but never seen
                node.power_state = None
            raise
    node.power_state = power
    node.target_power_state = None


def _follow(context: TaskContext, power: Switch, seconds: float) -> None:
    """Wait until the BMC says that the commanded state is there; ``BmcError`` (transient) after so many seconds."""
    bmc, node, interval = context.driver(), context.node, context.settings.drivers.power_poll_interval
    began = context.services.clock.monotonic()
    pause, longest = interval, max(interval, _LONGEST_POLL_INTERVAL)
    pause, longest = context.services.attached.pace(context, power, pause, longest, seconds)
    while (actual := bmc.get_power(node)) is not power:
        if context.services.clock.monotonic() > began + seconds:
            node.power_state = actual.published
            message = f"still {actual} {seconds:g} s after {power}"
            raise BmcError(message, transient=True, reason=Reason.POWER_FAILED)
        context.attempt.pause(pause)
        pause = min(pause * 1.5, longest)
    context.services.power_times.took(power, context.services.clock.monotonic() - began)
    context.services.attached.reached(context, power)


def power_off_quietly(context: TaskContext) -> None:
    """Power off if configured, or reboot if it must not be off, and eject the ramdisk; a failure is only noted."""
    if not touches_power(context):
        return
    if disables_power_off(context.node):
        eject_quietly(context)  # before the reboot, or it would boot the ramdisk again
        if context.settings.inspector.power_off:
            leave_ramdisk_quietly(context)
        return
    if not context.settings.inspector.power_off or _powered_off(context):
        eject_quietly(context)


def _powered_off(context: TaskContext) -> bool:
    """Power off, in two tries; return whether the BMC responds at all. ``BmcError`` if an attached Ironic does not."""
    try:
        try:
            ensure_power(context, Power.OFF)
        except BmcError as exc:
            if not exc.transient or exc.waits:
                raise
            context.attempt.pause(context.settings.drivers.power_poll_interval)
            ensure_power(context, Power.OFF)
    except BmcError as exc:
        if exc.waits:
            raise
        _log.warning("could not power off", node=context.node.uuid, error=str(exc))
        context.note("power off", f"could not power off: {exc}", severity=Severity.WARNING, reason=exc.reason)
        return exc.reason is Reason.POWER_FAILED
    return True


def keeps_boot_order(node: Node) -> bool:
    """Whether the operator has set up the machine's boot order, and wants no command about it."""
    return node.attributes.get("management_interface") == NOOP


def boot_from_network(context: TaskContext) -> None:
    """Boot from the network next time, and only then; its boot order is left alone with ``NOOP``."""
    if keeps_boot_order(context.node):
        context.note("boot device", f"left as it is, because management_interface is {NOOP}")
        return
    bmc = context.driver()
    context.attempt.command(partial(bmc.set_boot_device, context.node, BootDevice.PXE, persistent=False))
    context.note("boot device", "the next boot is from the network")
