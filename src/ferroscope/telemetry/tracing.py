"""Traces by the SDK of OpenTelemetry, which is an extra and imported only if traces are enabled.

The SDK sends spans from a thread of its own, a batch every few seconds. Spans that the collector does not accept are
lost, without any other effect.
"""

from __future__ import annotations

import secrets
import threading
from typing import Final
from urllib.parse import urlsplit

import structlog

from ferroscope import __version__
from ferroscope.config.errors import SetupError, extra
from ferroscope.config.options import TracingSettings
from ferroscope.contracts.telemetry import Span

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
