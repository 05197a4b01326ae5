"""Leases, members and steps of the database's clock, whose times are the database's; and coordination services.

The leases in SQL are the only truth about who leads. A coordination service only gives hints on who is alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from ferroscope.core.model import Candidate, ClockStep, Lease, Member

# The lease on which all that this thread writes depends: the store holds it first in each transaction.
PRECONDITION: Final[ContextVar[Lease | None]] = ContextVar("PRECONDITION", default=None)


class Leases(Protocol):
    """Named leases, each with at most one holder at a time."""

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "", source: str = "") -> Lease:
        """Acquire the lease if it is free or expired, with a new epoch and a new token.

        The first epoch of a name exceeds those of all forgotten names, so the epochs of a name never decrease.

        ``LeaseHeldError`` if it is held, even by the same holder.
        """

    def take_over(self, lost: Lease, holder: str, duration: float, *, silent: float) -> Lease:
        """Acquire a lease that has not expired, from a holder that is thought to be dead; a new epoch and token.

        Only if ``lost`` is still its epoch, and its holder has not renewed it for ``silent`` seconds. From then on the
        fence rejects that holder's writes. It may still act outside the database, so only leaders that never do so may
        be replaced like this. ``LeaseHeldError`` if the condition does not hold; ``LeaseLostError`` as ``acquire``.
        """

    def renew(self, lease: Lease, duration: float, *, data: str | None = None) -> Lease:
        """Extend the lease from now on, even after it has expired, if it was not acquired again.

        ``LeaseLostError`` unless epoch and token are those of ``lease``.
        """

    def release(self, lease: Lease) -> None:
        """Release the lease, so that a successor need not wait for it to expire; ``LeaseLostError``."""

    def hold(self, lease: Lease) -> None:
        """Fence: no newer epoch can be issued before the end of this transaction.

        It *writes* the lease's row, and must be the first call in a leader's transaction. ``LeaseLostError``.
        """

    def list(self, prefix: str = "", *, brief: bool = False) -> Sequence[Lease]:
        """Return the leases whose name begins with ``prefix``, free ones too, by name; ``brief``: without data."""

    def forget(self, lease: Lease, *, held: bool = False) -> bool:
        """Delete this lease if it is free or expired and still has this epoch; return whether it was deleted.

        ``held``: also if it is held. Its holder finds out when it renews or is fenced.
        """

    def unused(self, seconds: float, limit: int) -> Sequence[Lease]:
        """Return leases that expired or were released ``seconds`` ago or earlier, without data, oldest first."""

    def candidates(self, name: str) -> Sequence[Candidate]:
        """Return who asked for the lease and was refused, and still counts as waiting for it, by name."""

    def add_candidate(self, name: str, holder: str, seconds: float) -> None:
        """Record that ``holder`` has asked; it counts for ``seconds``, and not more than 32 do for one name."""


class Members(Protocol):
    """The members: all running processes of the service."""

    def beat(self, member: Member, ttl: float) -> None:
        """Add the member, or renew it: it is alive for another ``ttl`` seconds."""

    def leave(self, ident: str, *, died: bool = False) -> None:
        """End the membership, and release the member's leases and claims at once.

        ``died``: because of what it did, so that the requests it held count this as an attempt (``core.losses``).
        """

    def list(self, *, left: bool = False) -> Sequence[Member]:
        """Return all members, including dead ones that have not been forgotten yet; ``left``: and those that left."""

    def forget(self, before: float) -> None:
        """Delete members that died or left before this time."""


class ClockSteps(Protocol):
    """The last hundred steps of the database's clock that members detected."""

    def list(self) -> Sequence[ClockStep]:
        """Return the steps in order; their numbers are consecutive."""

    def record(self, step: ClockStep, recent: float) -> None:
        """Record that the clock was set, and adjust the stored times; then do the same as ``shorten``.

        The times of unfinished inspections are shifted by the step, except those written less than ``recent`` seconds
        ago, which are already correct. ``ConflictError`` if a step with this number has been recorded.
        """

    def shorten(self) -> None:
        """Limit the remaining time of leases, heartbeats, retries and rejections to their configured durations."""


# Coordination services: etcd, ZooKeeper, Redis, Kubernetes; hints on who is alive, sooner than a lease expires.


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
