"""The queue as workers see it, over the store in memory.

All waiting is done by the bus and measured by the clock; with a simulated pair of them no real
time passes here.
"""

from __future__ import annotations

from ferroscope.adapters.memory.store import MemoryStore
from ferroscope.domain.model import Claim
from ferroscope.ports.bus import Bus, Channel
from ferroscope.ports.clock import Clock, StopFlag
from ferroscope.ports.queue import EVERYTHING, Take


class MemoryQueue:
    """``ports.queue.Queue``.

    ``poll_interval`` seconds bound how late a retry that falls due, a claim that becomes free by
    time alone, or the stop flag is noticed; what is put is noticed at once.
    """

    def __init__(self, store: MemoryStore, *, bus: Bus, clock: Clock, poll_interval: float) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._poll_interval = poll_interval

    def get(self, holder: str, timeout: float, stop: StopFlag, take: Take = EVERYTHING) -> Claim | None:
        deadline = self._clock.monotonic() + timeout
        seen = 0
        while not stop.is_set():
            seen = self._bus.wait(Channel.REQUESTS, seen, 0.0)
            claim = self._store.claim(holder, take)
            remaining = deadline - self._clock.monotonic()
            if claim is not None or remaining <= 0:
                return claim
            self._bus.wait(Channel.REQUESTS, seen, min(remaining, self._poll_interval))
        return None
