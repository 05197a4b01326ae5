"""A port for the metrics of a process, beside that of the API, and in processes that have none.

It is guarded as the API is: by names of hosts, and by the policy for metrics.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import structlog
from prometheus_client import make_wsgi_app

from ferroscope.api.errors import ApiError, translate
from ferroscope.api.http.arrivals import Hosts, known_names
from ferroscope.config.options import ApiSettings, MetricsSettings, Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.store import Clock
from ferroscope.core.audit import AuditEvent, shown_claim
from ferroscope.db import Store
from ferroscope.http_server import tls
from ferroscope.http_server.agreed import HEADER, SOURCE, new_request_id
from ferroscope.http_server.server import BACKLOG_CONNECTIONS, HttpServer, bind, check_anonymous
from ferroscope.http_server.wsgi import Application
from ferroscope.telemetry.metrics import Metrics

_MAX_TRIED_PORTS: Final = 64
# Few scrapers, with few requests.
_LIMITS: Final = ApiSettings(
    threads=1, max_connections=64, max_connections_per_source=16, header_timeout=5.0, body_timeout=15.0
)

_log = structlog.get_logger(__name__)


Check = Callable[[dict[str, Any]], None]


def metrics_check(
    settings: Settings, clock: Clock, store: Store | None = None
) -> Callable[[dict[str, Any]], None] | None:
    """Return a check that raises an ``ApiError`` if the sender of a request may not read the metrics; ``SetupError``.

    None if all callers may, which is the default. A worker then needs no file of users.
    """
    if settings.api.auth_strategy == "noauth" or not settings.oslo_policy.policy_file:
        return None
    from ferroscope.api.auth import access
    from ferroscope.api.auth.configured import build_authentication, build_policy
    from ferroscope.api.http.audit import Audit

    policy, authentication = build_policy(settings, clock), build_authentication(settings, clock, store)

    log = (
        None if store is None or not settings.audit.enabled else Audit(settings.audit, store, clock, process="metrics")
    )

    def check(environ: dict[str, Any]) -> None:
        try:
            access.authorize(policy, (access.METRICS,), lambda: authentication.identify(environ), _no_node, {})
        except ApiError as exc:
            if log is not None and exc.status in (401, 403, 429):
                log.write_counts()
                log.write_refusal(
                    AuditEvent(
                        request_id="",
                        user=shown_claim(authentication.claimed_name(environ)),
                        method="none",
                        source=environ.get(SOURCE, ""),
                        policy=access.METRICS,
                        call="GET /metrics",
                        status=exc.status,
                    )
                )
            raise

    return check


def _no_node(_: object) -> Any:
    raise LookupError("metrics do not belong to a node")


def serve(
    settings: Settings, metrics: Metrics, store: Store, clock: Clock, certificates: tls.Certificates | None
) -> HttpServer:
    """Serve the metrics on the first free port, starting from the configured one; ``OSError``, ``SetupError``.

    Processes of one host share a configuration, so each takes the next port.
    """
    may_read = metrics_check(settings, clock, store)
    listener, hosts = _listener(settings.metrics), Hosts(known_names(settings))
    app = _with_checks(make_wsgi_app(metrics.registry), lambda env: hosts.check(env.get("HTTP_HOST", "")), may_read)
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


def _with_checks(app: Application, *checks: Check | None) -> Application:
    """Return ``app`` with checks in front, which raise an ``ApiError``."""

    def run_checks(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            for check in checks:
                if check is not None:
                    check(environ)
        except (ApiError, StoreUnavailableError) as exc:
            error = translate(exc) or ApiError("")
            headers = [("Content-Type", "text/plain"), (HEADER, new_request_id()), *error.headers.items()]
            start_response(f"{error.status} {HTTPStatus(error.status).phrase}", headers)
            return [f"{error.message}\n".encode()]
        return app(environ, start_response)

    return run_checks


def _listener(settings: MetricsSettings) -> socket.socket:
    last = settings.port + _MAX_TRIED_PORTS - 1
    for port in range(settings.port, last + 1):
        listener = None
        try:
            listener = bind(settings.host, port)
            listener.listen(BACKLOG_CONNECTIONS)  # only this detects that the port is in use
        except OSError as exc:
            if listener is not None:
                listener.close()
            if exc.errno != errno.EADDRINUSE:
                raise
        else:
            return listener
    raise OSError(errno.EADDRINUSE, f"no free port for metrics from {settings.port} to {last}")
