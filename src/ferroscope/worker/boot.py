"""Booting a machine into the ramdisk and out of it: virtual media and power; see also ``next_boot`` and ``restart``.

Inserted virtual media is recorded on the node, so that the request that ends the inspection (finish, abort, time-out, a
failed start) ejects exactly that. A failure to eject never fails an inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from ferroscope.boot_config import ipxe
from ferroscope.contracts.bmc import ForcesOff, Power, Switch
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.images import Image, RamdiskBoot
from ferroscope.core import callback_secret
from ferroscope.core.boot import POWER_ON, POWERED, REBOOT, Boot, BootError, callback_url, disables_power_off
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.model import Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import AWAITED, Event, State
from ferroscope.core.values import without_secrets
from ferroscope.core.virtual_media import kept_images, secure_url
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.next_boot import forget_next_boot_quietly, note_left_boot
from ferroscope.worker.restart import UNSEEN, leave_ramdisk_quietly, missed_restart, was_seen
from ferroscope.worker.services import Services

# Keys of the node's ``internal`` document; the first one has the same name in Ironic.
MANAGED: Final = "inspector_manage_boot"
_INSERTED: Final = "inserted_ramdisk"
# The token that a lookup has given away; see ``api.baremetal.agent``.
_AGENT: Final = "agent"
# Masked in answers, because the URL contains a key.
_PARAMETERS: Final = "parameters_secret_url"
_INSERT: Final = "insert ramdisk"
_OFF: Final = "power off a machine that was on"

_log = structlog.get_logger(__name__)


def how(attempt: Attempt, services: Services) -> Boot:
    """Return how this inspection boots its machine; a permanent ``BmcError`` if it cannot."""
    manage_boot = attempt.inspection is None or attempt.inspection.manage_boot
    try:
        return ipxe.way(services.settings, attempt.node, attempt.known_driver, manage_boot=manage_boot)
    except BootError as exc:
        raise BmcError(str(exc), transient=False, reason=Reason.UNMANAGED_BOOT) from None


def note(attempt: Attempt, services: Services, booted: Boot) -> None:
    """Record on the node how it is booted and what will be inserted; also for a rerun that does neither."""
    attempt.node.internal[MANAGED] = booted in (Boot.VIRTUAL_MEDIA, Boot.IPXE)
    attempt.node.internal.pop(UNSEEN, None)
    if booted is Boot.VIRTUAL_MEDIA:
        image = _image(attempt, services)
        attempt.node.internal[_INSERTED] = {"iso": image.iso, _PARAMETERS: image.parameters}


def insert(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Insert the ramdisk and boot from it next time; the intent is recorded before."""
    driver, image = attempt.driver(), _image(attempt, services)
    if not isinstance(driver, RamdiskBoot):
        raise TypeError(f"{type(driver).__name__} cannot boot a ramdisk")
    attempt.intend(_INSERT, journal)
    attempt.sets_next_boot = True
    remark = attempt.command(partial(driver.insert_ramdisk, attempt.node, image), intent=_INSERT)
    journal.note("virtual media", f"inserted {without_secrets(image.iso)}; the next boot is from virtual media")
    if not image.parameters:
        remark = (
            "no callback URL configured: set [inspector] callback_endpoint_override, unless the image has one built in"
        )
    if remark:
        journal.note("virtual media", remark, severity=Severity.WARNING)
    carries = image.parameters and not remark and ipxe.carries_secret(services.settings)
    _record_delivery(attempt, journal, Delivery.VIRTUAL_MEDIA if carries else Delivery.NONE)


def check_image(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Say before anything is done what is wrong with the image; a permanent ``BmcError`` if no BMC could boot it."""
    flaw = services.images.flaw(_image(attempt, services).iso)
    if flaw is None:
        return
    if flaw.certain:
        raise BmcError(flaw.message, transient=False, reason=flaw.reason)
    journal.note("virtual media", flaw.message, severity=Severity.WARNING, reason=flaw.reason)


def insert_nothing(attempt: Attempt, journal: Journal) -> None:
    """The machine boots from the network, even if virtual media was planned."""
    inspection = attempt.inspection
    if inspection is not None and inspection.secret_delivery in (Delivery.PLANNED, Delivery.VIRTUAL_MEDIA):
        _record_delivery(attempt, journal, Delivery.NONE)


def note_script(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Say by which files the machine boots, or that nobody can ask for its script."""
    files = ipxe.files(services.settings, attempt.node)
    if files is not None:
        kernel = without_secrets(files.kernel)
        journal.note("ipxe", f"the next boot is from the network, by a script of this service with the kernel {kernel}")
    if not (attempt.ports or attempt.port_changes.added):
        message = "the node has no port: add one, because boot scripts are served by MAC address"
        journal.note("ipxe", message, severity=Severity.WARNING, reason=Reason.UNMANAGED_BOOT)


def forget_agent(attempt: Attempt, journal: Journal) -> None:
    """Let the ramdisk that is about to boot get a token of its own, if an earlier boot of this inspection got one.

    The copies forget it, too: the commit must not remove what the new ramdisk gets meanwhile.
    """
    agent = attempt.before.internal.get(_AGENT)
    if isinstance(agent, dict) and agent.get("inspection") == attempt.before.inspection:
        for node in (attempt.before, attempt.node):
            node.internal.pop(_AGENT, None)
        journal.forgotten = _AGENT


def _record_delivery(attempt: Attempt, journal: Journal, delivery: Delivery) -> None:
    """Record how the machine gets its secret, together with the intent to power it on."""
    inspection = attempt.inspection
    if inspection is not None and inspection.secret is not None and inspection.secret_delivery != delivery:
        journal.secret_delivery = delivery


def eject_quietly(attempt: Attempt, journal: Journal, services: Services, booted: Boot | None) -> None:
    """Eject what an inspection inserted, which ``booted`` its machine so; a failure is only noted."""
    image = _inserted_image(attempt, services, booted)
    if image is None:
        return
    try:
        try:
            _eject(attempt, journal, image)
        except BmcError as exc:
            if not exc.transient:
                raise
            attempt.pause(services.power_poll_seconds)
            _eject(attempt, journal, image)
    except BmcError as exc:
        _log.warning("could not eject the ramdisk", node=attempt.node.uuid, error=str(exc))
        message = f"could not eject the ramdisk: {exc}"
        journal.note("virtual media", message, severity=Severity.WARNING, reason=exc.reason)


def _eject(attempt: Attempt, journal: Journal, image: Image) -> None:
    driver = attempt.driver()
    if isinstance(driver, RamdiskBoot) and attempt.command(partial(driver.eject_ramdisk, attempt.node, image)):
        journal.note("virtual media", "ejected the ramdisk")
    attempt.node.internal.pop(_INSERTED, None)


def power_off_first(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Power the machine off before the ramdisk boots; remember that it was on, for a start that fails."""
    if disables_power_off(attempt.node):
        return
    reported, asked_at = attempt.reported_power.recent_power(), services.clock.monotonic()
    power = reported or attempt.driver().get_power(attempt.node)
    if power is Power.ON and not attempt.has_intended(_OFF):
        attempt.intend(_OFF, journal)
    ensure_power(attempt, journal, services, Power.OFF, read_power=power)
    if reported is None and power is Power.OFF:  # it is powered on a moment later
        attempt.reported_power.saw(power, at=asked_at)


def undo_start_quietly(attempt: Attempt, journal: Journal, services: Services) -> None:
    """After a start that failed: take back what it did to the machine, and leave alone what it did not touch.

    A machine that it may have booted is not left in the ramdisk; one that it has powered off is powered on again, and
    does not boot the ramdisk then.
    """
    if attempt.has_intended(POWER_ON) or attempt.has_intended(REBOOT):
        power_off_quietly(attempt, journal, services)
    else:
        booted = _boot_method(attempt, services)
        eject_quietly(attempt, journal, services, booted)
        if attempt.sets_next_boot or attempt.rerun:
            forget_next_boot_quietly(attempt, journal, services, booted)
    if not attempt.has_intended(_OFF):
        return
    try:
        power = attempt.driver().get_power(attempt.node)
        ensure_power(attempt, journal, services, Power.ON, read_power=power)
        if power is not Power.ON:
            journal.note("power on", "the start failed, so the machine, which was on before, is on again")
    except BmcError as exc:
        if exc.waits:
            raise
        message = f"the machine was powered off for the inspection, and could not be powered on again: {exc}"
        journal.note("power on", message, severity=Severity.WARNING, reason=exc.reason)


def eject_leftover(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Eject the ramdisk that an earlier inspection could not eject, before something else is booted or attached."""
    if _INSERTED in attempt.node.internal:
        eject_quietly(attempt, journal, services, _boot_method(attempt, services))


def _inserted_image(attempt: Attempt, services: Services, booted: Boot | None) -> Image | None:
    """Return what is recorded as inserted, or what a start that did not finish may have inserted."""
    recorded = attempt.node.internal.get(_INSERTED)
    if isinstance(recorded, dict):
        parameters = recorded.get(_PARAMETERS, recorded.get("parameters", ""))
        return _with_https(attempt, services, str(recorded.get("iso", "")), str(parameters))
    return _image(attempt, services) if booted is Boot.VIRTUAL_MEDIA else None


def _image(attempt: Attempt, services: Services) -> Image:
    base, iso = services.settings.callback_base, ipxe.iso(services.settings, attempt.node)
    try:
        callback_url(base)
    except ValueError:
        return _with_https(attempt, services, iso)
    secret = callback_secret.live(attempt.inspection)
    disk = "disk.img" if secret is None else f"{callback_secret.disk_key(secret)}/disk.img"
    parameters = f"{base.rstrip('/')}/v1/ramdisk_parameters/{attempt.node.uuid}/{disk}"
    return _with_https(attempt, services, iso, parameters)


def _with_https(attempt: Attempt, services: Services, iso: str, parameters: str = "") -> Image:
    base, public = services.settings.callback_base, services.settings.api.public_url
    secure = {url: secure_one for url in (iso, parameters) if (secure_one := secure_url(url, base, public))}
    return Image(iso=iso, parameters=parameters, keep=kept_images(attempt.node), secure=secure)


# Power: command, then poll until the state has followed; that the BMC accepted the command is not enough.

_POWER_TEXT: Final = {
    Power.ON: "on",
    Power.OFF: "off",
    Power.CHANGING: "being powered on or off",
    Power.UNKNOWN: "neither on nor off, according to the BMC,",
}
# Longest time in seconds between two polls of a power state that follows slowly.
_LONGEST_POLL_INTERVAL: Final = 2.0


def ensure_power(
    attempt: Attempt,
    journal: Journal,
    services: Services,
    power: Switch,
    *,
    confirm: Callable[[], None] = lambda: None,
    timeout: float | None = None,
    intent: str | None = None,
    read_power: Power | None = None,
    always: bool = False,
) -> None:
    """Bring the machine to ``power``, unless it is there already; ``read_power`` is what the BMC has just said.

    ``always``: command it all the same, as ``ForcesOff`` if it is off.
    ``confirm`` is called just before the command and may raise; ``intent`` is as in ``Attempt.command``. ``timeout``:
    seconds, instead of the configured ones. Raises ``BmcError`` (transient if the state did not follow in time,
    permanent if it is not allowed), ``StoppedError`` and ``ClaimLostError``.
    """
    bmc = attempt.driver()
    node, drivers = attempt.node, services.settings.drivers
    if always or (read_power or attempt.reported_power.recent_power() or bmc.get_power(node)) is not power:
        if power is Power.OFF and disables_power_off(node):
            message = "power off refused: disable_power_off is set on the node"
            raise BmcError(message, transient=False, reason=Reason.POWER_OFF_DISABLED)
        attempt.reported_power.forget()
        call: Callable[[], object] = partial(bmc.set_power, node, power)
        if always and power is Power.OFF and isinstance(bmc, ForcesOff):
            call = partial(bmc.force_off, node)
        attempt.command(call, confirm=confirm, intent=intent)
        journal.note(str(power), f"commanded {power}")
        node.power_state = power  # all that a driver without a BMC can know
        try:
            _follow(attempt, services, power, drivers.power_timeout if timeout is None else timeout)
        except BaseException:
            if node.power_state == power:  # commanded, but never seen
                node.power_state = None
            raise
    node.power_state = power
    node.target_power_state = None


def _follow(attempt: Attempt, services: Services, power: Switch, seconds: float) -> None:
    """Wait until the BMC says that the commanded state is there; ``BmcError`` (transient) after so many seconds."""
    bmc, node, interval = attempt.driver(), attempt.node, services.power_poll_seconds
    began = services.clock.monotonic()
    pause, longest = interval, max(interval, _LONGEST_POLL_INTERVAL)
    pause, longest = services.attached.pace(attempt, power, pause, longest, seconds)
    while (actual := bmc.get_power(node)) is not power:
        if services.clock.monotonic() > began + seconds:
            node.power_state = actual.published
            message = f"the BMC accepted {power}, and the machine is still {_POWER_TEXT[actual]} after {seconds:g} s"
            raise BmcError(message, transient=True, reason=Reason.POWER_FAILED)
        attempt.pause(pause)
        pause = min(pause * 1.5, longest)
    services.attached.reached(attempt, power, services.clock.monotonic() - began)


def power_off_quietly(attempt: Attempt, journal: Journal, services: Services) -> None:
    """Power off if configured, or reboot if it must not be off, and eject the ramdisk; a failure is only noted.

    If the ramdisk has not called back, the machine may still be about to boot it: that is taken back, too. A machine
    that must not be off, and was never restarted, is left alone.
    """
    awaited, booted = attempt.before.state in AWAITED, _boot_method(attempt, services)
    if not _touches_power(attempt, booted):
        return
    attempt.node.internal.pop(UNSEEN, None)
    if disables_power_off(attempt.node):
        stays = awaited and missed_restart(attempt, booted) is not None
        eject_quietly(attempt, journal, services, booted)  # before the reboot, or it would boot the ramdisk again
        if awaited and forget_next_boot_quietly(attempt, journal, services, booted):
            stays = stays or not was_seen(attempt)
        if stays:
            journal.note("reboot", "not rebooted: according to its BMC, it was not restarted for this inspection")
        elif services.settings.inspector.power_off:
            leave_ramdisk_quietly(attempt, journal, services)
        return
    if not services.settings.inspector.power_off or _powered_off(attempt, journal, services):
        eject_quietly(attempt, journal, services, booted)
        if awaited:
            forget_next_boot_quietly(attempt, journal, services, booted)
    elif awaited:
        note_left_boot(attempt, journal, booted)


def missed_reset(attempt: Attempt, services: Services) -> str | None:
    """Return what to say of a reset that the BMC has accepted and not carried out; None if there was none."""
    return missed_restart(attempt, _boot_method(attempt, services))


def _boot_method(attempt: Attempt, services: Services) -> Boot | None:
    """Return how the inspection boots its machine; None if it cannot."""
    try:
        return how(attempt, services)
    except BmcError:
        return None


def _touches_power(attempt: Attempt, booted: Boot | None) -> bool:
    """Whether this inspection may switch the machine's power."""
    if booted is None:  # the start failed there, too
        return attempt.inspection is None or attempt.inspection.manage_boot
    return booted in POWERED


def _may_come_on(attempt: Attempt) -> bool:
    """Whether a power-on of which nothing was seen may still take effect: some BMCs need more time than they get."""
    return attempt.before.state is State.STARTING and (
        attempt.has_intended(POWER_ON) or attempt.request.event is not Event.INSPECT
    )


def _powered_off(attempt: Attempt, journal: Journal, services: Services) -> bool:
    """Power off, in two tries; return whether the BMC responds at all. ``BmcError`` if an attached Ironic does not."""
    try:
        try:
            ensure_power(attempt, journal, services, Power.OFF, always=_may_come_on(attempt))
        except BmcError as exc:
            if not exc.transient or exc.waits:
                raise
            attempt.pause(services.power_poll_seconds)
            ensure_power(attempt, journal, services, Power.OFF)
    except BmcError as exc:
        if exc.waits:
            raise
        _log.warning("could not power off", node=attempt.node.uuid, error=str(exc))
        journal.note("power off", f"could not power off: {exc}", severity=Severity.WARNING, reason=exc.reason)
        return exc.reason is Reason.POWER_FAILED
    return True
