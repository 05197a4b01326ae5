"""Old inspections go, with their data and journal; a node's newest stays, and its newest good one."""

from __future__ import annotations

from typing import Final

from ferroscope.periodic.singleton import Fence
from ferroscope.ports.store import Store, Transaction

_BATCH: Final = 200


class Retention:
    """A ``PeriodicTask``; ``threshold`` is how many seconds an ended inspection is kept (0: for ever)."""

    name = "periodic/retention"

    def __init__(self, store: Store, *, threshold: float, period: float) -> None:
        self.period = period if threshold else 0.0
        self._store = store
        self._threshold = threshold

    def step(self, fence: Fence) -> str:
        """Delete one batch after the other, each in a transaction of its own."""

        def work(tx: Transaction) -> int:
            fence(tx)
            return tx.inspections.remove_ended(tx.now - self._threshold, _BATCH)

        removed = batch = self._store.write(work)
        while batch == _BATCH:
            removed += (batch := self._store.write(work))
        return f"removed {removed} old inspections"
