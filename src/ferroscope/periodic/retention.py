"""Old inspections go, with their data and journal; a node's newest stays, and its newest good one.

Steps that belong to no inspection go by age alone, so that nobody can fill the journal with them. So do old
changes of MACs: the PXE filters have long since applied them, or read everything anew.

A run is bounded: whatever there is to delete, it is one small transaction after the other for a few seconds, and
the next run goes on with it. So a great backlog, such as a shorter ``retention`` leaves, keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferroscope.contracts.queue import Clock
from ferroscope.contracts.store import StepLeadership, Store, Transaction

_BATCH: Final = 200
_RUN: Final = 10.0  # seconds, at most, until the next run
# Much longer than a PXE filter goes without looking; whoever takes over reads everything.
_CHANGES_KEPT: Final = 3600.0
# To look for old steps is to read the whole journal.
_STEPS_EVERY: Final = 3600.0


class Retention:
    """A ``PeriodicTask``; ``threshold`` is how many seconds an ended inspection is kept (0: for ever).

    ``number`` is how many a node has at the most (0: any), ``logs`` the seconds for ramdisks' logs (0: as the rest).
    """

    name = "periodic/retention"

    def __init__(
        self, store: Store, *, threshold: float, number: int = 0, logs: float = 0.0, period: float, clock: Clock
    ) -> None:
        self.period = period
        self._store = store
        self._threshold = threshold
        self._number = number
        self._logs = logs
        self._clock = clock
        self._until = 0.0
        self._steps_from = float("-inf")  # when the journal is next looked through

    def step(self, leadership: StepLeadership) -> str:
        """Delete one batch after the other, each in a transaction of its own."""
        self._until = self._clock.monotonic() + _RUN
        removed, ahead = 0, self._store.read(_ahead)
        if self._threshold:
            removed += self._all(
                leadership, lambda tx: tx.inspections.remove_ended(tx.now - self._threshold - ahead, _BATCH)
            )
        self._remove_steps(leadership, ahead)
        if self._number:
            removed += self._all(leadership, lambda tx: tx.inspections.remove_surplus(self._number, _BATCH))
        changes = self._all(leadership, lambda tx: tx.macs.forget(tx.now - _CHANGES_KEPT))
        more = "; the next run goes on" if self._is_over() else ""
        return f"removed {removed} old inspections and {changes} old changes of MACs{more}"

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._until

    def _remove_steps(self, leadership: StepLeadership, ahead: float) -> None:
        if self._clock.monotonic() < self._steps_from:
            return
        if self._threshold:
            self._all(leadership, lambda tx: tx.journal.remove_old(tx.now - self._threshold - ahead, _BATCH))
        if self._logs:
            self._all(leadership, lambda tx: tx.data.remove_logs(tx.now - self._logs - ahead, _BATCH))
        if not self._is_over():  # else the next run goes on with it
            self._steps_from = self._clock.monotonic() + _STEPS_EVERY

    def _all(self, leadership: StepLeadership, remove: Callable[[Transaction], int]) -> int:
        def work(tx: Transaction) -> int:
            leadership.fence(tx)
            return remove(tx)

        removed = 0
        while not self._is_over():
            leadership.keep_alive()
            batch = self._store.write(work)
            removed += batch
            if not batch:
                break
        return removed


def _ahead(tx: Transaction) -> float:
    """Return by how much the clock may be ahead, because somebody has set it: nothing is too old by that."""
    return max(0.0, sum(step.seconds for step in tx.clock_steps.list()))
