"""Traces of inspections: a real service sends them to a real receiver of OTLP, which decodes them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import bcrypt
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.api.service import callback_body
from tests.support import examples
from tests.support.http_target import HttpTarget
from tests.support.installation import Installation, Played, configuration
from tests.support.processes import PATIENCE, free_port, until

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN: Final = f"00-{TRACE}-00f067aa0ba902b7-01"


class Receiver(HttpTarget):
    """Takes spans by OTLP over HTTP."""

    @property
    def requests(self) -> list[Any]:
        return [ExportTraceServiceRequest.FromString(request.body) for request in self.seen]

    @property
    def text(self) -> str:
        return "".join(map(str, self.requests))

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def answer(self, path: str, _body: bytes) -> tuple[int, bytes]:
        return 200 if path == "/v1/traces" else 404, b""

    @property
    def names(self) -> set[str]:
        return {span.name for span in self.spans}


class Site(Installation):
    """``ferroscope all`` with a simulated BMC; ``collector``: the port to which it sends its spans."""

    service: Played

    def __init__(self, directory: Path, collector: int, *, login: bool = False) -> None:
        super().__init__(directory)
        self.port, self._collector, self._login = free_port(), collector, login

    def _start(self) -> None:
        users, auth = self.directory / "htpasswd", ""
        if self._login:
            users.write_text(f"alice:{bcrypt.hashpw(b'Canary-9c', bcrypt.gensalt(4)).decode()}:admin\n")
            auth = f"[api]\nauth_strategy = http_basic\nhttp_basic_auth_user_file = {users}\n"
        file = self.directory / "ferroscope.conf"
        collector = f"[tracing]\nendpoint = http://127.0.0.1:{self._collector}/v1/traces\n"
        more = f"{auth}[drivers]\nenabled = fake-hardware\n{collector}"
        file.write_text(configuration(self.directory, self.port, more))
        self.service = self.play("ferroscope", [sys.executable, "-m", "ferroscope", "all", "-c", str(file)])
        self.service.wait_ready()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        given = {"Content-Type": "application/json", "X-OpenStack-Ironic-API-Version": "latest", **headers}
        if self._login:
            given["Authorization"] = f"Basic {base64.b64encode(b'alice:Canary-9c').decode()}"
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, data, given, method=method), timeout=PATIENCE
        ) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def state(self, node: str) -> str:
        return str(self.call("GET", f"/v1/nodes/{node}")["provision_state"])

    def inspect(self) -> str:
        """Carry out an inspection whose start and callback have a ``traceparent``; return its UUID."""
        info = {"fake_password": "Canary-3f"}
        node = self.call("POST", "/v1/nodes", {"driver": "fake-hardware", "name": "one", "driver_info": info})["uuid"]
        mac = examples.mac()
        self.call("POST", "/v1/ports", {"node_uuid": node, "address": mac})
        self.call("PUT", f"/v1/nodes/{node}/states/provision", {"target": "manage"})
        assert until(lambda: self.state(node) == "manageable")
        self.call("PUT", f"/v1/nodes/{node}/states/provision", {"target": "inspect"}, traceparent=GIVEN)
        assert until(lambda: self.state(node) == "inspect wait")
        other = GIVEN.replace("4bf9", "5bf9")
        self.call("POST", "/v1/continue_inspection", callback_body(mac), traceparent=other)
        assert until(lambda: self.state(node) == "manageable")
        return str(self.call("GET", f"/v1/nodes/{node}/inspections")["inspections"][0]["uuid"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


EXPECTED: Final = {
    "inspection", "starting", "waiting", "processing", "PUT /v1/nodes/{node}/states/provision",
    "POST /v1/continue_inspection", "worker inspect", "worker continue", "worker finish", "bmc set_power",
    "hook ports", "rules",
}  # fmt: skip


@pytest.mark.parametrize("login", [True, False], ids=["authenticated", "anonymous"])
def test_an_inspection_is_one_trace_of_calls_phases_hooks_and_bmc_commands(
    receiver: Receiver, tmp_path: Path, login: bool
) -> None:
    with Site(tmp_path, receiver.server_port, login=login) as site:
        inspection = site.inspect()
        assert until(lambda: receiver.names >= EXPECTED), EXPECTED - receiver.names
        assert site.service.stop() == 0
    trace = TRACE if login else inspection.replace("-", "")
    spans = receiver.spans
    assert {span.trace_id.hex() for span in spans} == {trace}
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    (root,) = (span for span in spans if span.name == "inspection")
    assert root.parent_span_id.hex() == ("00f067aa0ba902b7" if login else "")
    assert {one.key: one.value.string_value for one in root.attributes}["ferroscope.inspection"] == inspection

    def above(name: str) -> list[str]:
        found, span = [], next(one for one in spans if one.name == name)
        while span is not root:
            span = by_id[span.parent_span_id]
            found.append(span.name)
        return found

    assert above("POST /v1/continue_inspection") == ["inspection"]
    assert above("bmc set_power")[-2:] == ["starting", "inspection"] or above("bmc set_power")[-1] == "inspection"
    assert above("hook ports") == above("rules") == ["worker continue", "processing", "inspection"]
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert "Canary" not in receiver.text


def test_a_collector_that_is_away_does_no_harm(tmp_path: Path) -> None:
    with Site(tmp_path, free_port()) as site:
        site.inspect()
        assert site.service.stop(20) == 0
        assert "Traceback" not in site.service.output()


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys, ferroscope.runtime.process as process, ferroscope.api.routes, ferroscope.worker.loop\n"
        "process.wiring.preload(('api', 'worker', 'periodic'))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
