"""Deletes old inspections with their data and journal, except each node's newest and its newest successful one.

Journal steps without an inspection are deleted by age alone, so that the journal cannot be filled with them. So are old
MAC changes: the PXE filters have long since applied them, or read everything again. Expired and revoked access tokens
are kept for a while, so that their use can be investigated. The failed-node controller's records about its nodes are
deleted a while after its last run.

A run is bounded: it deletes in small transactions for a few seconds, and the next run continues. So a large backlog,
for example after ``retention`` was shortened, delays nothing else. No statement reads more than a page of a table that
grows with the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ferroscope.contracts.store import Clock, OldRows
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope_client.core.values import many

_PAGE_ROWS: Final = 1000
# Rows that a transaction deletes, each with its data and journal.
_BATCH_ROWS: Final = 200
_RUN_SECONDS: Final = 10.0
# Much longer than the time between two reads of a PXE filter; a new leader reads everything.
_CHANGES_KEPT_SECONDS: Final = 3600.0
_TOKENS_KEPT_SECONDS: Final = 90 * 86_400.0
# Seconds for which the machines of a cluster stay guarded without its failed-node controller: more than a weekend.
_CLUSTERS_KEPT_SECONDS: Final = 3 * 86_400.0
# Kept inspections are checked again: a newer one may have superseded them.
_AGAIN_SECONDS: Final = 3600.0


class _Walk(msgspec.Struct):
    """A walk through a table, page by page. Each run continues where the last one ended.

    ``find`` returns the old rows on the page after a key; ``remove`` deletes them, and returns their number.
    """

    find: Callable[[Transaction, Any, float], OldRows]
    remove: Callable[[Transaction, Sequence[Any]], int]
    after: Any = None
    began: float = float("-inf")


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
        self._clock = clock
        self._until = 0.0
        self._inspections = self._walks_of_inspections()
        self._others = self._other_walks(*events)

    def _walks_of_inspections(self) -> list[_Walk]:
        walks = []
        if self._threshold:
            walks.append(
                _Walk(
                    lambda tx, after, ahead: tx.inspections.find_ended(
                        tx.now - self._threshold - ahead, after, _PAGE_ROWS
                    ),
                    lambda tx, uuids: tx.inspections.remove(uuids),
                )
            )
        if self._number:
            walks.append(
                _Walk(
                    lambda tx, after, _ahead: tx.inspections.find_surplus(self._number, after, _PAGE_ROWS),
                    lambda tx, uuids: tx.inspections.remove(uuids),
                )
            )
        return walks

    def _other_walks(self, delivered: float, dead: float) -> list[_Walk]:
        def find_events(tx: Transaction, after: Any, ahead: float) -> OldRows:
            now = tx.now - ahead
            return tx.outbox.find_old(now - delivered, now - dead, after, _PAGE_ROWS)

        def find_logs(tx: Transaction, after: Any, ahead: float) -> OldRows:
            ended = tx.inspections.find_ended(tx.now - self._logs - ahead, after, _PAGE_ROWS, superfluous=False)
            return msgspec.structs.replace(ended, keys=tx.data.find_logs(ended.keys))

        walks = [_Walk(find_events, lambda tx, ids: tx.outbox.remove(ids))]
        if self._threshold:
            walks.append(
                _Walk(
                    lambda tx, after, ahead: tx.journal.find_old(tx.now - self._threshold - ahead, after, _PAGE_ROWS),
                    lambda tx, ids: tx.journal.remove(ids),
                )
            )
        if self._logs:
            walks.append(_Walk(find_logs, lambda tx, uuids: tx.data.remove_logs(uuids)))
        return walks

    def step(self, leadership: StepLeadership) -> str:
        """Delete batch after batch, each in its own transaction."""
        self._until = self._clock.monotonic() + _RUN_SECONDS
        ahead = self._store.read(lambda tx: tx.clock_steps.ahead())
        changes = self._remove_all(leadership, lambda tx: tx.macs.forget(tx.now - _CHANGES_KEPT_SECONDS))
        self._remove_all(leadership, lambda tx: tx.receipts.remove_old(_BATCH_ROWS))
        self._remove_all(leadership, lambda tx: tx.receipts.drop_replies(_BATCH_ROWS))
        self._remove_all(
            leadership, lambda tx: tx.access_tokens.remove_ended(tx.now - _TOKENS_KEPT_SECONDS - ahead, _BATCH_ROWS)
        )
        self._remove_all(leadership, lambda tx: tx.web_sessions.remove_ended(tx.now - ahead, _BATCH_ROWS))
        self._remove_all(leadership, lambda tx: tx.failover_nodes.remove_old(tx.now - _CLUSTERS_KEPT_SECONDS - ahead))
        if self._audit:
            self._remove_all(leadership, lambda tx: tx.audit.remove_old(tx.now - self._audit - ahead, _BATCH_ROWS))
        for walk in self._others:
            self._go_on(leadership, walk, ahead)
        removed = sum(self._go_on(leadership, walk, ahead) for walk in self._inspections)
        more = "; the next run continues" if self._is_over() else ""
        return f"removed {many(removed, 'old inspection')} and {many(changes, 'old MAC change')}{more}"

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._until

    def _go_on(self, leadership: StepLeadership, walk: _Walk, ahead: float) -> int:
        """Delete the old rows on the next pages of the table; return their number."""
        if self._clock.monotonic() >= walk.began + _AGAIN_SECONDS:
            walk.after, walk.began = None, self._clock.monotonic()
        removed = 0
        while not self._is_over():
            leadership.keep_alive()
            page = self._store.read(lambda tx: walk.find(tx, walk.after, ahead))
            for first in range(0, len(page.keys), _BATCH_ROWS):
                batch = page.keys[first : first + _BATCH_ROWS]
                removed += self._write(leadership, walk.remove, batch)
            walk.after = page.after
            if page.is_last:
                break
        return removed

    def _remove_all(self, leadership: StepLeadership, remove: Callable[[Transaction], int]) -> int:
        removed = 0
        while not self._is_over():
            leadership.keep_alive()
            batch = self._write(leadership, remove)
            removed += batch
            if not batch:
                break
        return removed

    def _write(self, leadership: StepLeadership, remove: Callable[..., int], *keys: Sequence[Any]) -> int:
        def work(tx: Transaction) -> int:
            leadership.fence(tx)
            return remove(tx, *keys)

        return self._store.write(work)
