"""The machine of an inspection: its ramdisk in virtual media, its power, and what its BMC reports of its hardware.

Inserted virtual media is recorded on the node, so that the request that ends the inspection (finish, abort, time-out, a
failed start) ejects exactly that. A failure to eject never fails an inspection.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from ferroscope import node_boot
from ferroscope.contracts.bmc import (
    ForcesOff,
    ListsNics,
    OutOfBand,
    OutOfBandNic,
    Power,
    RamdiskBoot,
    ReportsHealth,
    Switch,
)
from ferroscope.contracts.errors import BmcError, ConflictError
from ferroscope.contracts.store import Packed, Part, packed
from ferroscope.core import lookup, virtual_media
from ferroscope.core.boot import POWER_ON, POWERED, REBOOT, Boot, BootError, callback_url, disables_power_off
from ferroscope.core.delivery import Next, Outcome
from ferroscope.core.lookup import SecretDelivery
from ferroscope.core.model import Document, Node, Port
from ferroscope.core.notification import iso
from ferroscope.core.states import AWAITED, Event
from ferroscope.core.virtual_media import Image
from ferroscope.db import Transaction
from ferroscope.worker import restart
from ferroscope.worker.attempt import Attempt
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from ferroscope_client.core.values import without_secrets

# A key of the node's ``internal`` document, and one within it.
INSERTED: Final = "inserted_ramdisk"
# Masked in answers, because the URL contains a key.
PARAMETERS: Final = "parameters_secret_url"
_INSERT: Final = "insert ramdisk"
_OFF: Final = "power off a machine that was on"

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
    record_delivery(attempt, SecretDelivery.VIRTUAL_MEDIA if carries else SecretDelivery.NONE)


def check_image(attempt: Attempt) -> None:
    """Note what is wrong with the image; a permanent ``BmcError`` if no BMC could boot it."""
    flaw = attempt.services.images.flaw(ramdisk_image(attempt).iso)
    if flaw is None:
        return
    if flaw.certain:
        raise BmcError(flaw.message, transient=False, reason=flaw.reason)
    attempt.warn("virtual media", flaw.message, reason=flaw.reason)


def record_delivery(attempt: Attempt, delivery: SecretDelivery) -> None:
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
    secret = lookup.live_secret(attempt.inspection)
    disk = "disk.img" if secret is None else f"{lookup.disk_key(secret)}/disk.img"
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


# Out-of-band inspection: NICs and hardware as the BMC reports them, without a ramdisk.
#
# NICs become ports before the first boot, so that the PXE filter and the lookup know the machine. The hardware is
# either processed as an inspection, or kept beside the inventory that the ramdisk sends.

_READ: Final = "read out of band"
# Parts that could not be read, which a note lists.
_MAX_SHOWN: Final = 5


def inspect_out_of_band(attempt: Attempt) -> Outcome:
    """Read the hardware and pass it to the hooks as if a ramdisk had sent it."""
    inventory = _read_inventory(attempt)
    inventory.setdefault("interfaces", [])  # some BMCs know none; hooks decide whether that is enough
    health = _read_health(attempt, inventory)
    sent: dict[Part, bytes] = {"inventory": msgspec.json.encode(inventory), "unprocessed": b"{}"}
    attempt.parts = packed(sent) | _pack_report(attempt, inventory, health)
    attempt.note("out of band", f"the BMC reported: {', '.join(sorted(inventory))}")
    return Next(Event.CONTINUE)


def read_out_of_band(attempt: Attempt, lister: ListsNics | None, *, collects: bool) -> None:
    """Before the ramdisk boots: create ports for the NICs that ``lister`` reports; ``collects``: keep the inventory.

    Neither is required for the inspection, so a failure of the BMC is only noted.
    """
    if attempt.has_intended(_READ):
        return
    parts: dict[Part, Packed] = {}
    try:
        if collects:
            inventory = _read_inventory(attempt)
            parts = _pack_report(attempt, inventory, _read_health(attempt, inventory))
            attempt.note("out of band", f"the BMC reported: {', '.join(sorted(inventory))}")
        if lister is not None:
            _create_ports(attempt, [nic for nic in lister.nics(attempt.node) if nic.enabled])
    except BmcError as exc:
        attempt.warn("out of band", f"could not read the hardware inventory from the BMC: {exc}", reason=exc.reason)
    # Stored immediately: an attempt that is throttled and retried must not ask the BMC again.
    attempt.intend(_READ, lambda tx: _save_parts(tx, attempt, parts))


def _read_inventory(attempt: Attempt) -> Document:
    """Return what the BMC reports; what could not be read of it is noted."""
    inventory = _out_of_band_driver(attempt).inventory(attempt.node)
    if unread := inventory.pop("unread", None):
        message = f"some parts of the BMC's inventory could not be read: {'; '.join(map(str, unread[:_MAX_SHOWN]))}"
        attempt.warn("out of band", message, reason=Reason.BMC_REFUSED)
    return inventory


def _save_parts(tx: Transaction, attempt: Attempt, parts: dict[Part, Packed]) -> None:
    if parts and attempt.node.inspection:
        tx.data.save(attempt.node.inspection, attempt.node.uuid, parts)


def _out_of_band_driver(attempt: Attempt) -> OutOfBand:
    driver = attempt.driver()
    if not isinstance(driver, OutOfBand):
        raise BmcError(
            f"driver {attempt.node.driver!r} does not support out-of-band inspection",
            transient=False,
            reason=Reason.DRIVER_INFO_INVALID,
        )
    return driver


def _read_health(attempt: Attempt, inventory: Document) -> Document:
    """Return the health of the machine, and add the versions of its firmware to the inventory; a failure is noted."""
    driver = attempt.driver()
    if not isinstance(driver, ReportsHealth):
        return {}
    try:
        report = driver.health(attempt.node)
    except BmcError as exc:
        attempt.warn("out of band", f"could not read the health from the BMC: {exc}", reason=exc.reason)
        return {}
    if report.get("firmware"):
        inventory["firmware"] = report["firmware"]
    health: Document = report.get("health") or {}
    if health and not health.get("complete"):
        attempt.note("out of band", "the BMC did not answer in time: its health and firmware report is incomplete")
    return health


def _pack_report(attempt: Attempt, inventory: Document, health: Document) -> dict[Part, Packed]:
    report = {"source": attempt.node.driver, "read_at": iso(attempt.clock.time()), "inventory": inventory}
    return packed({"out_of_band": msgspec.json.encode(report | ({"health": health} if health else {}))})


def _create_ports(attempt: Attempt, nics: list[OutOfBandNic]) -> None:
    """Create the missing ports immediately: the machine is about to boot."""
    own_macs, ignored = {port.address for port in attempt.ports}, attempt.settings.inspector.ignored
    nics = [nic for nic in nics if nic.mac not in ignored]
    elsewhere = attempt.ports_elsewhere([nic.mac for nic in nics if nic.mac not in own_macs])
    missing = [
        Port(uuid=str(uuid.uuid4()), node=attempt.node.uuid, address=nic.mac)
        for nic in nics
        if nic.mac not in own_macs and nic.mac not in elsewhere
    ]
    for address, node in elsewhere.items():
        message = f"the BMC reports NIC {address}, which is a port of node {node}"
        attempt.warn("ports", message, reason=Reason.PORT_CONFLICT)
    if not missing:
        return
    try:
        attempt.write(lambda tx: tx.ports.add(missing))
        attempt.ports.extend(missing)
    except ConflictError as exc:
        attempt.warn("ports", f"no ports created: {exc}", reason=Reason.PORT_CONFLICT)
        return
    attempt.note("ports", f"created from the NICs that the BMC reports: {', '.join(port.address for port in missing)}")
