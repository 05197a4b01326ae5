"""Traces: the spans of an attempt, and the SDK of OpenTelemetry, an extra that is imported only if they are enabled.

The SDK sends spans from a thread of its own, a batch every few seconds. Spans that the collector does not accept are
lost, without any other effect.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from ferroscope import __version__
from ferroscope.config.errors import SetupError, extra
from ferroscope.config.options import TracingSettings
from ferroscope.contracts.store import Clock
from ferroscope.contracts.telemetry import Span, Tracer, span_of, trace_of
from ferroscope.core.model import Inspection, Request
from ferroscope.core.states import Event

# Seconds for one batch, and for the last ones when the process ends.
_BATCH_SECONDS: Final = 5.0
_LAST_SPANS_SECONDS: Final = 2.0

_log = structlog.get_logger(__name__)


class OpenTelemetry:
    """See ``contracts.telemetry.Tracer``. ``ImportError`` if the extra is not installed."""

    def __init__(self, endpoint: str, process: str) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import IdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        next_ids = threading.local()

        class Ids(IdGenerator):  # those of the span that the thread is about to create
            def generate_span_id(self) -> int:
                return int(next_ids.span, 16)

            def generate_trace_id(self) -> int:
                return int(next_ids.trace, 16)

        resource = Resource.create(
            {"service.name": "ferroscope", "service.version": __version__, "service.instance.id": process}
        )
        self._sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        self._next_ids, self._trace, self._nothing = next_ids, trace, Context()
        self._provider = TracerProvider(
            resource=resource, id_generator=Ids(), sampler=ALWAYS_ON, shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_BATCH_SECONDS))
        )
        self._failed = False
        self._tracer = self._provider.get_tracer("ferroscope", __version__)

    def record(self, span: Span) -> None:
        """See ``contracts.telemetry.Tracer``; a span without an ID gets a random one."""
        try:
            self._record(span)
        except Exception as exc:  # noqa: BLE001  # the boundary: the work goes on, whatever the SDK does
            if not self._failed:
                self._failed = True
                _log.warning("a span could not be recorded; others may be missing too", error=repr(exc))

    def _record(self, span: Span) -> None:
        trace = self._trace
        self._next_ids.trace, self._next_ids.span = span.trace, span.id or secrets.token_hex(8)
        context = self._nothing
        if span.parent:
            parent = trace.SpanContext(
                int(span.trace, 16), int(span.parent, 16), is_remote=True, trace_flags=self._sampled
            )
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent), context)
        new_span = self._tracer.start_span(
            span.name,
            context,
            kind=trace.SpanKind[span.kind.upper()],
            attributes=span.attributes,
            start_time=int(span.began * 1e9),
        )
        if span.error:
            new_span.set_status(trace.StatusCode.ERROR, span.error)
        new_span.end(int(span.ended * 1e9))

    def close(self) -> None:
        """Send the remaining spans within a moment: the SDK would wait much longer for a silent collector."""
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(_LAST_SPANS_SECONDS)


def check_tracing(settings: TracingSettings) -> None:
    """Reject an endpoint that is not a URL; ``SetupError``."""
    if not settings.endpoint:
        return
    url = urlsplit(settings.endpoint)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.password:
        raise SetupError(
            "invalid [tracing] endpoint", "set it to a URL such as http://192.0.2.5:4318/v1/traces, without a password"
        )


def build_tracer(settings: TracingSettings, process: str) -> OpenTelemetry:
    """Return the tracer for the configured collector; ``SetupError``."""
    check_tracing(settings)
    try:
        return OpenTelemetry(settings.endpoint, process)
    except ImportError as exc:
        missing = f"[tracing] endpoint needs the Python package {exc.name}"
        raise SetupError(missing, extra("all")) from exc


_PHASES: Final = {Event.INSPECT: "starting", Event.CONTINUE: "processing", Event.FINISH: "processing"}


class Trail:
    """The spans of one attempt of a worker: the attempt, its steps and its BMC calls.

    ``clock`` is the host's; the spans of phases have the times of the database.
    """

    def __init__(self, tracer: Tracer, clock: Clock, inspection: Inspection, request: Request) -> None:
        self._tracer, self._clock, self._inspection, self._request = tracer, clock, inspection, request
        self._id = secrets.token_hex(8)
        self._began = clock.time()
        self._step: tuple[str, float] | None = None

    def begins(self, step: str) -> None:
        """The next step begins, and the one before it has ended; "": none begins."""
        if self._step is not None:
            self._record(*self._step)
        self._step = (step, self.time()) if step else None

    def time(self) -> float:
        return self._clock.time()

    def record_command(self, command: str, driver: str, began: float, error: str) -> None:
        """Record a call of the BMC."""
        self._record(f"bmc {command}", began, kind="client", error=error, attributes={"ferroscope.driver": driver})

    def record_end(self, outcome: str, error: str) -> None:
        """Record the attempt."""
        self.begins("")
        parent = span_of(self._inspection, _PHASES.get(self._request.event, ""))
        attributes = {"ferroscope.attempt": self._request.attempt, "ferroscope.outcome": outcome}
        name = f"worker {self._request.event}"
        self._record(name, self._began, id=self._id, parent=parent, error=error, attributes=attributes)

    def _record(self, name: str, began: float, **fields: Any) -> None:
        trace = trace_of(self._inspection)[0]
        span: dict[str, Any] = {"id": "", "parent": self._id, "ended": self.time()} | fields
        self._tracer.record(Span(name=name, trace=trace, began=began, **span))
