"""Metrics, recorded as events happen, and traces: what the time of an inspection was spent on, as spans.

Recording never fails or blocks, and takes a few microseconds. The ID of an inspection's trace is its UUID, unless an
authenticated caller has started it as a part of a trace of their own. The spans of the whole inspection and of its
phases have IDs that follow from the UUID, so that processes need not tell each other about them. Spans have no
messages, addresses or secrets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, Protocol

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope.core.notification import ChangeView
from ferroscope.core.states import Event, Transition

# Source: W3C Trace Context, the header traceparent.
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Work that has ended. IDs are hexadecimal, times are seconds since the epoch.

    ``parent``: "" for the first span of a trace. ``error``: the reason code of a failure, "" if there was none.
    """

    name: str
    trace: str
    id: str
    parent: str
    began: float
    ended: float
    kind: Literal["internal", "server", "client"] = "internal"
    error: str = ""
    attributes: Mapping[str, str | int] = {}


class Tracer(Protocol):
    """Takes spans; see ``telemetry.tracing``."""

    def record(self, span: Span) -> None:
        """Take a span, to be sent later or never."""


class TracedCall(msgspec.Struct):
    """A call of the API: the caller's ``traceparent``, "" if there is none that counts; the inspection it concerns."""

    traceparent: str = ""
    inspection: Inspection | None = None


def valid_traceparent(traceparent: str) -> str:
    """Return the value of the header; "" if it is invalid."""
    return traceparent if _TRACEPARENT.match(traceparent) else ""


def trace_of(inspection: Inspection) -> tuple[str, str]:
    """Return the ID of the inspection's trace, and that of the span it is a part of, "" if there is none."""
    if inspection.traceparent is None:
        return inspection.uuid.replace("-", ""), ""
    _, trace, parent, _ = inspection.traceparent.split("-")
    return trace, parent


def span_of(inspection: Inspection, phase: str = "") -> str:
    """Return the ID of the span of the whole inspection, or of one of its phases."""
    return hashlib.sha256(f"{inspection.uuid} {phase}".encode()).hexdigest()[:16]


def spans_of(one: Inspection, node: str, name: str | None) -> Iterator[Span]:
    """Yield the spans of an ended inspection: the whole, and its phases."""
    trace, parent = trace_of(one)
    end = one.started_at if one.finished_at is None else one.finished_at
    attributes = {"ferroscope.inspection": one.uuid, "ferroscope.node": node, "ferroscope.state": str(one.state)}
    if name is not None:
        attributes["ferroscope.node.name"] = name
    yield Span(
        name="inspection", trace=trace, id=span_of(one), parent=parent, began=one.started_at, ended=end,
        error=one.reason or "", attributes=attributes,
    )  # fmt: skip
    marks = (("starting", one.started_at), ("waiting", one.waiting_since), ("processing", one.processing_since))
    reached = [(phase, at) for phase, at in marks if at is not None]
    for (phase, began), ended in zip(reached, [*(at for _, at in reached[1:]), end], strict=True):
        yield Span(
            name=phase, trace=trace, id=span_of(one, phase), parent=span_of(one), began=began, ended=max(began, ended)
        )


class Moved(msgspec.Struct, frozen=True):
    """A transition and the resulting node; also its inspection, if the transition has begun or ended it.

    ``replaced`` is the inspection that was in progress before, if the transition has begun another one instead.
    """

    transition: Transition
    node: Node
    inspection: Inspection | None = None
    replaced: Inspection | None = None


# What ``Meter.set_failover_problems`` tells of: see the alerts in deploy/prometheus.
FAILOVER_PROBLEMS: Final = ("stuck", "unreadable", "left-off", "not-protected", "storm", "paused")


class Meter(Protocol):
    """Records metrics; each method is called after the event it records. Durations are in seconds.

    ``tracer`` takes the spans of inspections; None if they are not traced.
    """

    tracer: Tracer | None

    def record_transition(self, moved: Moved) -> None:
        """Record a committed transition of a node, and with the end of an inspection its reason and durations."""

    def record_hardware_changes(self, changes: Iterable[ChangeView]) -> None:
        """Record committed differences from the previous inspection of a machine."""

    def record_attempt(self, event: Event, outcome: str, seconds: float) -> None:
        """Record an attempt of a request; ``outcome`` is its result in lower case, or ``lost``."""

    def record_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an answered API request; ``route`` is the template of its path."""

    def record_database_error(self, kind: Literal["busy", "unavailable"]) -> None:
        """Record a database error: a conflict, after which the transaction is retried, or an outage."""

    def record_failed_renewal(self, lease: str) -> None:
        """Record a failed renewal of a lease."""

    def record_failed_step(self, lease: str) -> None:
        """Record a step of a periodic task that the database did not let finish; ``lease``: the task's."""

    def set_pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None:
        """Set the state of this host's PXE filter, and the number of MACs in its sets."""

    def record_pxe_filter_change(self, seconds: float) -> None:
        """Record an applied change of the sets."""

    def record_discovery(self, outcome: Literal["discovered", "limited", "rejected"]) -> None:
        """Record a call of an unknown machine, and whether it was enrolled as a node."""

    def record_forwarding(self, outcome: Literal["accepted", "refused", "failed", "busy"]) -> None:
        """Record a callback that was forwarded to ironic-inspector; ``busy``: it was not, there were too many."""

    def record_failover_step(self, step: str) -> None:
        """Record a step of the remediation of a cluster's node, such as ``power-off`` or ``proven``."""

    def set_failover_problems(self, cluster: str, numbers: Mapping[str, int]) -> None:
        """Set how many nodes or machines have each kind of problem, by its code; 0 where it is absent.

        A process that does not lead any more sets none, or the alerts go on.
        """

    def record_delivery(self, target: str, outcome: Literal["delivered", "failed", "dead"]) -> None:
        """Record an attempt to deliver an event; ``dead``: it was given up."""


class Silent:
    """A ``Meter`` that counts nothing."""

    tracer: Tracer | None = None

    def record_transition(self, moved: Moved) -> None: ...

    def record_hardware_changes(self, changes: Iterable[ChangeView]) -> None: ...

    def record_attempt(self, event: Event, outcome: str, seconds: float) -> None: ...

    def record_response(self, method: str, route: str, status: int, seconds: float) -> None: ...

    def record_database_error(self, kind: Literal["busy", "unavailable"]) -> None: ...

    def record_failed_renewal(self, lease: str) -> None: ...

    def record_failed_step(self, lease: str) -> None: ...

    def set_pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None: ...

    def record_pxe_filter_change(self, seconds: float) -> None: ...

    def record_discovery(self, outcome: Literal["discovered", "limited", "rejected"]) -> None: ...

    def record_forwarding(self, outcome: Literal["accepted", "refused", "failed", "busy"]) -> None: ...

    def record_failover_step(self, step: str) -> None: ...

    def set_failover_problems(self, cluster: str, numbers: Mapping[str, int]) -> None: ...

    def record_delivery(self, target: str, outcome: Literal["delivered", "failed", "dead"]) -> None: ...


SILENT: Final[Meter] = Silent()
