"""The object store: where inspection data goes that shall not stay in the database.

A key is written once and never again, so a put may be repeated. Every call ends within the
configured time, whatever the other side does, and raises ``ObjectStoreError`` where it could not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ObjectStoreError(Exception):
    """The object store did not do it; the message names the store and the reason, and no credentials."""


class ObjectMissingError(ObjectStoreError):
    """The store answers, and has no such object."""


class ObjectDamagedError(ObjectMissingError):
    """There is an object, but it is not what was stored there: forged, truncated or damaged."""


class ObjectStore(Protocol):
    """Bytes by key."""

    name: str

    def put(self, key: str, content: bytes) -> None:
        """Store the content; when this returns the store has promised to keep it."""

    def get(self, key: str) -> bytes:
        """Return the content; ``ObjectMissingError``."""

    def delete(self, key: str) -> None:
        """Delete the object; one that does not exist is deleted already."""

    def close(self) -> None:
        """Give connections back."""


# Where nodes come from, if not from us: the registry of an attached Bare Metal service.


class RegistryUnavailableError(Exception):
    """The registry could not be asked, or gave an answer that cannot be trusted. Change nothing."""


class NodeSource(Protocol):
    """The nodes that somebody else tracks; each call ends within its own deadline."""

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes that exist there, completely; ``RegistryUnavailableError``."""


# HTTP requests to others, on behalf of rules: one try each, with a deadline.


class WebError(Exception):
    """There was no answer: no connection, no valid certificate, or not in time. The message names no secret."""


class Web(Protocol):
    """Thread safe."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        """Return the status of the answer; ``WebError``.

        Never follows a redirect and never reads a body. ``timeout``: seconds for all of it.
        """
