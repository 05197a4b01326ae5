"""The request queue as workers see it; its other half is ``store.Requests``.

Delivery is at least once. A claim is also the lock of the request's node: at no time are two
requests of one node claimed. Requests of one node come in the order in which they were put,
except for one that waits for its retry.
"""

from __future__ import annotations

from typing import Protocol

from ferroscope.domain.model import Claim
from ferroscope.ports.clock import StopFlag


class Queue(Protocol):
    """``get`` here; ``put``, ``consume`` and ``retry`` belong to a transaction of the store."""

    def get(self, holder: str, timeout: float, stop: StopFlag) -> Claim | None:
        """Claim the oldest request that is due and whose node is free, for the member ``holder``.

        Waits up to ``timeout`` seconds for one; None when the time is over or ``stop`` is set.
        What a member held whose heartbeat has expired is free. A request that is put wakes waiting
        workers up; one that only becomes free or due is found at the next poll. Raises ``StoreUnavailableError``.
        """
