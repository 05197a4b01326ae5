"""The message bus: hints that something is ready. Losing a message costs a poll interval, no more."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol


class Channel(StrEnum):
    """What changed: there may be a request to claim, a lease to win, a MAC that may boot now or not any more."""

    REQUESTS = "requests"
    LEASES = "leases"
    ALLOW = "allow"
    DENY = "deny"


# Whoever follows which MACs may boot listens to both.
MAC_CHANNELS: Final = (Channel.ALLOW, Channel.DENY)


class Bus(Protocol):
    """``channel`` names what changed (see ``Channel``); the store always holds the truth about it.

    ``hears``: whether other processes' messages arrive here now, as far as is known.
    """

    hears: bool

    def publish(self, channel: str) -> None:
        """Wake up whoever listens to ``channel``, here or elsewhere; never raises."""

    def wait(self, channel: str, seen: int, timeout: float) -> int:
        """Wait until ``channel`` has moved past ``seen`` or ``timeout`` seconds are over.

        Returns the channel's present position, to be passed as ``seen`` the next time; begin
        with 0. Reading the position *before* looking at the store loses no wake-up.
        """

    def wait_any(self, channels: Sequence[str], seen: int, timeout: float) -> int:
        """Wait as ``wait`` does until one of ``channels`` has moved; the position is that of all together."""

    def close(self) -> None:
        """Stop listening and wake everybody up."""
