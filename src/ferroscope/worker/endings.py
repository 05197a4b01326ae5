"""Which inspections are about to be ended, as one thread has read it for all that start machines.

Each start asks once a second, and hundreds may wait for their BMCs at the same time.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ferroscope.contracts.queue import Clock
from ferroscope.core.model import Request
from ferroscope.db.store import Store

# Seconds between two reads.
_READ_INTERVAL_SECONDS: Final = 1.0


class Endings:
    """One instance serves all threads of a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._by_node: Mapping[str, Sequence[Request]] = {}

    def of(self, node: str) -> Sequence[Request]:
        """Return the requests to end an inspection of the node, or to delete it, that no worker has claimed.

        They are those of a second ago, or of two. The thread that reads may raise ``StoreUnavailableError``; the others
        do not wait for it.
        """
        if self._clock.monotonic() - self._read_at >= _READ_INTERVAL_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()
        return self._by_node.get(node, ())

    def _read(self) -> None:
        now = self._clock.monotonic()
        by_node = defaultdict(list)
        for request in self._store.read(lambda tx: tx.requests.endings(), snapshot=False):
            by_node[request.node].append(request)
        self._by_node, self._read_at = by_node, now
