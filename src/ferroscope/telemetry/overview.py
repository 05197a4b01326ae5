"""Prometheus metrics of the whole service, which ``Overview`` reads from the database when it is scraped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.store import Backlog, Condition, Population
from ferroscope.core.model import Member
from ferroscope.core.notification import Tally
from ferroscope.core.states import Event
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.telemetry import finding
from ferroscope.telemetry.members import lanes_of


class Overview(Collector):
    """Gauges of the whole service, the same from every api process; a scrape takes six queries."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics' names without querying the store."""
        yield from (Metric(name, text, "gauge") for name, text in OVERVIEW.items())

    def collect(self) -> Iterator[Metric]:
        try:
            gauges = self._store.read(self._read)
        except StoreUnavailableError:
            up = _gauge("ferroscope_database_up")
            up.add_metric((), 0)
            yield up
            return
        yield from gauges

    def _read(self, tx: Transaction) -> list[Metric]:
        skew = self._clock.time() - tx.now
        up, ahead = _gauge("ferroscope_database_up"), _gauge("ferroscope_clock_skew_seconds")
        up.add_metric((), 1)
        ahead.add_metric((), skew)
        census = tx.statistics.census()
        return [
            up,
            ahead,
            *_queue(list(tx.statistics.backlog()), tx.now),
            _nodes(census.nodes),
            *_condition(census.condition),
            *_members(list(tx.members.list()), tx.now),
            *_leases(tx),
            *_events(list(tx.outbox.tallies()), tx.now),
        ]


# The metrics of the whole service, by name, with their help.
OVERVIEW: Final = {
    "ferroscope_database_up": "Whether the database was reachable during this scrape.",
    "ferroscope_clock_skew_seconds": "Seconds by which this host's clock is ahead of the database's.",
    "ferroscope_queue_requests": "Requests in the queue.",
    "ferroscope_queue_oldest_seconds": "Age of the oldest request in the queue.",
    "ferroscope_nodes": "Nodes by state.",
    "ferroscope_nodes_by_health": "Nodes by the health that their BMCs reported at the last inspection.",
    "ferroscope_nodes_with_failing_drives": "Nodes whose BMC reports a drive that failed or is about to fail.",
    "ferroscope_nodes_deviating": "Nodes whose hardware is not as expected.",
    "ferroscope_members": "Processes that are alive, or dead and not yet removed.",
    "ferroscope_members_missing": "Dead processes without a successor on their host.",
    "ferroscope_worker_slots": "Requests that the living workers can carry out at a time.",
    "ferroscope_worker_slots_busy": "Requests that the living workers are carrying out.",
    "ferroscope_lease_held": "Whether the lease is held.",
    "ferroscope_lease_epoch": "The lease's epoch; it increases with every new holder.",
    "ferroscope_lease_remaining_seconds": "Seconds until the lease expires without renewal.",
    "ferroscope_events": "Events in the outbox, by target: pending, delivered or dead (given up).",
    "ferroscope_events_oldest_pending_seconds": "Age of the target's oldest pending event.",
}


LABELS: Final = {
    "ferroscope_queue_requests": ("event", "claim"),
    "ferroscope_queue_oldest_seconds": ("event",),
    "ferroscope_nodes": ("state", "provision_state"),
    "ferroscope_nodes_by_health": ("health",),
    "ferroscope_members": ("role", "state"),
    "ferroscope_worker_slots": ("lane",),
    "ferroscope_worker_slots_busy": ("lane",),
    "ferroscope_lease_held": ("lease",),
    "ferroscope_lease_epoch": ("lease",),
    "ferroscope_lease_remaining_seconds": ("lease",),
    "ferroscope_events": ("target", "state"),
    "ferroscope_events_oldest_pending_seconds": ("target",),
}


def _gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, OVERVIEW[name], labels=LABELS.get(name, ()))


def _queue(rows: list[Backlog], now: float) -> list[Metric]:
    depth, oldest = (
        _gauge("ferroscope_queue_requests"),
        _gauge("ferroscope_queue_oldest_seconds"),
    )
    row_of_event = {row.event: row for row in rows}
    for event in Event:  # an event without requests is 0, not absent
        row = row_of_event.get(event)
        depth.add_metric((event, "waiting"), row.waiting if row else 0)
        depth.add_metric((event, "claimed"), row.claimed if row else 0)
        oldest.add_metric((event,), max(0.0, now - row.oldest) if row else 0.0)
    return [depth, oldest]


def _nodes(rows: list[Population]) -> Metric:
    nodes = _gauge("ferroscope_nodes")
    for row in rows:
        nodes.add_metric((row.state, row.provision_state), row.nodes)
    return nodes


def _condition(condition: Condition) -> list[Metric]:
    nodes, drives = _gauge("ferroscope_nodes_by_health"), _gauge("ferroscope_nodes_with_failing_drives")
    deviating = _gauge("ferroscope_nodes_deviating")
    for state in ("ok", "warning", "critical"):
        nodes.add_metric((state,), getattr(condition, state))
    drives.add_metric((), condition.failing_drives)
    deviating.add_metric((), condition.deviating)
    return [nodes, drives, deviating]


def _members(members: list[Member], now: float) -> list[Metric]:
    counts: dict[tuple[str, str], int] = {}
    lanes: dict[str, tuple[int, int]] = {}
    for member in members:
        alive = member.is_alive(now)
        key = (member.role, "alive" if alive else "dead")
        counts[key] = counts.get(key, 0) + 1
        for lane, lane_counts in lanes_of(member).items() if alive else ():
            slots, busy = lanes.get(lane, (0, 0))
            lanes[lane] = (slots + lane_counts.get("slots", 0), busy + lane_counts.get("busy", 0))
    gauge, missing = _gauge("ferroscope_members"), _gauge("ferroscope_members_missing")
    for key, count in sorted(counts.items()):
        gauge.add_metric(key, count)
    missing.add_metric((), len(finding.missing(members, now)))
    slots_of, busy_of = _gauge("ferroscope_worker_slots"), _gauge("ferroscope_worker_slots_busy")
    for lane, (slots, busy) in sorted(lanes.items()):
        slots_of.add_metric((lane,), slots)
        busy_of.add_metric((lane,), busy)
    return [gauge, missing, slots_of, busy_of]


def _leases(tx: Transaction) -> list[Metric]:
    held, epoch = _gauge("ferroscope_lease_held"), _gauge("ferroscope_lease_epoch")
    remaining = _gauge("ferroscope_lease_remaining_seconds")
    for lease in tx.leases.list(brief=True):
        held.add_metric((lease.name,), lease.held)
        epoch.add_metric((lease.name,), lease.epoch)
        remaining.add_metric((lease.name,), lease.remaining)
    return [held, epoch, remaining]


def _events(rows: list[Tally], now: float) -> list[Metric]:
    events, oldest = _gauge("ferroscope_events"), _gauge("ferroscope_events_oldest_pending_seconds")
    for row in rows:
        events.add_metric((row.target, row.state), row.events)
        if row.state == "pending":
            oldest.add_metric((row.target,), max(0.0, now - row.oldest))
    return [events, oldest]
