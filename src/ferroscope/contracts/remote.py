"""Remote services: object stores, an attached Ironic, another inspector, HTTP requests of rules, events, images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from ferroscope.core.model import Document
from ferroscope.core.notification import OutboxEvent
from ferroscope_client.core.reasons import Reason


class ObjectStoreError(Exception):
    """A call of the object store failed; the message has the store and the cause, but no credentials."""


class ObjectMissingError(ObjectStoreError):
    """The object does not exist in the store."""


class ObjectDamagedError(ObjectMissingError):
    """The object is not what was stored: forged, truncated or damaged."""


class ObjectStore(Protocol):
    """Bytes by key. A key is only ever written with the same content, so a put may be repeated.

    Every call returns within the configured timeout, whatever the server does; ``ObjectStoreError`` if it failed.
    """

    name: str

    def put(self, key: str, content: bytes) -> None:
        """Store the content durably."""

    def get(self, key: str) -> bytes:
        """Return the content; ``ObjectMissingError``."""

    def delete(self, key: str) -> None:
        """Delete the object; it is not an error if it does not exist."""

    def close(self) -> None:
        """Close the connections."""


# An attached Ironic.


class IronicUnavailableError(Exception):
    """Ironic is unreachable, or its answer cannot be trusted. Change nothing."""


class NodeSource(Protocol):
    """The nodes of an Ironic; each call returns within its own deadline."""

    def list_tracked_uuids(self) -> frozenset[str]:
        """Return the UUIDs of all nodes there, never only some; ``IronicUnavailableError``."""


class IronicRefusedError(Exception):
    """Ironic rejected the request, and would do so again; ``status`` is that of HTTP, ``detail`` its reason."""

    def __init__(self, message: str, *, status: int) -> None:
        self.status = status
        super().__init__(message)


class IronicLockedError(Exception):
    """Ironic is working on the node; the request may succeed later."""


class IronicClient(Protocol):
    """An attached Ironic, whose nodes are inspected; thread-safe.

    Documents are those of the Bare Metal API. All calls raise ``IronicUnavailableError``; those that change something
    also ``IronicLockedError`` and ``IronicRefusedError``. They return within the configured time and retries, check
    ``remote.command_fence`` before they send anything that changes something, and may be repeated: the result is the
    same.
    """

    url: str

    def list_tracked_uuids(self) -> frozenset[str]:
        """As ``NodeSource``."""

    def check(self) -> None:
        """Log in and ask for the version; ``IronicRefusedError`` if that cannot succeed as configured."""

    def nodes(self) -> Iterator[Document]:
        """Yield all nodes, never only some."""

    def ports(self) -> Iterator[Document]:
        """Yield all ports, never only some."""

    def node(self, ident: str) -> Document | None:
        """Return the node with this UUID or name; None if there is none."""

    def ports_of(self, uuid: str) -> Sequence[Document]:
        """Return the ports of the node."""

    def port_with(self, mac: str) -> Document | None:
        """Return the port with this MAC; None if there is none."""

    def power_problem(self, uuid: str) -> str | None:
        """Return why the node's power interface is not valid, in Ironic's words; None if it is.

        It is asked once. ``IronicRefusedError`` if it does not have the node.
        """

    def update_node(self, uuid: str, patch: Sequence[Document]) -> Document:
        """Apply a JSON patch to the node; return the node as it is then."""

    def set_traits(self, uuid: str, traits: Sequence[str]) -> None:
        """Replace the traits of the node."""

    def add_port(self, port: Document) -> bool:
        """Create a port with this ``uuid``; return False if its MAC or UUID is in use."""

    def update_port(self, uuid: str, patch: Sequence[Document]) -> bool:
        """Apply a JSON patch to the port; return False if it does not exist."""

    def remove_port(self, uuid: str) -> None:
        """Delete the port; it is not an error if it does not exist."""

    def power(self, uuid: str) -> Document:
        """Return ``power_state``, ``target_power_state``, ``last_error`` and ``provision_state`` of the node."""

    def set_power(self, uuid: str, target: str) -> None:
        """Request a power state, or ``rebooting``."""

    def boot_device(self, uuid: str) -> tuple[str | None, bool | None]:
        """Return the boot device and whether it is persistent."""

    def set_boot_device(self, uuid: str, device: str, *, persistent: bool) -> None:
        """Set the boot device."""

    def close(self) -> None:
        """Close all idle connections."""


# Callbacks for another service that inspects machines.


class ForwardError(Exception):
    """The other service did not answer; the caller should try again."""


class ForwardBusyError(ForwardError):
    """Too many callbacks are being forwarded."""


class Forwarder(Protocol):
    """Forwards callbacks to another service; thread-safe, with a limit on their number at a time."""

    def forward(self, body: bytes) -> str | None:
        """Return the UUID of the node by which it was accepted, None if it was refused; ``ForwardError``."""


class Introspected(msgspec.Struct, frozen=True):
    """An introspection that has ended there; ``data``: its processed (True) and unprocessed data, as JSON."""

    node: str
    state: str
    started_at: float
    finished_at: float
    error: str | None
    data: dict[bool, bytes]


class IntrospectionSource(Protocol):
    """The introspections of another service; each call returns within its own deadline."""

    def ended(self, node: str) -> Introspected | None:
        """Return the newest introspection of the node, None if it has not ended yet; ``ForwardError``."""

    def close(self) -> None:
        """Close all idle connections."""


# HTTP requests on behalf of rules: one attempt each, with a deadline.


class WebError(Exception):
    """The request failed: no connection, no valid certificate, or a timeout. The message contains no secrets."""


class Web(Protocol):
    """An HTTP client; thread-safe."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        """Return the status code of the response; ``WebError``.

        Never follows redirects or reads the body. ``timeout``: seconds for the whole request.
        """


class SendError(Exception):
    """The target has not confirmed the event. The message must not contain secrets.

    ``refused``: it never will, because the event itself is invalid there. ``unreachable``: there was no complete
    response, so this says nothing about the event. ``retry_after``: seconds for which it asked to be left alone.
    """

    def __init__(
        self, message: str, *, refused: bool = False, unreachable: bool = False, retry_after: float = 0.0
    ) -> None:
        self.refused = refused
        self.unreachable = unreachable
        self.retry_after = retry_after
        super().__init__(message)


class Sender(Protocol):
    """Delivers events to one target, such as a webhook; thread-safe.

    An event is written in the transaction of its change, so there is neither one without the other. It stays
    ``pending`` until its target has confirmed it, so it is delivered at least once. Consumers ignore an ID that they
    have seen.

    ``connections``: how many threads may call ``send`` at the same time, never with two events of one node.
    """

    connections: int

    def send(self, event: OutboxEvent) -> None:
        """Deliver one event and return when the target has confirmed it, all within a bounded time; ``SendError``."""

    def close(self) -> None:
        """Close the connections."""


Senders = Mapping[str, Sender]


# The images that BMCs fetch, which a worker checks beforehand.


class Flaw(msgspec.Struct, frozen=True):
    """Why an image will not boot. ``certain``: no BMC could boot it; otherwise it may be that only we cannot."""

    reason: Reason
    message: str
    certain: bool


class Images(Protocol):
    """Checks images; safe for many threads."""

    def flaw(self, url: str) -> Flaw | None:
        """Return what is wrong with the image, None if nothing is known to be; within some seconds, without raising.

        It may answer from memory: a good image for some minutes, any other for less than one.
        """


class Unchecked:
    """Checks nothing."""

    def flaw(self, _url: str) -> Flaw | None:
        return None
