"""Prometheus metrics of one process, and of the whole service.

``Metrics`` is the ``Meter`` of a process; ``Overview`` queries the store when it is scraped. Label values come from
fixed tables, so that callers cannot increase the cardinality.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.metrics import Moved
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.store import Backlog, Population, Store, Transaction
from ferroscope.core.model import Member
from ferroscope.core.notification import Tally
from ferroscope.core.states import TRANSITIONS, Event
from ferroscope.telemetry import log

_WORK_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_HTTP_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """See ``contracts.metrics.Meter``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._transitions = Counter(
            "ferroscope_transitions", "Transitions of the nodes' state machine.",
            ("source", "event", "target"), registry=registry,
        )  # fmt: skip
        self._requests = Counter(
            "ferroscope_requests", "Attempts at requests by this worker; lost: another worker took over the claim.",
            ("event", "outcome"), registry=registry,
        )  # fmt: skip
        self._request_seconds = Histogram(
            "ferroscope_request_seconds", "Duration of one attempt at a request.",
            ("event",), buckets=_WORK_SECONDS, registry=registry,
        )  # fmt: skip
        self._http = Counter(
            "ferroscope_http_requests", "HTTP requests handled by this api process.",
            ("method", "route", "status"), registry=registry,
        )  # fmt: skip
        self._http_seconds = Histogram(
            "ferroscope_http_request_seconds", "Duration of an HTTP request.",
            ("method", "route"), buckets=_HTTP_SECONDS, registry=registry,
        )  # fmt: skip
        self._db_errors = Counter(
            "ferroscope_database_errors", "Transactions that were retried (busy) or failed (unavailable).",
            ("kind",), registry=registry,
        )  # fmt: skip
        self._renewals = Counter(
            "ferroscope_lease_renewal_failures", "Lease renewals that were refused or failed.",
            ("lease",), registry=registry,
        )  # fmt: skip
        self._pxe_filter_open = Gauge(
            "ferroscope_pxe_filter_open", "Whether this host's PXE filter is open.", ("network",), registry=registry
        )
        self._pxe_filter_macs = Gauge(
            "ferroscope_pxe_filter_macs",
            "MAC addresses in the sets of this host's PXE filter.",
            ("network", "list"),
            registry=registry,
        )
        self._pxe_filter_seconds = Histogram(
            "ferroscope_pxe_filter_change_seconds", "Time taken to apply a change to the PXE filter's sets.",
            buckets=_HTTP_SECONDS, registry=registry,
        )  # fmt: skip
        self._discoveries = Counter(
            "ferroscope_discoveries", "Callbacks of unknown machines, by outcome, if discovery is enabled.",
            ("outcome",), registry=registry,
        )  # fmt: skip
        self._failover = Counter(
            "ferroscope_failover_steps", "Steps of the remediation of Kubernetes nodes by this process.",
            ("step",), registry=registry,
        )  # fmt: skip
        self._forwarded = Counter(
            "ferroscope_callbacks_forwarded", "Callbacks for ironic-inspector; busy: not forwarded.",
            ("outcome",), registry=registry,
        )  # fmt: skip
        self._notifications = Counter(
            "ferroscope_event_deliveries", "Attempts to deliver an event to a target; dead: it was given up.",
            ("target", "outcome"), registry=registry,
        )  # fmt: skip
        for row in TRANSITIONS:
            self._transitions.labels(row.source, row.event, row.target)
        for kind in ("busy", "unavailable"):
            self._db_errors.labels(kind)
        for outcome in ("discovered", "limited", "rejected"):
            self._discoveries.labels(outcome)
        for outcome in ("accepted", "refused", "failed", "busy"):
            self._forwarded.labels(outcome)

    def instruments(self) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
        """Yield name, type, labels and help of all metrics."""
        for one in vars(self).values():
            if isinstance(one, Counter | Gauge | Histogram):
                for family in one.describe():
                    suffix = "_total" if family.type == "counter" else ""
                    yield family.name + suffix, family.type, one._labelnames, family.documentation

    def moved(self, moved: Moved) -> None:
        transition = moved.transition
        self._transitions.labels(transition.source, transition.event, transition.target).inc()
        log.log_transition(moved)

    def carried_out(self, event: Event, outcome: str, seconds: float) -> None:
        self._requests.labels(event, outcome).inc()
        self._request_seconds.labels(event).observe(seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._http.labels(method, route, str(status)).inc()
        self._http_seconds.labels(method, route).observe(seconds)

    def db_error(self, kind: Literal["busy", "unavailable"]) -> None:
        self._db_errors.labels(kind).inc()

    def renewal_failed(self, lease: str) -> None:
        self._renewals.labels(lease).inc()

    def pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None:
        self._pxe_filter_open.labels(network).set(is_open)
        self._pxe_filter_macs.labels(network, "allow").set(allowed)
        self._pxe_filter_macs.labels(network, "deny").set(denied)

    def pxe_filter_applied(self, seconds: float) -> None:
        self._pxe_filter_seconds.observe(seconds)

    def discovered(self, outcome: Literal["discovered", "limited", "rejected"]) -> None:
        self._discoveries.labels(outcome).inc()

    def forwarded(self, outcome: Literal["accepted", "refused", "failed", "busy"]) -> None:
        self._forwarded.labels(outcome).inc()

    def failover(self, what: str) -> None:
        self._failover.labels(what).inc()

    def notified(self, target: str, outcome: Literal["delivered", "failed", "dead"]) -> None:
        self._notifications.labels(target, outcome).inc()


class Overview(Collector):
    """Gauges of the whole service, the same from every api process; a scrape takes five queries."""

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
        return [
            up,
            ahead,
            *_queue(list(tx.statistics.backlog()), tx.now),
            _nodes(list(tx.statistics.nodes())),
            _members(list(tx.members.list()), tx.now),
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
    "ferroscope_members": "Processes that are alive, or dead and not yet removed.",
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
    "ferroscope_members": ("role", "state"),
    "ferroscope_lease_held": ("lease",),
    "ferroscope_lease_epoch": ("lease",),
    "ferroscope_lease_remaining_seconds": ("lease",),
    "ferroscope_events": ("target", "state"),
    "ferroscope_events_oldest_pending_seconds": ("target",),
}


def render(registry: CollectorRegistry) -> bytes:
    """Return all metrics in Prometheus's text format."""
    return generate_latest(registry)


def _gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, OVERVIEW[name], labels=LABELS.get(name, ()))


def _queue(rows: list[Backlog], now: float) -> list[Metric]:
    depth, oldest = (
        _gauge("ferroscope_queue_requests"),
        _gauge("ferroscope_queue_oldest_seconds"),
    )
    found = {row.event: row for row in rows}
    for event in Event:  # an event without requests is 0, not absent
        row = found.get(event)
        depth.add_metric((event, "waiting"), row.waiting if row else 0)
        depth.add_metric((event, "claimed"), row.claimed if row else 0)
        oldest.add_metric((event,), max(0.0, now - row.oldest) if row else 0.0)
    return [depth, oldest]


def _nodes(rows: list[Population]) -> Metric:
    nodes = _gauge("ferroscope_nodes")
    for row in rows:
        nodes.add_metric((row.state, row.provision_state), row.nodes)
    return nodes


def _members(members: list[Member], now: float) -> Metric:
    counts: dict[tuple[str, str], int] = {}
    for member in members:
        key = (member.role, "alive" if member.is_alive(now) else "dead")
        counts[key] = counts.get(key, 0) + 1
    gauge = _gauge("ferroscope_members")
    for key, count in sorted(counts.items()):
        gauge.add_metric(key, count)
    return gauge


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
