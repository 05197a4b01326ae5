"""The object store: where inspection data goes that shall not stay in the database.

A key is written once and never again, so a put may be repeated. Every call ends within the
configured time, whatever the other side does, and raises ``ObjectStoreError`` where it could not.
"""

from __future__ import annotations

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
