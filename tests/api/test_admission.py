"""Callers above their limit get 429 with Retry-After, and have changed nothing."""

from __future__ import annotations

import pytest

from ferroscope.api.rate_limit import REQUEST_BURST
from tests.api.service import Service, fault


@pytest.fixture
def limited(sqlite_url: str) -> Service:
    """Return a service with a limit of requests."""
    return Service(sqlite_url, request_rate=0.001)


def test_a_source_above_its_rate_gets_429_and_others_are_served(limited: Service) -> None:
    for _ in range(REQUEST_BURST):
        assert limited.bare_metal.get("/v1/nodes", remote_addr="192.0.2.1").status_code == 200
    answer = limited.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, remote_addr="192.0.2.1")
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) in range(1, 1001)
    assert "request_rate" in fault(answer)
    assert limited.bare_metal.get("/v1/nodes", remote_addr="192.0.2.2").json["nodes"] == []


def test_health_checks_are_not_counted(limited: Service) -> None:
    for _ in range(REQUEST_BURST + 1):
        assert limited.bare_metal.get("/healthcheck", remote_addr="192.0.2.1").status_code == 200
    assert limited.bare_metal.get("/v1/nodes", remote_addr="192.0.2.1").status_code == 200
