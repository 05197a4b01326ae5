"""Old inspections go, with their data and journal; a node's newest stays, and its newest good one.

Steps that belong to no inspection go by age alone, so that nobody can fill the journal with them. So do old
changes of MACs: the PXE gates have long since applied them, or read everything anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferroscope.ports.store import Fence, Store, Transaction

_BATCH: Final = 200
# Much longer than a gate goes without looking; whoever takes over reads everything.
_CHANGES_KEPT: Final = 3600.0
# To look for old steps is to read the whole journal.
_STEPS_EVERY: Final = 3600.0


class Retention:
    """A ``PeriodicTask``; ``threshold`` is how many seconds an ended inspection is kept (0: for ever).

    ``number`` is how many a node has at the most (0: any).
    """

    name = "periodic/retention"

    def __init__(self, store: Store, *, threshold: float, number: int = 0, period: float) -> None:
        self.period = period
        self._store = store
        self._threshold = threshold
        self._number = number
        self._steps_from = float("-inf")  # when, by the database's clock, the journal is next looked through

    def step(self, fence: Fence) -> str:
        """Delete one batch after the other, each in a transaction of its own."""
        removed = 0
        if self._threshold:
            removed += self._all(fence, lambda tx: tx.inspections.remove_ended(tx.now - self._threshold, _BATCH))
            self._remove_steps(fence)
        if self._number:
            removed += self._all(fence, lambda tx: tx.inspections.remove_surplus(self._number, _BATCH))
        changes = self._all(fence, lambda tx: tx.macs.forget(tx.now - _CHANGES_KEPT))
        return f"removed {removed} old inspections and {changes} old changes of MACs"

    def _remove_steps(self, fence: Fence) -> None:
        now = self._store.read(lambda tx: tx.now)
        if now < self._steps_from:
            return
        self._all(fence, lambda tx: tx.journal.remove_old(tx.now - self._threshold, _BATCH))
        self._steps_from = now + _STEPS_EVERY

    def _all(self, fence: Fence, remove: Callable[[Transaction], int]) -> int:
        def work(tx: Transaction) -> int:
            fence(tx)
            return remove(tx)

        removed = 0
        while batch := self._store.write(work):
            removed += batch
        return removed
