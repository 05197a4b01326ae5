"""Deletes old inspections with their data and journal, except each node's newest and its newest successful one.

Journal steps without an inspection are deleted by age alone, so that the journal cannot be filled with them. So are old
MAC changes: the PXE filters have long since applied them, or read everything again. Access tokens that expired or were
revoked are kept for a while, for those who investigate what they were used for. What the failed-node controller of a
cluster knows of its nodes is deleted a while after its last run.

A run is bounded: it deletes in small transactions for a few seconds, and the next run continues. So a large backlog,
for example after ``retention`` was shortened, delays nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferroscope.contracts.queue import Clock
from ferroscope.core.values import many
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.leadership import StepLeadership

_BATCH: Final = 200
_RUN: Final = 10.0  # seconds, the maximum of one run
# Much longer than the time between two reads of a PXE filter; a new leader reads everything.
_CHANGES_KEPT: Final = 3600.0
_TOKENS_KEPT: Final = 90 * 86_400.0
# For so long the machines of a cluster are guarded whose failed-node controller has not run: more than a weekend.
_CLUSTERS_KEPT: Final = 3 * 86_400.0
# Finding old steps reads the whole journal.
_STEPS_EVERY: Final = 3600.0


class Retention:
    """A ``PeriodicTask``; ``threshold``: for how many seconds an ended inspection is kept (0: forever).

    ``number``: the maximum per node (0: unlimited); ``logs``: seconds for ramdisk logs (0: like the rest);
    ``audit``: seconds for audit events (0: forever); ``events``: seconds for delivered notifications and dead letters.
    """

    name = "periodic/retention"
    only_fenced = True

    def __init__(
        self,
        store: Store,
        *,
        threshold: float,
        number: int = 0,
        logs: float = 0.0,
        audit: float = 0.0,
        events: tuple[float, float] = (0.0, 0.0),
        period: float,
        clock: Clock,
    ) -> None:
        self.period = period
        self._store = store
        self._threshold = threshold
        self._number = number
        self._logs = logs
        self._audit = audit
        self._events = events
        self._clock = clock
        self._until = 0.0
        self._steps_from = float("-inf")  # when to search the journal next

    def step(self, leadership: StepLeadership) -> str:
        """Delete batch after batch, each in its own transaction."""
        self._until = self._clock.monotonic() + _RUN
        removed, ahead = 0, self._store.read(lambda tx: tx.clock_steps.ahead())
        if self._threshold:
            removed += self._all(
                leadership, lambda tx: tx.inspections.remove_ended(tx.now - self._threshold - ahead, _BATCH)
            )
        self._remove_steps(leadership, ahead)
        if self._number:
            removed += self._all(leadership, lambda tx: tx.inspections.remove_surplus(self._number, _BATCH))
        changes = self._all(leadership, lambda tx: tx.macs.forget(tx.now - _CHANGES_KEPT))
        delivered, dead = self._events
        self._all(
            leadership, lambda tx: tx.outbox.remove_old(tx.now - delivered - ahead, tx.now - dead - ahead, _BATCH)
        )
        self._all(leadership, lambda tx: tx.receipts.remove_old(_BATCH))
        self._all(leadership, lambda tx: tx.receipts.drop_replies(_BATCH))
        more = "; the next run continues" if self._is_over() else ""
        return f"removed {many(removed, 'old inspection')} and {many(changes, 'old MAC change')}{more}"

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._until

    def _remove_steps(self, leadership: StepLeadership, ahead: float) -> None:
        if self._clock.monotonic() < self._steps_from:
            return
        if self._threshold:
            self._all(leadership, lambda tx: tx.journal.remove_old(tx.now - self._threshold - ahead, _BATCH))
        if self._logs:
            self._all(leadership, lambda tx: tx.data.remove_logs(tx.now - self._logs - ahead, _BATCH))
        self._all(leadership, lambda tx: tx.access_tokens.remove_ended(tx.now - _TOKENS_KEPT - ahead, _BATCH))
        self._all(leadership, lambda tx: tx.web_sessions.remove_ended(tx.now - ahead, _BATCH))
        self._all(leadership, lambda tx: tx.failover_nodes.remove_old(tx.now - _CLUSTERS_KEPT - ahead))
        if self._audit:
            self._all(leadership, lambda tx: tx.audit.remove_old(tx.now - self._audit - ahead, _BATCH))
        if not self._is_over():  # otherwise the next run continues
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
