"""GET /metrics, and the port of a worker."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from ferroscope.runtime import wiring
from ferroscope.telemetry.metrics import Metrics
from tests.api.service import DRIVERS, Client, Service


@pytest.fixture
def metered(service: Service) -> Client:
    """Return a client of an application that counts."""
    meter = Metrics(CollectorRegistry())
    app = wiring.build_app(service.settings, service.backend, DRIVERS, process="api", meter=meter)
    client = service.client()
    client._client.app = app
    return client


def _samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_calls_are_counted_by_route_and_status(metered: Client) -> None:
    metered.get("/v1/nodes")
    metered.get("/v1/nodes/nobody")
    metered.get("/v1/leases/a/b/c")
    metered.get("/nowhere/at/all")
    answer = metered.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = _samples(answer.text)
    for route, status in (
        ("/v1/nodes", "200"),
        ("/v1/nodes/{node}", "404"),
        ("/v1/leases/{name}", "404"),
        ("none", "404"),
    ):
        labels = (("method", "GET"), ("route", route), ("status", status))
        assert samples["ferroscope_http_requests_total", labels] == 1
    assert samples["ferroscope_database_up", ()] == 1


def test_what_callers_invent_does_not_become_a_label(metered: Client) -> None:
    for number in range(5):
        metered.get(f"/invented/{number}")
        metered.delete(f"/v1/nodes/invented-{number}")
    text = metered.get("/metrics").text
    assert "invented" not in text


def test_metrics_can_be_switched_off(sqlite_url: str) -> None:
    service = Service(sqlite_url, enable_metrics=False)
    app = wiring.build_app(
        service.settings, service.backend, DRIVERS, process="api", meter=Metrics(CollectorRegistry())
    )
    client = service.client()
    client._client.app = app
    assert client.get("/metrics").status_code == 404
