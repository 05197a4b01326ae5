"""Old inspections go, with their data and journal; a node's newest stays, and its newest good one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferroscope.periodic.singleton import Fence
from ferroscope.ports.store import Store, Transaction

_BATCH: Final = 200


class Retention:
    """A ``PeriodicTask``; ``threshold`` is how many seconds an ended inspection is kept (0: for ever).

    ``number`` is how many a node has at the most (0: any).
    """

    name = "periodic/retention"

    def __init__(self, store: Store, *, threshold: float, number: int = 0, period: float) -> None:
        self.period = period if threshold or number else 0.0
        self._store = store
        self._threshold = threshold
        self._number = number

    def step(self, fence: Fence) -> str:
        """Delete one batch after the other, each in a transaction of its own."""
        removed = 0
        if self._threshold:
            removed += self._all(fence, lambda tx: tx.inspections.remove_ended(tx.now - self._threshold, _BATCH))
        if self._number:
            removed += self._all(fence, lambda tx: tx.inspections.remove_surplus(self._number, _BATCH))
        return f"removed {removed} old inspections"

    def _all(self, fence: Fence, remove: Callable[[Transaction], int]) -> int:
        def work(tx: Transaction) -> int:
            fence(tx)
            return remove(tx)

        removed = batch = self._store.write(work)
        while batch == _BATCH:
            removed += (batch := self._store.write(work))
        return removed
