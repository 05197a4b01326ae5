"""Fetches the results of an ironic-inspector, after callbacks were forwarded to it.

So the inventory of a known node is complete, regardless of the service that inspected the machine. The api notes each
callback that the other service accepted on the timeline, where this task finds what to fetch. Results that were fetched
before are recognized, so a new leader looks an hour back. Each is tried until the introspection has ended there, or for
so long that it never will. Source: the merge specification, by which the inventory API also serves what the old service
has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.remote import ForwardError, Introspected, IntrospectionSource
from ferroscope.contracts.store import Query
from ferroscope.core.model import ACCEPTED_AS, FORWARDED, Entry, Severity
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership

_log = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 5.0
# Seconds for which an introspection is asked for, from its callback on; and for which a new leader looks back.
_PATIENCE_SECONDS: Final = 600.0
_LOOK_BACK_SECONDS: Final = 3600.0
# A commit may become visible after one with a later time.
_OVERLAP_SECONDS: Final = 60.0
_ENTRIES_PER_PAGE: Final = 500
# Then the other service is probably unavailable, and the rest waits for the next step.
_MAX_FAILURES: Final = 3
_IN_PROGRESS: Final = "it has not ended there"
_CHECK_SECONDS: Final = 0.1

# Returns a function that stores an introspection in a transaction and returns the result; ``ValueError`` for bad data.
Prepare = Callable[[Introspected], Callable[[Transaction], str]]


class _PendingFetch(msgspec.Struct):
    """``entry`` is on the timeline of the node that called; ``node`` is the one there, by its UUID."""

    entry: Entry
    node: str


class InspectedElsewhere:
    """A ``PeriodicTask``."""

    name = "periodic/inspected-elsewhere"
    only_fenced = True
    period = _PERIOD_SECONDS

    def __init__(self, store: Store, source: IntrospectionSource, prepare: Prepare, *, process: str) -> None:
        self._store, self._source, self._prepare, self._process = store, source, prepare, process
        self._pending: dict[str, _PendingFetch] = {}
        self._seen: dict[str, float] = {}  # entries by their UUID, and their time
        self._looked_at: float | None = None
        # A separate thread, because the leader must call keep_alive while the other service answers slowly.
        self._pool = ThreadPoolExecutor(1, "inspected-elsewhere")

    def step(self, leadership: StepLeadership) -> str:
        """Fetch what has ended there; return a status."""
        now = self._look(leadership)
        fetched = failed = 0
        for key, pending in list(self._pending.items()):
            leadership.keep_alive()
            why = self._fetch(pending, leadership)
            del self._pending[key]
            if why is None:
                fetched += 1
            elif now - pending.entry.at < _PATIENCE_SECONDS:
                self._pending[key] = pending  # as the last one
            else:
                self._give_up(pending, why, leadership)
            failed += why not in (None, _IN_PROGRESS)
            if failed == _MAX_FAILURES:
                break
        return f"{fetched} introspections fetched, {len(self._pending)} in progress there"

    def close(self) -> None:
        """Stop asking."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._source.close()

    def _look(self, leadership: StepLeadership) -> float:
        """Find the callbacks that were forwarded since the last look; return the time of the database."""
        now = self._store.read(lambda tx: tx.now)
        since = now - _LOOK_BACK_SECONDS if self._looked_at is None else self._looked_at - _OVERLAP_SECONDS
        for entry in self._entries(since, leadership):
            node = entry.detail.get(ACCEPTED_AS)
            if entry.step == FORWARDED and isinstance(node, str) and entry.uuid not in self._seen:
                self._seen[entry.uuid] = entry.at
                self._pending[node] = _PendingFetch(entry, node)
        self._seen = {uuid: at for uuid, at in self._seen.items() if at >= since}
        self._looked_at = now
        return now

    def _entries(self, since: float, leadership: StepLeadership) -> Iterator[Entry]:
        """Yield the entries of the journal from then on, the newest first."""
        before: dict[str, float] = {}
        while True:
            leadership.keep_alive()
            query = Query(sort_key="id", descending=True, limit=_ENTRIES_PER_PAGE, before=before)
            page = self._store.read(lambda tx, query=query: tx.journal.list(query))  # type: ignore[misc]
            for entry in page:
                if entry.at < since:
                    return
                yield entry
            if len(page) < _ENTRIES_PER_PAGE:
                return
            before = {"id": page[-1].id}

    def _fetch(self, pending: _PendingFetch, leadership: StepLeadership) -> str | None:
        """Fetch and store it; return why that is impossible yet, None if it is done."""
        call = self._pool.submit(self._source.ended, pending.node)
        while not wait([call], _CHECK_SECONDS).done:
            leadership.keep_alive()
        try:
            introspected = call.result()
            if introspected is None:
                return _IN_PROGRESS
            save = self._prepare(introspected)
        except (ForwardError, ValueError) as exc:
            return str(exc)

        def work(tx: Transaction) -> str:
            leadership.fence(tx)
            return save(tx)

        result = self._store.write(work)
        _log.info("introspection fetched from ironic-inspector", node=pending.node, result=result)
        return None

    def _give_up(self, pending: _PendingFetch, why: str, leadership: StepLeadership) -> None:
        _log.warning("cannot fetch an introspection from ironic-inspector", node=pending.node, error=why)
        message = f"what ironic-inspector has found was not fetched ({why}); run: ferroscope import inspector"
        entry = msgspec.structs.replace(
            pending.entry,
            step="import",
            message=message,
            process=self._process,
            severity=Severity.WARNING,
            detail={},
            at=0.0,
            id=0,
            uuid="",
        )

        def work(tx: Transaction) -> None:
            leadership.fence(tx)
            try:
                tx.nodes.get(entry.node)
            except NotFoundError:
                return
            tx.journal.append([entry])

        self._store.write(work)
