"""A process's metrics: its registry, and a port of its own for processes that have no API."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server

from ferroscope.config.settings import MetricsSettings
from ferroscope.observe.metrics import Metrics

_TRIES = 64


def build_metrics() -> Metrics:
    """Return a meter on a new registry, with the figures of the process itself."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return Metrics(registry)


def serve(settings: MetricsSettings, metrics: Metrics) -> int:
    """Serve the metrics on the first free port from the configured one on; return it. ``OSError``.

    Processes of one host have the same configuration, so each takes the next port.
    """
    port, last = settings.port, settings.port + _TRIES - 1
    while True:
        try:
            start_http_server(port, addr=settings.host, registry=metrics.registry)
        except OSError as exc:
            if port == last:
                raise OSError(exc.errno, f"no port from {settings.port} to {last} is free for metrics") from exc
            port += 1
        else:
            return port
