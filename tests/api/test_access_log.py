"""The access log: one line for each call, whatever became of it, and nothing of what only its caller may know."""

from __future__ import annotations

from structlog.testing import capture_logs

from ferroscope.config.options import LogSettings
from tests.api.service import Service


def test_each_call_is_a_line_with_what_became_of_it(sqlite_url: str) -> None:
    service = Service(sqlite_url, sections={"log": LogSettings(access=True)})
    with capture_logs() as lines:
        service.bare_metal.get("/v1/nodes?owner=secret")
        service.bare_metal.get("/v1/nodes/nobody")
        service.bare_metal.get("/nowhere/at/all")
        service.bare_metal.delete("/v1/leases/backup?epoch=1&token=hunter2")
    calls = [line for line in lines if line["event"] == "call"]
    assert [(line["method"], line["path"], line["status"]) for line in calls[:3]] == [
        ("GET", "/v1/nodes", 200),
        ("GET", "/v1/nodes/nobody", 404),
        ("GET", "/nowhere/at/all", 404),
    ]
    assert len(calls) == 4
    for line in calls:
        assert "source" in line
        assert line["bytes"] > 0
        assert line["ms"] >= 0
    assert "secret" not in str(calls)
    assert "hunter2" not in str(calls)
