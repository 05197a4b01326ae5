"""Counts a large fleet for those who look at it, so that no look at the status or the wiring reads all machines."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.store import Clock
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership

COUNT_SECONDS: Final = 10.0
# What changes with the hardware only.
_HARDWARE_SECONDS: Final = 60.0
# A twentieth of a processor at most counts; results live longer than the longest pause.
_PAUSE_FACTOR: Final = 20.0
_MAX_COUNT_SECONDS: Final = 120.0


class Counts:
    """A ``PeriodicTask``."""

    name = "periodic/counts"
    only_fenced = True

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.period = COUNT_SECONDS
        self._hardware_at = float("-inf")

    def step(self, leadership: StepLeadership) -> str:
        """Count once, or forget what was counted of a fleet that is no longer large; return a status."""
        keep_alive, began = leadership.keep_alive, self._clock.monotonic()
        is_needed, is_stored = self._store.read(lambda tx: (tx.counted_ahead.is_needed(), tx.counted_ahead.is_stored()))
        if not (is_needed or is_stored):
            return "nothing to count ahead: the fleet is small"
        counts: dict[str, msgspec.Struct] = {}
        if is_needed:
            counts["fleet"] = self._store.read(lambda tx: tx.statistics.count_fleet(keep_alive))
        if is_needed and self._clock.monotonic() > self._hardware_at + _HARDWARE_SECONDS:
            counts["identities"] = self._store.read(lambda tx: tx.search_index.find_shared_identities())
            keep_alive()
            counts["wiring"] = self._store.read(lambda tx: tx.cabling.count(keep_alive))
            self._hardware_at = self._clock.monotonic()

        def work(tx: Transaction) -> None:
            leadership.fence(tx)
            if not is_needed:
                tx.counted_ahead.clear()
            for name, counted in counts.items():
                tx.counted_ahead.put(name, counted)

        self._store.write(work, durable=False)
        took = self._clock.monotonic() - began
        self.period = min(max(COUNT_SECONDS, took * _PAUSE_FACTOR), _MAX_COUNT_SECONDS)
        return f"counted {', '.join(counts) or 'nothing: the fleet is small by now'}"
