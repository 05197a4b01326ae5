"""Request IDs: in every answer, in every log line of the call, and never chosen by the caller."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from ferroscope.config.options import LogSettings
from tests.api.service import Service

FORM = re.compile(r"req-[0-9a-f-]{36}")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/nodes"),
        ("POST", "/v1/nodes"),
        ("GET", "/nowhere"),
    ],
)
def test_each_answer_has_its_own(service: Service, method: str, path: str) -> None:
    given = f"req-{uuid.uuid4()}"
    answers = [
        service.bare_metal.call(method, path, headers={"X-Openstack-Request-Id": given}).headers for _ in range(2)
    ]
    idents = {headers["Openstack-Request-Id"] for headers in answers}
    assert len(idents) == 2
    assert all(FORM.fullmatch(ident) for ident in idents)
    assert given not in idents


def test_each_log_line_of_the_call_has_it(sqlite_url: str) -> None:
    service = Service(sqlite_url, sections={"log": LogSettings(access=True)})
    capture = LogCapture()
    processors = structlog.get_config()["processors"]
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    given = f"req-{uuid.uuid4()}"
    try:
        answers = [
            service.bare_metal.get("/v1/nodes", headers={"X-Openstack-Request-Id": sent})
            for sent in (given, "req-1\nforged", "")
        ]
        structlog.get_logger().info("after the calls")
    finally:
        structlog.configure(processors=processors)
    lines: list[Any] = [line for line in capture.entries if line["event"] == "call"]
    assert [line["request_id"] for line in lines] == [answer.headers["Openstack-Request-Id"] for answer in answers]
    assert [line.get("global_request_id") for line in lines] == [given, None, None]
    assert "request_id" not in capture.entries[-1]
    assert given not in json.dumps(dict(answers[0].headers))
