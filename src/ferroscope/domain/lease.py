"""A lease: a named, time-limited right of one holder, with an epoch that fences its writes.

Expiry is judged by the database's clock alone; the holder trusts its own clock for a shorter
time, measured from before it asked. Safety rests on the epoch, never on a clock.
"""

from __future__ import annotations

import msgspec


class Lease(msgspec.Struct, kw_only=True, frozen=True):
    """``epoch`` grows by one with every new holder; ``term`` is random for every acquisition.

    ``holder`` is None, and ``remaining`` 0, where the lease is free. ``remaining`` is in seconds,
    by the database's clock when it was read. ``data`` is whatever the holder wants to be known; ``source``
    is from where somebody took it by the API.
    """

    name: str
    holder: str | None
    epoch: int
    term: str
    duration: float
    acquired_at: float
    renewed_at: float
    expires_at: float
    remaining: float = 0.0
    data: str = ""
    source: str | None = None

    @property
    def held(self) -> bool:
        """Whether somebody had it when it was read."""
        return self.holder is not None and self.remaining > 0


class LeaseProfile(msgspec.Struct, kw_only=True, frozen=True):
    """How long a lease lives, how often it is renewed, how often candidates look; in seconds.

    ``margin`` is what the holder's trust ends earlier than the lease: the room for a clock that
    runs slower than the database's, and for the work to stop.
    """

    ttl: float = 6.0
    renew: float = 1.5
    poll: float = 0.5
    margin: float = 1.0


DEFAULT = LeaseProfile()
FAST = LeaseProfile(ttl=3.0, renew=0.5, poll=0.25, margin=0.5)


def trusted_until(asked_at: float, profile: LeaseProfile) -> float:
    """Return until when the holder may act on a lease for which it asked at ``asked_at``."""
    return asked_at + profile.ttl - profile.margin
