"""Prometheus metrics of the whole service, which ``Overview`` reads from the database when it is scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.counts import Backlog, HardwareCondition, Population
from ferroscope.core.model import Lease
from ferroscope.core.notification import EventTally
from ferroscope.core.problems import Facts, list_problems
from ferroscope.core.states import Event
from ferroscope.db import Store, Transaction


class Overview(Collector):
    """Gauges of the whole service, almost the same from every api process; ``read_facts`` reads what status shows."""

    def __init__(self, store: Store, read_facts: Callable[[Transaction], Facts]) -> None:
        self._store = store
        self._read_facts = read_facts

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
        facts = self._read_facts(tx)
        up, ahead = _gauge("ferroscope_database_up"), _gauge("ferroscope_clock_skew_seconds")
        up.add_metric((), 1)
        ahead.add_metric((), facts.skew)
        return [
            up,
            ahead,
            _problems(facts),
            *_queue(facts.backlog, facts.now),
            _nodes(facts.census.nodes),
            *_condition(facts.census.condition),
            *_members(facts),
            *_leases(facts.leases),
            *_events(list(tx.outbox.tallies()), facts.now),
        ]


# The metrics of the whole service, by name, with their help.
OVERVIEW: Final = {
    "ferroscope_database_up": "Whether the database was reachable during this scrape.",
    "ferroscope_clock_skew_seconds": "Seconds by which this host's clock is ahead of the database's.",
    "ferroscope_problems": "Problems that ferroscope status lists, by code; wrong: the service is not healthy.",
    "ferroscope_queue_requests": "Requests in the queue.",
    "ferroscope_queue_oldest_seconds": "Age of the oldest request in the queue.",
    "ferroscope_nodes": "Nodes by state.",
    "ferroscope_nodes_by_health": "Nodes by the health that their BMCs reported at the last inspection.",
    "ferroscope_nodes_with_failing_drives": "Nodes whose BMC reports a drive that failed or is about to fail.",
    "ferroscope_nodes_deviating": "Nodes whose hardware is not as expected.",
    "ferroscope_members": "Processes that are alive, or dead and not yet removed.",
    "ferroscope_worker_slots": "Requests that the living workers can carry out at a time.",
    "ferroscope_worker_slots_busy": "Requests that the living workers are carrying out.",
    "ferroscope_lease_held": "Whether the lease is held.",
    "ferroscope_lease_epoch": "The lease's epoch; it increases with every new holder.",
    "ferroscope_lease_remaining_seconds": "Seconds until the lease expires without renewal.",
    "ferroscope_events": "Events in the outbox, by target: pending, delivered or dead (given up).",
    "ferroscope_events_oldest_pending_seconds": "Age of the target's oldest pending event.",
}


LABELS: Final = {
    "ferroscope_problems": ("code", "verdict"),
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


def _problems(facts: Facts) -> Metric:
    problems = _gauge("ferroscope_problems")
    for labels, number in Counter((problem.code, problem.verdict) for problem in list_problems(facts)).items():
        problems.add_metric(labels, number)
    return problems


def _queue(rows: Sequence[Backlog], now: float) -> list[Metric]:
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


def _nodes(rows: Sequence[Population]) -> Metric:
    nodes = _gauge("ferroscope_nodes")
    for row in rows:
        nodes.add_metric((row.state, row.provision_state), row.nodes)
    return nodes


def _condition(condition: HardwareCondition) -> list[Metric]:
    nodes, drives = _gauge("ferroscope_nodes_by_health"), _gauge("ferroscope_nodes_with_failing_drives")
    deviating = _gauge("ferroscope_nodes_deviating")
    for state in ("ok", "warning", "critical"):
        nodes.add_metric((state,), getattr(condition, state))
    drives.add_metric((), condition.failing_drives)
    deviating.add_metric((), condition.deviating)
    return [nodes, drives, deviating]


def _members(facts: Facts) -> list[Metric]:
    counts: dict[tuple[str, str], int] = {}
    lanes: dict[str, tuple[int, int]] = {}
    for member in facts.members:
        alive = facts.is_alive(member)
        key = (member.role, "alive" if alive else "dead")
        counts[key] = counts.get(key, 0) + 1
        for lane, lane_counts in member.lanes.items() if alive else ():
            slots, busy = lanes.get(lane, (0, 0))
            lanes[lane] = (slots + lane_counts.get("slots", 0), busy + lane_counts.get("busy", 0))
    gauge = _gauge("ferroscope_members")
    for key, count in sorted(counts.items()):
        gauge.add_metric(key, count)
    slots_of, busy_of = _gauge("ferroscope_worker_slots"), _gauge("ferroscope_worker_slots_busy")
    for lane, (slots, busy) in sorted(lanes.items()):
        slots_of.add_metric((lane,), slots)
        busy_of.add_metric((lane,), busy)
    return [gauge, slots_of, busy_of]


def _leases(leases: Sequence[Lease]) -> list[Metric]:
    held, epoch = _gauge("ferroscope_lease_held"), _gauge("ferroscope_lease_epoch")
    remaining = _gauge("ferroscope_lease_remaining_seconds")
    for lease in leases:
        held.add_metric((lease.name,), lease.held)
        epoch.add_metric((lease.name,), lease.epoch)
        remaining.add_metric((lease.name,), lease.remaining)
    return [held, epoch, remaining]


def _events(rows: list[EventTally], now: float) -> list[Metric]:
    events, oldest = _gauge("ferroscope_events"), _gauge("ferroscope_events_oldest_pending_seconds")
    for row in rows:
        events.add_metric((row.target, row.state), row.events)
        if row.state == "pending":
            oldest.add_metric((row.target,), max(0.0, now - row.oldest))
    return [events, oldest]
