"""Leases, members and steps of the database's clock, whose times are the database's; and coordination services.

The leases in SQL are the only truth about who leads. A coordination service only gives hints on who is alive.
"""

from __future__ import annotations

from typing import Protocol

# Coordination services, such as etcd, ZooKeeper or Redis; hints on who is alive, sooner than a lease expires.


class CoordinationUnavailableError(Exception):
    """The coordination service did not answer, or not as it should; the message shows no credentials."""


class CoordinationRefusedError(CoordinationUnavailableError):
    """It answered, and rejected our credentials or rights, or there is no way to ask it."""


class CoordinationService(Protocol):
    """One connection to a coordination service, for one member; used by one thread at a time.

    No locks and no elections of the service are used, because its idea of who holds them may be wrong. What it says
    must never be relied on for safety. All calls end within a few seconds.
    """

    def join(self) -> None:
        """Connect and become one of the members; again after any error. ``CoordinationUnavailableError``."""

    def alive(self) -> frozenset[str]:
        """Prolong our own session, if it has not expired; return the IDs of the members with a session.

        ``CoordinationUnavailableError``.
        """

    def wait(self, timeout: float) -> None:
        """Wait until the members may have changed, for at most ``timeout`` seconds, or until the process stops."""

    def leave(self) -> None:
        """End the session and the connection. Never raises."""
