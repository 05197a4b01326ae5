"""The request queue as workers see it, the message bus that wakes them up, and the clock and stop flag they use.

The queue's other half, ``store.Requests``, belongs to a transaction.

Delivery is at least once. A claim also locks the request's node: at no time are two
requests of one node claimed. Requests of one node are delivered in the order in which they were put,
except that one waiting for its retry is passed, and an operator's abort or deletion overtakes a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from ferroscope.core.lanes import Lane
from ferroscope.core.model import Claim

# The message bus: hints that something is ready. A lost message delays its receiver by a poll interval.


class Channel(StrEnum):
    """What changed: a request may be due, a lease may be free, a MAC may boot from now on, or no longer may."""

    REQUESTS = "requests"
    LEASES = "leases"
    ALLOW = "allow"
    DENY = "deny"


# The PXE filter listens to both.
MAC_CHANNELS: Final = (Channel.ALLOW, Channel.DENY)
_OF_LANES: Final = {lane: f"{Channel.REQUESTS} {lane}" for lane in Lane}


def requests_of(lane: Lane | None) -> str:
    """Return the channel of the requests of one lane, or of all."""
    return Channel.REQUESTS if lane is None else _OF_LANES[lane]


def channels_of(message: str) -> tuple[str, ...]:
    """Return the channels that a message moves: the one it names first, and for requests that of their lane.

    A message about requests that names no lane, as older releases send it, moves all of theirs.
    """
    channel = message.partition(" ")[0]
    if channel != Channel.REQUESTS:
        return (channel,)
    return (channel, message) if message in _OF_LANES.values() else (channel, *_OF_LANES.values())


class Bus(Protocol):
    """A message names a channel (see ``channels_of``), details may follow; the store always holds the truth.

    ``hears``: whether messages of other processes arrive here now, as far as is known.
    """

    hears: bool

    def publish(self, message: str) -> None:
        """Wake up all that wait for one of the message's channels; never raises."""

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        """Wait until ``channel`` has moved past ``seen``, for at most ``timeout`` seconds.

        Returns the channel's present position, to be passed as ``seen`` the next time; begin
        with 0. Reading the position *before* the store loses no wake-up.
        """

    def wait_any(self, channels: Sequence[str], seen: int, timeout: float) -> int:
        """Wait as ``wait`` does until one of ``channels`` has moved; the position is that of all together."""

    def close(self) -> None:
        """Stop listening and wake up all that wait."""


# Time and stopping: the only source of both, so that tests and simulations can drive them.


class StopFlag(Protocol):
    """Set once, when the process should stop; a ``threading.Event`` is one."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set or ``timeout`` seconds are over; True when it is set."""


class Clock(Protocol):
    """``time`` is for people and never compared between hosts; ``monotonic`` measures durations."""

    def time(self) -> float: ...

    def monotonic(self) -> float:
        """Seconds that also pass while the host is suspended (CLOCK_BOOTTIME)."""


# More networks than these cannot hold half of the slots each.
MOST_WITHOUT: Final = 2


class Take(msgspec.Struct, frozen=True):
    """Which requests: of one lane or of any; with a lane, none of these networks, ``MOST_WITHOUT`` of them at most."""

    lane: Lane | None = None
    without: tuple[str, ...] = ()


EVERYTHING: Final = Take()


class Queue(Protocol):
    """``get`` here; ``put``, ``consume`` and ``retry`` belong to a transaction of the store."""

    def get(self, holder: str, timeout: float, stop: StopFlag, take: Take = EVERYTHING) -> Claim | None:
        """Claim a request that is due and whose node is free, for the member ``holder``.

        The oldest one of those with the lowest ``lanes.priority_of``. Requests of a newer release (an event
        that is not known here, a higher version) are left, and so is whatever waits behind them for their node.
        Waits up to ``timeout`` seconds for one; None when the time is over or ``stop`` is set.
        What a member held whose heartbeat has expired is free. A request that is put wakes waiting
        workers up; one that only becomes free or due is found at the next poll. Raises ``StoreUnavailableError``.
        """
