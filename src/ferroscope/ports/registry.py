"""Where nodes come from, if not from us: the registry of an attached Bare Metal service."""

from __future__ import annotations

from typing import Protocol


class RegistryUnavailableError(Exception):
    """The registry could not be asked, or gave an answer that cannot be trusted. Change nothing."""


class NodeSource(Protocol):
    """The nodes that somebody else tracks; each call ends within its own deadline."""

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes that exist there, completely; ``RegistryUnavailableError``."""
