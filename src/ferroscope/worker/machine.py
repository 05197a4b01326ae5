"""The machine of an inspection: its ramdisk in virtual media, and its power. Restarts are in ``restart``.

Inserted virtual media is recorded on the node, so that the request that ends the inspection (finish, abort, time-out, a
failed start) ejects exactly that. A failure to eject never fails an inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from ferroscope import node_boot
from ferroscope.contracts.bmc import AttachesMedia, ForcesOff, Power, RamdiskBoot, Switch
from ferroscope.contracts.errors import BmcError
from ferroscope.core import callback_secret, virtual_media
from ferroscope.core.boot import POWER_ON, POWERED, REBOOT, Boot, BootError, callback_url, disables_power_off
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.delivery import Done, Outcome
from ferroscope.core.model import Node
from ferroscope.core.states import AWAITED, Event
from ferroscope.core.virtual_media import Image, MediaDevice
from ferroscope.worker import restart
from ferroscope.worker.attempt import Attempt
from ferroscope_client.core.host_spelling import refusal_of_url
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.core.values import without_secrets

# A key of the node's ``internal`` document, and one within it.
INSERTED: Final = "inserted_ramdisk"
# Masked in answers, because the URL contains a key.
PARAMETERS: Final = "parameters_secret_url"
_INSERT: Final = "insert ramdisk"
_OFF: Final = "power off a machine that was on"
_MAX_URL_CHARACTERS: Final = 120

_log = structlog.get_logger(__name__)


def boot_method(attempt: Attempt) -> Boot:
    """Return how this inspection boots its machine; a permanent ``BmcError`` if it cannot."""
    manage_boot = attempt.inspection is None or attempt.inspection.manage_boot
    try:
        return node_boot.way(attempt.settings, attempt.node, attempt.known_driver, manage_boot=manage_boot)
    except BootError as exc:
        raise BmcError(str(exc), transient=False, reason=Reason.UNMANAGED_BOOT) from None


def insert(attempt: Attempt) -> None:
    """Insert the ramdisk and boot from it next time; the intent is recorded before."""
    driver, image = attempt.driver(), ramdisk_image(attempt)
    if not isinstance(driver, RamdiskBoot):
        raise TypeError(f"{type(driver).__name__} cannot boot a ramdisk")
    attempt.intend(_INSERT)
    attempt.sets_next_boot = True
    remark = attempt.command(partial(driver.insert_ramdisk, attempt.node, image), intent=_INSERT)
    attempt.note("virtual media", f"inserted {without_secrets(image.iso)}; the next boot is from virtual media")
    if not image.parameters:
        remark = (
            "no callback URL configured: set [inspector] callback_endpoint_override, unless the image has one built in"
        )
    if remark:
        attempt.warn("virtual media", remark)
    carries = image.parameters and not remark and node_boot.carries_secret(attempt.settings)
    record_delivery(attempt, Delivery.VIRTUAL_MEDIA if carries else Delivery.NONE)


def check_image(attempt: Attempt) -> None:
    """Note what is wrong with the image; a permanent ``BmcError`` if no BMC could boot it."""
    flaw = attempt.services.images.flaw(ramdisk_image(attempt).iso)
    if flaw is None:
        return
    if flaw.certain:
        raise BmcError(flaw.message, transient=False, reason=flaw.reason)
    attempt.warn("virtual media", flaw.message, reason=flaw.reason)


def record_delivery(attempt: Attempt, delivery: Delivery) -> None:
    """Record how the machine gets its secret, together with the intent to power it on."""
    inspection = attempt.inspection
    if inspection is not None and inspection.secret is not None and inspection.secret_delivery != delivery:
        attempt.journal.secret_delivery = delivery


def eject_quietly(attempt: Attempt, booted: Boot | None) -> None:
    """Eject what an inspection that ``booted`` its machine like this has inserted; a failure is only noted."""
    image = _inserted_image(attempt, booted)
    if image is None:
        return
    try:
        try:
            _eject(attempt, image)
        except BmcError as exc:
            if not exc.transient:
                raise
            attempt.pause(attempt.services.power_poll_seconds)
            _eject(attempt, image)
    except BmcError as exc:
        _log.warning("could not eject the ramdisk", node=attempt.node.uuid, error=str(exc))
        attempt.warn("virtual media", f"could not eject the ramdisk: {exc}", reason=exc.reason)


def _eject(attempt: Attempt, image: Image) -> None:
    driver = attempt.driver()
    if isinstance(driver, RamdiskBoot) and attempt.command(partial(driver.eject_ramdisk, attempt.node, image)):
        attempt.note("virtual media", "ejected the ramdisk")
    attempt.node.internal.pop(INSERTED, None)


def power_off_first(attempt: Attempt) -> None:
    """Power the machine off before the ramdisk boots; remember that it was on, for a start that fails."""
    if disables_power_off(attempt.node):
        return
    reported, asked_at = attempt.reported_power.recent_power(), attempt.clock.monotonic()
    power = reported or attempt.driver().get_power(attempt.node)
    if power is Power.ON and not attempt.has_intended(_OFF):
        attempt.intend(_OFF)
    ensure_power(attempt, Power.OFF, read_power=power)
    if reported is None and power is Power.OFF:  # it is powered on a moment later
        attempt.reported_power.saw(power, at=asked_at)


def undo_start_quietly(attempt: Attempt) -> None:
    """After a start that failed: take back what it did to the machine, and leave alone what it did not touch.

    A machine that it may have booted is not left in the ramdisk; one that it has powered off is powered on again, and
    does not boot the ramdisk then.
    """
    if attempt.has_intended(POWER_ON) or attempt.has_intended(REBOOT):
        power_off_quietly(attempt)
    else:
        booted = boot_method_if_any(attempt)
        eject_quietly(attempt, booted)
        if attempt.sets_next_boot or attempt.rerun:
            restart.forget_next_boot_quietly(attempt, booted)
    if not attempt.has_intended(_OFF):
        return
    try:
        power = attempt.driver().get_power(attempt.node)
        ensure_power(attempt, Power.ON, read_power=power)
        if power is not Power.ON:
            attempt.note("power on", "the start failed, so the machine, which was on before, is on again")
    except BmcError as exc:
        if exc.waits:
            raise
        message = f"the machine was powered off for the inspection, and could not be powered on again: {exc}"
        attempt.warn("power on", message, reason=exc.reason)


def eject_leftover(attempt: Attempt) -> None:
    """Eject the ramdisk that an earlier inspection could not eject, before something else is booted or attached."""
    if INSERTED in attempt.node.internal:
        eject_quietly(attempt, boot_method_if_any(attempt))


def _inserted_image(attempt: Attempt, booted: Boot | None) -> Image | None:
    """Return what is recorded as inserted, or what a start that did not finish may have inserted."""
    recorded = attempt.node.internal.get(INSERTED)
    if isinstance(recorded, dict):
        parameters = recorded.get(PARAMETERS, recorded.get("parameters", ""))
        return _with_https(attempt, str(recorded.get("iso", "")), str(parameters))
    return ramdisk_image(attempt) if booted is Boot.VIRTUAL_MEDIA else None


def ramdisk_image(attempt: Attempt) -> Image:
    base, iso = attempt.settings.callback_base, node_boot.iso(attempt.settings, attempt.node)
    try:
        callback_url(base)
    except ValueError:
        return _with_https(attempt, iso)
    secret = callback_secret.live(attempt.inspection)
    disk = "disk.img" if secret is None else f"{callback_secret.disk_key(secret)}/disk.img"
    return _with_https(attempt, iso, f"{base.rstrip('/')}/v1/ramdisk_parameters/{attempt.node.uuid}/{disk}")


def _with_https(attempt: Attempt, iso: str, parameters: str = "") -> Image:
    base, public = attempt.settings.callback_base, attempt.settings.api.public_url
    secure = {url: https for url in (iso, parameters) if (https := virtual_media.secure_url(url, base, public))}
    return Image(iso=iso, parameters=parameters, keep=virtual_media.kept_images(attempt.node), secure=secure)


# Power: command, then poll until the state has followed; that the BMC accepted the command is not enough.

_POWER_TEXT: Final = {
    Power.ON: "on",
    Power.OFF: "off",
    Power.CHANGING: "being powered on or off",
    Power.UNKNOWN: "neither on nor off, according to the BMC,",
}
# Longest time in seconds between two polls of a power state that follows slowly.
_MAX_POLL_SECONDS: Final = 2.0


def ensure_power(
    attempt: Attempt,
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
    node, drivers = attempt.node, attempt.settings.drivers
    if always or (read_power or attempt.reported_power.recent_power() or bmc.get_power(node)) is not power:
        if power is Power.OFF:
            refuse_power_off(node)
        attempt.reported_power.forget()
        call: Callable[[], object] = partial(bmc.set_power, node, power)
        if always and power is Power.OFF and isinstance(bmc, ForcesOff):
            call = partial(bmc.force_off, node)
        attempt.command(call, confirm=confirm, intent=intent)
        attempt.note(str(power), f"commanded {power}")
        node.power_state = power  # all that a driver without a BMC can know
        try:
            _follow(attempt, power, drivers.power_timeout if timeout is None else timeout)
        except BaseException:
            if node.power_state == power:  # commanded, but never seen
                node.power_state = None
            raise
    node.power_state = power
    node.target_power_state = None


def refuse_power_off(node: Node) -> None:
    """Raise a permanent ``BmcError`` if the node must not be powered off."""
    if disables_power_off(node):
        message = "power off refused: disable_power_off is set on the node"
        raise BmcError(message, transient=False, reason=Reason.POWER_OFF_DISABLED)


def _follow(attempt: Attempt, power: Switch, seconds: float) -> None:
    """Wait until the BMC reports the commanded state; ``BmcError`` (transient) after ``seconds``."""
    bmc, node, interval = attempt.driver(), attempt.node, attempt.services.power_poll_seconds
    began = attempt.clock.monotonic()
    pause, longest = interval, max(interval, _MAX_POLL_SECONDS)
    times = attempt.services.power_times
    if times is not None:
        first = times.first_look(power)
        attempt.pause(min(max(first, pause), seconds))
        pause, longest = max(pause, first / 4), max(longest, first / 2)
    while (actual := bmc.get_power(node)) is not power:
        if attempt.clock.monotonic() > began + seconds:
            node.power_state = actual.published
            message = f"the BMC accepted {power}, and the machine is still {_POWER_TEXT[actual]} after {seconds:g} s"
            raise BmcError(message, transient=True, reason=Reason.POWER_FAILED)
        attempt.pause(pause)
        pause = min(pause * 1.5, longest)
    if times is not None:
        times.learn_change(power, attempt.clock.monotonic() - began)
        attempt.reported_power.saw(power)


def power_off_quietly(attempt: Attempt) -> None:
    """Power off if configured, or reboot if it must not be off, and eject the ramdisk; a failure is only noted.

    If the ramdisk has not called back, the machine may still be about to boot it: that is taken back, too. A machine
    that must not be off, and was never restarted, is left alone.
    """
    awaited, booted = attempt.before.state in AWAITED, boot_method_if_any(attempt)
    switches_power = attempt.inspection is None or attempt.inspection.manage_boot
    if booted is not None:  # else the start failed to find out, too
        switches_power = booted in POWERED
    if not switches_power:
        return
    attempt.node.internal.pop(restart.UNSEEN, None)
    if disables_power_off(attempt.node):
        stays = awaited and restart.missed_restart(attempt, booted) is not None
        eject_quietly(attempt, booted)  # before the reboot, or it would boot the ramdisk again
        if awaited and restart.forget_next_boot_quietly(attempt, booted):
            stays = stays or not restart.was_seen(attempt)
        if stays:
            attempt.note("reboot", "not rebooted: according to its BMC, it was not restarted for this inspection")
        elif attempt.settings.inspector.power_off:
            restart.leave_ramdisk_quietly(attempt)
        return
    if not attempt.settings.inspector.power_off or _try_power_off(attempt):
        eject_quietly(attempt, booted)
        if awaited:
            restart.forget_next_boot_quietly(attempt, booted)
    elif awaited:
        restart.note_left_boot(attempt, booted)


def boot_method_if_any(attempt: Attempt) -> Boot | None:
    """Return how the inspection boots its machine; None if it cannot."""
    try:
        return boot_method(attempt)
    except BmcError:
        return None


def _try_power_off(attempt: Attempt) -> bool:
    """Power off, in two tries; return whether the BMC responds at all. ``BmcError`` if an attached Ironic does not."""
    # A power-on whose effect no one saw may still take effect: some BMCs need more time than they get.
    started = attempt.has_intended(POWER_ON) or attempt.request.event is not Event.INSPECT
    may_come_on = attempt.before.state is State.STARTING and started
    try:
        try:
            ensure_power(attempt, Power.OFF, always=may_come_on)
        except BmcError as exc:
            if not exc.transient or exc.waits:
                raise
            attempt.pause(attempt.services.power_poll_seconds)
            ensure_power(attempt, Power.OFF)
    except BmcError as exc:
        if exc.waits:
            raise
        _log.warning("could not power off", node=attempt.node.uuid, error=str(exc))
        attempt.warn("power off", f"could not power off: {exc}", reason=exc.reason)
        return exc.reason is Reason.POWER_FAILED
    return True


# Commands: images that callers attach to a machine's virtual drives. Only a worker may ask a BMC, so the API lists what
# a worker saw last. The drives belong to one owner at a time: the API refuses the commands during an inspection, and an
# inspection spares what is attached (``kept_images``).


def attach_media(attempt: Attempt) -> Outcome:
    """Attach the payload's ``image_url`` as ``device_type``."""
    driver, payload = _media_driver(attempt), attempt.request.payload
    device, url = MediaDevice(payload["device_type"]), str(payload["image_url"])
    if why := refusal_of_url(url):
        raise BmcError(f"invalid image_url: {why}", transient=False, reason=Reason.ISO_INVALID)
    eject_leftover(attempt)
    attempt.command(partial(driver.attach_medium, attempt.node, device, url))
    attempt.node.internal[virtual_media.ATTACHED] = {**_attached_media(attempt.node), device: url}
    attempt.note("virtual media", f"attached {without_secrets(url)[:_MAX_URL_CHARACTERS]} as {device}")
    _store_drives(attempt, driver)
    return Done()


def detach_media(attempt: Attempt) -> Outcome:
    """Empty the drives of the payload's ``device_types``, or all."""
    driver = _media_driver(attempt)
    devices = [MediaDevice(device_type) for device_type in attempt.request.payload.get("device_types") or []]
    eject_leftover(attempt)
    ejected = attempt.command(partial(driver.detach_media, attempt.node, devices))
    kept = _attached_media(attempt.node).items() if devices else ()
    attempt.node.internal[virtual_media.ATTACHED] = {key: url for key, url in kept if key not in devices}
    drives = ", ".join(devices) or "all virtual drives"
    attempt.note("virtual media", f"emptied {drives}" if ejected else f"nothing to detach from {drives}")
    _store_drives(attempt, driver)
    return Done()


def learn_drives(attempt: Attempt) -> None:
    """Store which virtual drives there are; many BMCs have none, or need a license for them."""
    driver = attempt.driver()
    if isinstance(driver, AttachesMedia):
        _store_drives(attempt, driver, warns=False)


def _media_driver(attempt: Attempt) -> AttachesMedia:
    driver = attempt.driver()
    if not isinstance(driver, AttachesMedia):
        message = f"driver {attempt.node.driver} does not support virtual media"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    return driver


def _attached_media(node: Node) -> dict[str, str]:
    attached = node.internal.get(virtual_media.ATTACHED)
    return attached if isinstance(attached, dict) else {}


def _store_drives(attempt: Attempt, driver: AttachesMedia, *, warns: bool = True) -> None:
    """Store what the drives have now. A command before has succeeded, even if the BMC does not answer now."""
    try:
        attempt.node.internal[virtual_media.SEEN] = [
            msgspec.to_builtins(msgspec.structs.replace(medium, image=medium.image and without_secrets(medium.image)))
            for medium in driver.media(attempt.node)
        ]
    except BmcError as exc:
        attempt.node.internal.pop(virtual_media.SEEN, None)
        if warns:
            attempt.warn("virtual media", f"cannot read the virtual drives: {exc}", reason=exc.reason)
