"""Prometheus metrics of one process: ``Metrics`` is its ``Meter``.

Label values come from fixed tables, so that callers cannot increase the cardinality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from ferroscope.contracts.telemetry import FAILOVER_PROBLEMS, Moved, Tracer, spans_of
from ferroscope.core.model import Inspection
from ferroscope.core.notification import ChangeView
from ferroscope.core.states import TRANSITIONS, Event
from ferroscope.hardware.diff import ChangeKind
from ferroscope.telemetry import log
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import TERMINAL, State
from ferroscope_client.hardware.search_fields import KINDS

# From a reapply without a machine to the default of [inspector] timeout, and twice that.
_INSPECTION_SECONDS: Final = (0.1, 0.5, 1, 5, 10, 30, 60, 120, 180, 300, 600, 900, 1800, 3600)
_WORK_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_HTTP_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_NAMESPACE: Final = "ferroscope"
# Labels; a reason in the database may come from another release.
_REASONS: Final = frozenset(map(str, Reason))


class Metrics:
    """See ``contracts.telemetry.Meter``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        counter = partial(Counter, namespace=_NAMESPACE, registry=registry)
        gauge = partial(Gauge, namespace=_NAMESPACE, registry=registry)
        histogram = partial(Histogram, namespace=_NAMESPACE, registry=registry)
        self._transitions = counter(
            "transitions", "Transitions of the nodes' state machine.", ("source", "event", "target")
        )
        self._requests = counter(
            "requests",
            "Attempts at requests by this worker; lost: another worker took over the claim.",
            ("event", "outcome"),
        )
        self._request_seconds = histogram(
            "request_seconds", "Duration of one attempt at a request.", ("event",), buckets=_WORK_SECONDS
        )
        self._http = counter(
            "http_requests", "HTTP requests handled by this api process.", ("method", "route", "status")
        )
        self._http_seconds = histogram(
            "http_request_seconds", "Duration of an HTTP request.", ("method", "route"), buckets=_HTTP_SECONDS
        )
        self._db_errors = counter(
            "database_errors", "Transactions that were retried (busy) or failed (unavailable).", ("kind",)
        )
        self._renewals = counter("lease_renewal_failures", "Lease renewals that were refused or failed.", ("lease",))
        self._failed_steps = counter(
            "periodic_step_failures", "Steps of periodic tasks that the database did not let finish.", ("lease",)
        )
        self._pxe_filter_open = gauge("pxe_filter_open", "Whether this host's PXE filter is open.", ("network",))
        self._pxe_filter_macs = gauge(
            "pxe_filter_macs", "MAC addresses in the sets of this host's PXE filter.", ("network", "list")
        )
        self._pxe_filter_seconds = histogram(
            "pxe_filter_change_seconds", "Time taken to apply a change to the PXE filter's sets.", buckets=_HTTP_SECONDS
        )
        self._discoveries = counter(
            "discoveries", "Callbacks of unknown machines, by outcome, if discovery is enabled.", ("outcome",)
        )
        self._failover = counter(
            "failover_steps", "Steps of the remediation of Kubernetes nodes by this process.", ("step",)
        )
        self._failover_problems = gauge(
            "failover_problems",
            "Kubernetes nodes or machines with each kind of problem of fail-over.",
            ("cluster", "code"),
        )
        self._forwarded = counter(
            "callbacks_forwarded", "Callbacks for ironic-inspector; busy: not forwarded.", ("outcome",)
        )
        self._notifications = counter(
            "event_deliveries",
            "Attempts to deliver an event to a target; dead: it was given up.",
            ("target", "outcome"),
        )
        self._certificate = gauge(
            "certificate_expiry_timestamp_seconds", "When the certificate of this process's API expires.", ("file",)
        )
        self._declare_inspections()
        self._begin_at_zero()

    tracer: Tracer | None = None

    def _declare_inspections(self) -> None:
        counter = partial(Counter, namespace=_NAMESPACE, registry=self.registry)
        histogram = partial(Histogram, namespace=_NAMESPACE, registry=self.registry, buckets=_INSPECTION_SECONDS)
        self._failures = counter(
            "inspection_failures", "Inspections that ended in error, by reason code; also aborted ones.", ("reason",)
        )
        self._inspection_seconds = histogram(
            "inspection_seconds", "Duration of an inspection of a machine, from request to end.", ("result",)
        )
        self._phase_seconds = histogram(
            "inspection_phase_seconds",
            "Duration of a phase of an ended inspection of a machine; queue: its total time of waiting for workers.",
            ("phase", "result"),
        )
        self._hardware = counter(
            "hardware_changes", "Differences from the previous inspection, by kind of part.", ("kind", "what")
        )

    def _begin_at_zero(self) -> None:
        """Make the counters exist, so that the first failure counts as an increase."""
        for reason in Reason:
            self._failures.labels(reason)
        for result in sorted(TERMINAL):
            self._inspection_seconds.labels(result)
        for part in KINDS:
            for change in get_args(ChangeKind):
                self._hardware.labels(part, change)
        for row in TRANSITIONS:
            self._transitions.labels(row.source, row.event, row.target)
        for kind in ("busy", "unavailable"):
            self._db_errors.labels(kind)
        for outcome in ("discovered", "limited", "rejected"):
            self._discoveries.labels(outcome)
        for outcome in ("accepted", "refused", "failed", "busy"):
            self._forwarded.labels(outcome)

    def record_transition(self, moved: Moved) -> None:
        transition = moved.transition
        self._transitions.labels(transition.source, transition.event, transition.target).inc()
        for inspection in (moved.replaced, moved.inspection):
            if inspection is not None and inspection.state in TERMINAL:
                self._count_end(inspection)
                if self.tracer is not None:
                    for span in spans_of(inspection, moved.node.uuid, moved.node.name):
                        self.tracer.record(span)
        log.log_transition(moved)

    def _count_end(self, inspection: Inspection) -> None:
        if inspection.state is State.ERROR:
            self._failures.labels(inspection.reason if inspection.reason in _REASONS else "other").inc()
        if inspection.reapplies is not None:  # no machine was involved
            return
        for phase, seconds in log.phases(inspection).items():
            if phase == "total":
                self._inspection_seconds.labels(inspection.state).observe(seconds)
            else:
                self._phase_seconds.labels(phase, inspection.state).observe(seconds)

    def record_hardware_changes(self, changes: Iterable[ChangeView]) -> None:
        for change in changes:
            self._hardware.labels(change.kind, change.what).inc()

    def record_attempt(self, event: Event, outcome: str, seconds: float) -> None:
        self._requests.labels(event, outcome).inc()
        self._request_seconds.labels(event).observe(seconds)

    def record_response(self, method: str, route: str, status: int, seconds: float) -> None:
        self._http.labels(method, route, str(status)).inc()
        self._http_seconds.labels(method, route).observe(seconds)

    def record_database_error(self, kind: Literal["busy", "unavailable"]) -> None:
        self._db_errors.labels(kind).inc()

    def record_failed_renewal(self, lease: str) -> None:
        self._renewals.labels(lease).inc()

    def record_failed_step(self, lease: str) -> None:
        self._failed_steps.labels(lease).inc()

    def set_pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None:
        self._pxe_filter_open.labels(network).set(is_open)
        self._pxe_filter_macs.labels(network, "allow").set(allowed)
        self._pxe_filter_macs.labels(network, "deny").set(denied)

    def record_pxe_filter_change(self, seconds: float) -> None:
        self._pxe_filter_seconds.observe(seconds)

    def record_discovery(self, outcome: Literal["discovered", "limited", "rejected"]) -> None:
        self._discoveries.labels(outcome).inc()

    def record_forwarding(self, outcome: Literal["accepted", "refused", "failed", "busy"]) -> None:
        self._forwarded.labels(outcome).inc()

    def record_failover_step(self, step: str) -> None:
        self._failover.labels(step).inc()

    def set_failover_problems(self, cluster: str, numbers: Mapping[str, int]) -> None:
        for code in FAILOVER_PROBLEMS:
            self._failover_problems.labels(cluster, code).set(numbers.get(code, 0))

    def certificate(self, file: str, expires: Callable[[], float]) -> None:
        """Report when the certificate expires; ``expires`` is called at each scrape, as it may be renewed."""
        self._certificate.labels(file).set_function(expires)

    def record_delivery(self, target: str, outcome: Literal["delivered", "failed", "dead"]) -> None:
        self._notifications.labels(target, outcome).inc()


def render(registry: CollectorRegistry) -> bytes:
    """Return all metrics in Prometheus's text format."""
    return generate_latest(registry)


def build_metrics() -> Metrics:
    """Return a meter on a new registry, with the metrics of the process itself."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return Metrics(registry)
