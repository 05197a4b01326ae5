"""A process's metrics registry, and a separate port for processes that have no API."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, make_wsgi_app

from ferroscope.api.http.errors import ApiError, translate
from ferroscope.api.http.middleware import Hosts, known_names
from ferroscope.config.errors import SetupError, extra
from ferroscope.config.options import ApiSettings, MetricsSettings, Settings, TracingSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.queue import Clock
from ferroscope.db.store import Store
from ferroscope.http_server import tls
from ferroscope.http_server.agreed import HEADER, new_request_id
from ferroscope.http_server.server import BACKLOG, HttpServer, bind, check_anonymous
from ferroscope.http_server.wsgi import Application
from ferroscope.runtime.authentication import metrics_check
from ferroscope.telemetry.metrics import Metrics
from ferroscope.telemetry.tracing import OpenTelemetry

_TRIES: Final = 64
# Few scrapers, with few requests.
_LIMITS: Final = ApiSettings(
    threads=1, max_connections=64, max_connections_per_source=16, header_timeout=5.0, body_timeout=15.0
)

_log = structlog.get_logger(__name__)


def build_metrics() -> Metrics:
    """Return a meter on a new registry, with the metrics of the process itself."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return Metrics(registry)


def check_tracing(settings: TracingSettings) -> None:
    """Reject an endpoint that is no URL; ``SetupError``."""
    if not settings.endpoint:
        return
    url = urlsplit(settings.endpoint)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.password:
        raise SetupError(
            "invalid [tracing] endpoint", "set it to a URL such as http://192.0.2.5:4318/v1/traces, without a password"
        )


def build_tracer(settings: TracingSettings, process: str) -> OpenTelemetry:
    """Return what sends traces to the configured collector; ``SetupError``."""
    check_tracing(settings)
    try:
        return OpenTelemetry(settings.endpoint, process)
    except ImportError as exc:
        missing = f"[tracing] endpoint needs the Python package {exc.name}"
        raise SetupError(missing, extra("otel")) from exc


Check = Callable[[dict[str, Any]], None]


def serve(
    settings: Settings, metrics: Metrics, store: Store, clock: Clock, certificates: tls.Certificates | None
) -> HttpServer:
    """Serve the metrics on the first free port, starting from the configured one; ``OSError``, ``SetupError``.

    Processes of one host share a configuration, so each takes the next port.
    """
    may_read = metrics_check(settings, clock, store)
    listener, hosts = _listener(settings.metrics), Hosts(known_names(settings))
    app = _checked(make_wsgi_app(metrics.registry), lambda env: hosts.check(env.get("HTTP_HOST", "")), may_read)
    server = HttpServer(app, _LIMITS, [listener], certificates=certificates)
    server.start()
    _log.info("serving metrics", host=settings.metrics.host, port=listener.getsockname()[1])
    return server


def serve_alone(settings: Settings, metrics: Metrics, store: Store, clock: Clock) -> HttpServer:
    """Do the same in a process without an API; ``SetupError`` also if other hosts could read them anonymously."""
    check_anonymous(settings, api=False)
    certificates = tls.certificates(settings.api)
    if certificates is not None:
        metrics.certificate(settings.api.tls_certificate_file, lambda: certificates.expires.timestamp())
    return serve(settings, metrics, store, clock, certificates)


def _checked(app: Application, *checks: Check | None) -> Application:
    """Return ``app`` with checks in front, which raise an ``ApiError``."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            for check in checks:
                if check is not None:
                    check(environ)
        except (ApiError, StoreUnavailableError) as exc:
            known = translate(exc) or ApiError("")
            headers = [("Content-Type", "text/plain"), (HEADER, new_request_id()), *known.headers.items()]
            start_response(f"{known.status} {HTTPStatus(known.status).phrase}", headers)
            return [f"{known.message}\n".encode()]
        return app(environ, start_response)

    return checked


def _listener(settings: MetricsSettings) -> socket.socket:
    last = settings.port + _TRIES - 1
    for port in range(settings.port, last + 1):
        listener = None
        try:
            listener = bind(settings.host, port)
            listener.listen(BACKLOG)  # only this detects that the port is in use
        except OSError as exc:
            if listener is not None:
                listener.close()
            if exc.errno != errno.EADDRINUSE:
                raise
        else:
            return listener
    raise OSError(errno.EADDRINUSE, f"no free port for metrics from {settings.port} to {last}")
