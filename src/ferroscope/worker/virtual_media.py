"""Images that callers attach to a machine's virtual drives, and what the API knows of these drives.

Only a worker may ask a BMC, so the API lists what was seen last: when the node was verified, and after each command.
The drives belong to one owner at a time: the commands are refused during an inspection, and an inspection spares what
is attached (``kept``).
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.images import AttachesMedia, MediaDevice
from ferroscope.core.delivery import Done, Outcome
from ferroscope.core.host_spelling import refusal_of_url
from ferroscope.core.model import Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.values import without_secrets
from ferroscope.core.virtual_media import ATTACHED, SEEN
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.boot import eject_leftover

_MAX_SHOWN_CHARACTERS: Final = 120


def attach(attempt: Attempt) -> Outcome:
    """Attach the payload's ``image_url`` as ``device_type``."""
    driver, payload = _able(attempt), attempt.request.payload
    device, url = MediaDevice(payload["device_type"]), str(payload["image_url"])
    if why := refusal_of_url(url):
        raise BmcError(f"invalid image_url: {why}", transient=False, reason=Reason.ISO_INVALID)
    eject_leftover(attempt)
    attempt.command(partial(driver.attach_medium, attempt.node, device, url))
    attempt.node.internal[ATTACHED] = {**_attached_media(attempt.node), device: url}
    attempt.note("virtual media", f"attached {without_secrets(url)[:_MAX_SHOWN_CHARACTERS]} as {device}")
    _look(attempt, driver)
    return Done()


def detach(attempt: Attempt) -> Outcome:
    """Empty the drives of the payload's ``device_types``, or all."""
    driver = _able(attempt)
    devices = [MediaDevice(device_type) for device_type in attempt.request.payload.get("device_types") or []]
    eject_leftover(attempt)
    ejected = attempt.command(partial(driver.detach_media, attempt.node, devices))
    gone = devices or list(MediaDevice)
    attempt.node.internal[ATTACHED] = {
        key: url for key, url in _attached_media(attempt.node).items() if key not in gone
    }
    drives = ", ".join(devices) or "all virtual drives"
    attempt.note("virtual media", f"emptied {drives}" if ejected else f"nothing to detach from {drives}")
    _look(attempt, driver)
    return Done()


def learn(attempt: Attempt) -> None:
    """Store which virtual drives there are; many BMCs have none, or need a license for them."""
    driver = attempt.driver()
    if isinstance(driver, AttachesMedia):
        try:
            _store(attempt, driver)
        except BmcError:
            attempt.node.internal.pop(SEEN, None)


def _able(attempt: Attempt) -> AttachesMedia:
    driver: Bmc = attempt.driver()
    if not isinstance(driver, AttachesMedia):
        message = f"driver {attempt.node.driver} does not support virtual media"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    return driver


def _attached_media(node: Node) -> dict[str, str]:
    attached = node.internal.get(ATTACHED)
    return attached if isinstance(attached, dict) else {}


def _look(attempt: Attempt, driver: AttachesMedia) -> None:
    """Store what the drives have now; the command has succeeded, whatever the BMC answers."""
    try:
        _store(attempt, driver)
    except BmcError as exc:
        attempt.node.internal.pop(SEEN, None)
        message = f"cannot read the virtual drives: {exc}"
        attempt.note("virtual media", message, severity=Severity.WARNING, reason=exc.reason)


def _store(attempt: Attempt, driver: AttachesMedia) -> None:
    attempt.node.internal[SEEN] = [
        msgspec.to_builtins(msgspec.structs.replace(medium, image=medium.image and without_secrets(medium.image)))
        for medium in driver.media(attempt.node)
    ]
