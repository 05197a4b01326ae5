"""The virtual media of a node: attach, detach, list.

Attaching and detaching are commands for a worker, like the boot device; a failure is the node's ``last_error``. The
list shows what a worker saw last, because the api never connects to a BMC. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import drivers
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http.context import ApiContext, ApiServices
from ferroscope.api.http.decoding import node_ident, shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.contracts.bmc import AttachesMedia
from ferroscope.core.model import Document, Node
from ferroscope.core.secrets import for_validation
from ferroscope.core.states import Event
from ferroscope.core.virtual_media import SEEN, MediaDevice, Medium
from ferroscope.db import Transaction
from ferroscope_client.core.host_spelling import refusal_of_url

SINCE_MINOR: Final = 89
LIST_SINCE: Final = 93
_SCHEMES: Final = ("http", "https", "nfs", "cifs", "smb")


class MediaAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST vmedia. The BMC itself fetches the image, whatever ``image_download_source`` is."""

    device_type: MediaDevice
    image_url: Annotated[str, msgspec.Meta(max_length=2048)]
    image_download_source: Literal["http", "local", "swift"] = "local"


class DetachQuery(msgspec.Struct, frozen=True):
    """DELETE vmedia; all without ``device_types``."""

    device_types: list[str] | None = None


class Detachment(msgspec.Struct, frozen=True):
    """The same in the body, as openstacksdk sends it: names separated by commas, or a list."""

    device_types: str | list[str] | None = None


def attach(context: ApiContext, call: RouteCall[NoQuery, MediaAttachment]) -> Reply:
    """Attach an image to a virtual device."""
    body = call.body
    if body.image_download_source == "swift":
        raise BadRequestError("image_download_source swift is not supported: the BMC fetches the image itself.")
    try:
        scheme = urlsplit(body.image_url).scheme
    except ValueError:
        scheme = ""
    if scheme not in _SCHEMES:
        raise BadRequestError(
            f"Unsupported or missing URL scheme: {shown_value(scheme)}; use one of {', '.join(_SCHEMES)}."
        )
    if any(sign.isspace() or not sign.isprintable() for sign in body.image_url):
        raise BadRequestError("Invalid image_url: spaces and control characters must be escaped.")
    if why := refusal_of_url(body.image_url):
        raise BadRequestError(f"Invalid image_url: {why}.")
    payload = {"device_type": str(body.device_type), "image_url": body.image_url}
    return _command(context, Event.ATTACH_VMEDIA, payload, node_ident(call))


def detach(context: ApiContext, call: RouteCall[DetachQuery, Detachment | None]) -> Reply:
    """Detach the images from some virtual devices, or from all."""
    types = call.query.device_types
    if types is None and call.body is not None:
        listed = call.body.device_types
        types = listed.split(",") if isinstance(listed, str) else listed
    devices = [name.strip() for name in types or [] if name.strip()]
    if wrong := [name for name in devices if name not in list(MediaDevice)]:
        valid = ", ".join(MediaDevice)
        raise BadRequestError(f"Invalid device type(s) {', '.join(map(shown_value, wrong[:4]))} (valid are {valid})")
    payload = {"device_types": devices}
    return _command(context, Event.DETACH_VMEDIA, payload, node_ident(call))


def list_media(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the virtual devices, and what is in them, as a worker has seen them last."""
    ident = node_ident(call)
    node = context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
    _check(context.services, node, "get_virtual_media")
    media = node.internal.get(SEEN)
    return Reply(200, msgspec.convert(media if isinstance(media, list) else [], list[Medium]))


def _command(context: ApiContext, event: Event, payload: Document, ident: str) -> Reply:
    extension = "attach_virtual_media" if event is Event.ATTACH_VMEDIA else "detach_virtual_media"

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        _check(context.services, node, extension)
        transition.submit(tx, node, event, process=context.process.name, payload=payload)

    context.data.store.write(work)
    return Reply(204)


def _check(services: ApiServices, node: Node, extension: str) -> None:
    """Raise ``BadRequestError`` if the node's driver has no virtual media, or its ``driver_info`` is not valid."""
    driver = services.drivers.get(node.driver)
    if driver is None or not isinstance(driver, AttachesMedia):
        raise BadRequestError(drivers.not_supported(node, extension))
    bmc: Any = driver
    if (problem := bmc.validate(for_validation(node))) is not None:
        raise BadRequestError(f"{problem[:1].upper()}{problem[1:]}.")
