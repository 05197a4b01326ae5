"""Delivers the events of the outbox to their targets.

Each target has its own lane: a pool of threads that sends, while the leader reads the outbox and records results, under
the fence. So a step is always short, and a slow or dead target does not delay the others. The events of one node are
sent one after another; if one fails, the later ones of this node wait for it. A target that is down gets one event at a
time, with increasing delays.

Delays are kept in memory only: a new leader tries again at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import groupby
from typing import Final, NamedTuple

import structlog

from ferroscope.contracts.remote import Sender, SendError, Senders
from ferroscope.contracts.store import Clock
from ferroscope.contracts.telemetry import Meter
from ferroscope.core.notification import EventTally, OutboxEvent
from ferroscope.db import Fence, Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

# Seconds between two checks of an empty outbox; a notification reaches its target within this time.
OUTBOX_POLL_SECONDS: Final = 0.5
# Longest pause while a target is down: it gets one event a minute, so its return is noticed within a minute.
MAX_RETRY_DELAY_SECONDS: Final = 60.0
# An event that its target does not accept for this long, although it accepts others, is a dead letter: half a working
# day to repair the target.
RETRY_SECONDS: Final = 6 * 3600.0
# The most events that wait for one target: some days of the events of 10,000 machines, some 100 MB.
MAX_PENDING_EVENTS: Final = 100_000
# Delivered events are kept so that an operator can compare them with a target's.
DELIVERED_EVENTS_KEPT_SECONDS: Final = 86_400.0
# Dead letters, and events that wait for a target that was removed, outlast a weekend.
DEAD_LETTERS_KEPT_SECONDS: Final = 7 * 86_400.0
_STEP_SECONDS: Final = 1.0  # seconds, the maximum of one step
_PAGE_EVENTS: Final = 100  # events read at once, per target
_OF_ONE_NODE: Final = 16  # events sent one after another before the results are recorded
_FIRST_DELAY: Final = 1.0
# A target is down if it has failed for this many nodes without a success in between: one of them may be poison.
_FAILING_NODES: Final = 3
_MAX_WITHOUT: Final = 500  # nodes that are busy or wait for a retry; while there are more, no others are tried
_CENSUS_INTERVAL: Final = 10.0
_MOST_GIVEN_UP: Final = 10_000  # at once
_WARN_AFTER: Final = 300.0  # seconds for which a target may be down before the status of the service reports it

_log = structlog.get_logger(__name__)


class _DeliveryResult(NamedTuple):
    """The result for the events of one node: those that were confirmed, and the one that was not."""

    node: str
    confirmed: list[OutboxEvent]
    failed: OutboxEvent | None = None
    error: SendError | None = None


class _TargetLane:
    """The deliveries to one target."""

    def __init__(self, target: str, sender: Sender, clock: Clock) -> None:
        self.target = target
        self.error = ""
        self.down_since: float | None = None
        self._sender = sender
        self._clock = clock
        self._pool = ThreadPoolExecutor(sender.connections, f"notify {target}")
        self.running: set[Future[_DeliveryResult]] = set()
        self.unrecorded: list[_DeliveryResult] = []
        self._busy: set[str] = set()  # nodes with events on their way
        self._waiting: dict[str, tuple[float, int]] = {}  # node -> when to retry, and its failures in a row
        self._failing: set[str] = set()  # nodes that failed since the last success
        self._failures = 0  # of a target that is down, in a row
        self._closed = False
        self._look_at = 0.0

    @property
    def is_down(self) -> bool:
        return self.down_since is not None

    def fill(self, store: Store, idle: float) -> None:
        """Send more of the oldest events, if it is time for that and there is room."""
        now = self._clock.monotonic()
        room = (1 if self.is_down else 2 * self._sender.connections) - len(self.running)
        if room <= 0 or now < self._look_at:
            return
        without = self._busy | {node for node, (until, _) in self._waiting.items() if until > now}
        if len(without) > _MAX_WITHOUT:
            return
        limit = 1 if self.is_down else _PAGE_EVENTS
        due = store.read(lambda tx: tx.outbox.due(self.target, limit, without))
        if len(due) < limit:
            self._look_at = now + idle
        by_node = groupby(sorted(due, key=lambda event: (event.node, event.id)), key=lambda event: event.node)
        groups = sorted(([*events] for _, events in by_node), key=lambda events: events[0].id)
        for events in groups[:room]:
            self._busy.add(events[0].node)
            self.running.add(self._pool.submit(self._send, events[:_OF_ONE_NODE]))

    def collect(self) -> list[_DeliveryResult]:
        """Return all results that are not recorded yet."""
        done = {future for future in self.running if future.done()}
        self.running -= done
        self.unrecorded += [future.result() for future in done if not future.cancelled()]
        return self.unrecorded

    def settle(self, sent: _DeliveryResult, *, given_up: bool) -> None:
        """Allow the node's next event, as the result has been recorded; after a delay if it failed."""
        self._busy.discard(sent.node)
        now = self._clock.monotonic()
        if sent.confirmed:
            if self.is_down:
                _log.info("notification target is back", target=self.target)
                self._waiting = {node: (now, failures) for node, (_, failures) in self._waiting.items()}
                self._look_at = now
            self.down_since, self._failures, self.error = None, 0, ""
            self._failing.clear()
        if sent.error is None or given_up:
            self._waiting.pop(sent.node, None)
            return
        failures = self._waiting.get(sent.node, (0.0, 0))[1] + 1
        self._waiting[sent.node] = (now + self._delay(failures), failures)
        self._failing.add(sent.node)
        self._target_failed(sent.error, now)

    def _target_failed(self, error: SendError, now: float) -> None:
        self.error = str(error)
        if not self.is_down and len(self._failing) >= _FAILING_NODES:
            self.down_since = now
            _log.warning("notification target is down", target=self.target, error=self.error)
        pause = min(error.retry_after, MAX_RETRY_DELAY_SECONDS)
        if self.is_down:
            self._failures += 1
            pause = max(pause, self._delay(self._failures))
        self._look_at = max(self._look_at, now + pause)

    def _delay(self, failures: int) -> float:
        return float(min(_FIRST_DELAY * 2 ** min(failures - 1, 20), MAX_RETRY_DELAY_SECONDS))

    def _send(self, events: Sequence[OutboxEvent]) -> _DeliveryResult:
        confirmed: list[OutboxEvent] = []
        for event in events:
            if self._closed:
                break
            try:
                self._sender.send(event)
            except SendError as exc:
                return _DeliveryResult(event.node, confirmed, event, exc)
            except Exception as exc:  # noqa: BLE001  # a sender's bug must not stop the delivery to others
                _log.exception("sender failed", target=self.target, event_id=event.event)
                return _DeliveryResult(event.node, confirmed, event, SendError(f"internal error: {type(exc).__name__}"))
            confirmed.append(event)
        return _DeliveryResult(events[0].node, confirmed)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)


class Notifications:
    """A ``PeriodicTask``; ``problem`` is a finding for operators, if any. ``retry_for`` is in seconds."""

    name = "periodic/notifications"

    def __init__(
        self,
        store: Store,
        senders: Senders,
        *,
        clock: Clock,
        meter: Meter,
        period: float = OUTBOX_POLL_SECONDS,
        retry_for: float = RETRY_SECONDS,
        max_pending: int = MAX_PENDING_EVENTS,
    ) -> None:
        self.period = period
        self.problem: Finding | None = None
        self._store = store
        self._retry_for = retry_for
        self._max_pending = max_pending
        self._clock = clock
        self._meter = meter
        self._lanes = {target: _TargetLane(target, sender, clock) for target, sender in senders.items()}
        self._census_at = 0.0

    def step(self, leadership: StepLeadership) -> str:
        """Deliver for at most a second; return a status."""
        until = self._clock.monotonic() + _STEP_SECONDS
        delivered = failed = 0
        while True:
            leadership.keep_alive()
            for lane in self._lanes.values():
                for sent in self._record(lane, leadership.fence):
                    delivered += len(sent.confirmed)
                    failed += sent.failed is not None
                lane.fill(self._store, self.period)
            running = [future for lane in self._lanes.values() for future in lane.running]
            left = until - self._clock.monotonic()
            if not running or left <= 0:
                break
            wait(running, min(left, 0.1), FIRST_COMPLETED)
        self._take_census(leadership)
        down = [lane.target for lane in self._lanes.values() if lane.is_down]
        return f"{many(delivered, 'event')} delivered, {failed} failed" + (f"; down: {', '.join(down)}" if down else "")

    def close(self) -> None:
        """Send nothing new; events on their way stay pending and are sent again."""
        for lane in self._lanes.values():
            lane.close()

    def _record(self, lane: _TargetLane, fence: Fence) -> list[_DeliveryResult]:
        """Record all new results of the lane in one transaction, and return them."""
        results = lane.collect()
        if not results:
            return results

        def work(tx: Transaction) -> set[int]:
            fence(tx)
            tx.outbox.delivered([event.id for sent in results for event in sent.confirmed])
            given_up = set()
            for sent in results:
                if sent.failed is not None and sent.error is not None:
                    dead = sent.error.refused or (
                        not lane.is_down and not sent.error.unreachable and tx.now - sent.failed.at > self._retry_for
                    )
                    tx.outbox.failed(sent.failed.id, str(sent.error), dead=dead)
                    given_up |= {sent.failed.id} if dead else set()
            return given_up

        given_up = self._store.write(work, durable=False)
        lane.unrecorded = []
        for sent in results:
            lane.settle(sent, given_up=sent.failed is not None and sent.failed.id in given_up)
            for _ in sent.confirmed:
                self._meter.record_delivery(lane.target, "delivered")
            if sent.failed is not None:
                dead = sent.failed.id in given_up
                self._meter.record_delivery(lane.target, "dead" if dead else "failed")
                if dead:
                    _log.warning(
                        "event given up", target=lane.target, event_id=sent.failed.event, error=str(sent.error)
                    )
        return results

    def _take_census(self, leadership: StepLeadership) -> None:
        """Count the events, drop those beyond the limit, and find problems."""
        now = self._clock.monotonic()
        if now < self._census_at:
            return
        self._census_at = now + _CENSUS_INTERVAL

        def work(tx: Transaction) -> tuple[dict[str, EventTally], float]:
            leadership.fence(tx)
            pending = {tally.target: tally for tally in tx.outbox.tallies(["pending"])}
            for target, tally in pending.items():
                surplus = min(tally.events - self._max_pending, _MOST_GIVEN_UP)
                if surplus > 0:
                    tx.outbox.give_up_oldest(target, surplus, f"given up: more than {self._max_pending} events wait")
            return pending, tx.now

        pending, database_now = self._store.write(work, durable=False)
        self.problem = self._finding(pending, database_now, now)

    def _finding(self, pending: dict[str, EventTally], database_now: float, now: float) -> Finding | None:
        for lane in self._lanes.values():
            waiting = pending.get(lane.target)
            if lane.down_since is not None and now - lane.down_since > _WARN_AFTER:
                number = 0 if waiting is None else waiting.events
                summary = (
                    f"the notification target {lane.target} has been down for {now - lane.down_since:.0f} s "
                    f"({lane.error}); waiting for it: {many(number, 'event')}"
                )
                return Finding("notification-target-down", "wrong", summary, _advice(lane.target))
        for target, waiting in pending.items():
            if target not in self._lanes:
                summary = (
                    f"waiting for {target}, which is not a [notifications] target: {many(waiting.events, 'event')}"
                )
                days = DEAD_LETTERS_KEPT_SECONDS / 86_400.0
                advice = f"add it again, or wait: they are deleted after {days:g} days"
                return Finding("notification-target-unknown", "wrong", summary, advice)
            if database_now - waiting.oldest > _WARN_AFTER:
                summary = (
                    f"waiting for the notification target {target}: {many(waiting.events, 'event')}, the oldest one "
                    f"for {database_now - waiting.oldest:.0f} s"
                )
                return Finding("notifications-late", "wrong", summary, _advice(target))
        return None


def _advice(target: str) -> str:
    return f"check the target, then run: ferroscope events test {target}"
