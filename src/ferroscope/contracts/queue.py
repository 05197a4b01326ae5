"""What a worker says of the requests that it takes from the queue, the message bus, and the clock and stop flag."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from ferroscope.core.lanes import Lane

# The message bus: hints that something is ready. A lost message delays its receiver by a poll interval.


class Channel(StrEnum):
    """The kind of change: a request may be due, a lease may be free, a MAC may now boot, or may no longer boot."""

    REQUESTS = "requests"
    LEASES = "leases"
    ALLOW = "allow"
    DENY = "deny"


# The channels of the PXE filter.
MAC_CHANNELS: Final = (Channel.ALLOW, Channel.DENY)
REQUESTS_OF: Final[dict[Lane | None, str]] = {lane: f"{Channel.REQUESTS} {lane}" for lane in Lane} | {
    None: Channel.REQUESTS
}
"""The channel for the requests of a lane; None: of all lanes."""


class Publisher(Protocol):
    """Where messages go. A message is a channel's name, optionally with details; only a hint.

    One about the requests of a lane advances also the channel of all requests; one about requests without a lane, as
    older releases send, the channels of all lanes.
    """

    def publish(self, message: str) -> None:
        """Wake up all threads that wait for one of the message's channels; never waits for others, never raises."""


class Bus(Publisher, Protocol):
    """A message bus."""

    @property
    def hears(self) -> bool:
        """Whether, as far as is known, messages of other processes are being received."""

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        """Wait until the position of ``channel`` exceeds ``seen``, for at most ``timeout`` seconds.

        Returns the channel's current position, to be passed as ``seen`` next time; begin with 0. To lose no wake-up,
        read the position *before* reading the store.
        """

    def wait_any(self, channels: Sequence[str], seen: int, timeout: float) -> int:
        """Like ``wait``, for several channels; the position is that of all of them together."""

    def close(self) -> None:
        """Stop listening and wake up all waiting threads."""


# The only source of time and of stop requests, so that tests and simulations can control them.


class StopFlag(Protocol):
    """Set once, when the process should stop; implemented by ``threading.Event``."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, for at most ``timeout`` seconds; return whether it is set."""


class Clock(Protocol):
    """``time`` is for display and never compared between hosts; ``monotonic`` measures durations."""

    def time(self) -> float: ...

    def monotonic(self) -> float:
        """Return seconds, including time during which the host is suspended (CLOCK_BOOTTIME)."""


# The maximum number of excluded networks: at most two can occupy half of the slots each.
MOST_WITHOUT: Final = 2


class Take(msgspec.Struct, frozen=True):
    """Which requests to claim: of one lane or of any; with a lane, up to ``MOST_WITHOUT`` networks to exclude."""

    lane: Lane | None = None
    without: tuple[str, ...] = ()


EVERYTHING: Final = Take()
