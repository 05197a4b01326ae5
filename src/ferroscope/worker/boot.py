"""How tasks bring a machine to its ramdisk, and take away afterwards what was put in for that.

What was inserted is noted on the node, so that whoever ends the inspection (finish, abort,
time-out, a failed start) takes out just that. Taking it out never fails an inspection.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog

from ferroscope.contracts.bmc import Image, OutOfBand, RamdiskBoot
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import Boot, BootError, callback_url, choose
from ferroscope.core.model import Severity
from ferroscope.core.reasons import Reason
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
        remark = "nobody told where the callback goes ([inspector] callback_endpoint_override); the image must know"
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
