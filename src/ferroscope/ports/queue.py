"""The request queue as workers see it; its other half is ``store.Requests``.

Delivery is at least once. A claim is also the lock of the request's node: at no time are two
requests of one node claimed. Requests of one node come in the order in which they were put,
except for one that waits for its retry; and an operator's abort or deletion overtakes a start.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ferroscope.core.lanes import Lane
from ferroscope.core.model import Claim
from ferroscope.ports.clock import StopFlag

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
