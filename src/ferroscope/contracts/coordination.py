"""Who leads, and who is there: leases and the members, by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ferroscope.core.model import ClockStep, Lease, Member


class Leases(Protocol):
    """Named rights of one holder at a time; time is the database's."""

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "", source: str = "") -> Lease:
        """Take the lease where it is free or expired: a new epoch, a new token.

        The first epoch of a name is greater than any of a name that was forgotten, so none ever goes back.

        ``LeaseHeldError`` where somebody, the same holder too, has it.
        """

    def renew(self, lease: Lease, duration: float, *, data: str | None = None) -> Lease:
        """Extend the lease from now on, also after it expired while nobody else took it.

        ``LeaseLostError`` unless epoch and token are those of ``lease``.
        """

    def release(self, lease: Lease) -> None:
        """Free the lease, so that a successor need not wait; ``LeaseLostError``."""

    def hold(self, lease: Lease) -> None:
        """Fence: from here to the end of the transaction no newer epoch can be issued.

        It *writes* the lease's row; a leader's transaction begins with this. ``LeaseLostError``.
        """

    def list(self, prefix: str = "", *, brief: bool = False) -> Sequence[Lease]:
        """Return the leases whose name begins with ``prefix``, free ones too, by name; ``brief``: without data."""

    def forget(self, lease: Lease) -> bool:
        """Delete this lease if it is free, or expired, in this epoch still; whether it was."""

    def unused(self, seconds: float, limit: int) -> Sequence[Lease]:
        """Return leases that nobody has held for so long, in brief, those not used for longest first."""


class Members(Protocol):
    """The members: every running process of the service."""

    def beat(self, member: Member, ttl: float) -> None:
        """Announce the member, alive for another ``ttl`` seconds of the database's clock."""

    def leave(self, ident: str) -> None:
        """Forget the member; whatever it held is free at once."""

    def list(self) -> Sequence[Member]:
        """Return all members, dead ones too until they are swept."""


class ClockSteps(Protocol):
    """The times when the database's clock was set, as members noticed, the last hundred of them."""

    def list(self) -> Sequence[ClockStep]:
        """Return them in their order; numbers go up by one."""

    def record(self, step: ClockStep, recent: float) -> None:
        """Note that the clock was set, and move along what would be wrong by that; then the same as ``shorten``.

        The clocks of unfinished inspections go on as if it had not been set; those that were written less than
        ``recent`` seconds ago are right. ``ConflictError`` where somebody else has noted a step of this number.
        """

    def shorten(self) -> None:
        """Let nothing last for longer from now on than it was meant to: leases, heartbeats, pauses, rejections."""
