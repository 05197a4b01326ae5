"""Remote services: object stores for inspection data, an attached Bare Metal service, and HTTP requests of rules.

An object store's key is only ever written with the same content, so a put may be repeated. Every call returns within
the configured timeout, whatever the server does, and raises ``ObjectStoreError`` if it failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ObjectStoreError(Exception):
    """A call of the object store failed; the message has the store and the cause, but no credentials."""


class ObjectMissingError(ObjectStoreError):
    """The object does not exist in the store."""


class ObjectDamagedError(ObjectMissingError):
    """The object is not what was stored: forged, truncated or damaged."""


class ObjectStore(Protocol):
    """Bytes by key."""

    name: str

    def put(self, key: str, content: bytes) -> None:
        """Store the content durably."""

    def get(self, key: str) -> bytes:
        """Return the content; ``ObjectMissingError``."""

    def delete(self, key: str) -> None:
        """Delete the object; it is not an error if it does not exist."""

    def close(self) -> None:
        """Close the connections."""


# The node registry of an attached Bare Metal service.


class RegistryUnavailableError(Exception):
    """The registry is unreachable, or its answer cannot be trusted. Change nothing."""


class NodeSource(Protocol):
    """The nodes of an external registry; each call returns within its own deadline."""

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes in the registry, never only some; ``RegistryUnavailableError``."""


# HTTP requests on behalf of rules: one attempt each, with a deadline.


class WebError(Exception):
    """The request failed: no connection, no valid certificate, or a timeout. The message contains no secrets."""


class Web(Protocol):
    """An HTTP client; thread-safe."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        """Return the status code of the response; ``WebError``.

        Never follows redirects or reads the body. ``timeout``: seconds for the whole request.
        """
