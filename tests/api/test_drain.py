"""A process that stops behind a load balancer: the health check goes first, the listener last."""

from __future__ import annotations

import http.client
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ferroscope.config.options import ApiSettings
from ferroscope.runtime import wiring
from ferroscope.runtime.http_server import HttpServer, bind
from tests.api.service import DRIVERS, Service
from tests.support.processes import PATIENCE, free_port, until


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_a_draining_application_fails_its_health_check_and_serves_the_rest(service: Service) -> None:
    draining = threading.Event()
    app = wiring.build_app(service.settings, service.backend, DRIVERS, process="api", draining=draining)
    client = Service.client(service)
    client._client.app = app
    assert client.get("/healthcheck").status_code == 200
    draining.set()
    answer = client.get("/healthcheck")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert client.get("/v1/nodes").status_code == 200


def test_a_draining_server_lets_each_answer_be_the_last_of_its_connection(service: Service) -> None:
    socket = bind("127.0.0.1", 0)
    server = HttpServer(service.app, ApiSettings(), [socket])
    port = socket.getsockname()[1]
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        for _ in range(2):
            connection.request("GET", "/v1")
            answer = connection.getresponse()
            answer.read()
            assert (answer.status, answer.will_close) == (200, False)
        server.drain()
        connection.request("GET", "/v1")
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.getheader("Connection")) == (200, "close")
        assert _status(port, "/v1") == 200, "new connections are still taken"
    finally:
        connection.close()
        server.stop(5)
    assert _status(port, "/v1") == 0


@pytest.mark.parametrize(
    ("role", "more"), [("all", ()), ("api", ()), ("api", ("--processes", "2"))], ids=["all", "api", "supervised"]
)
def test_a_process_that_is_stopped_drains_before_it_closes(
    sqlite_url: str, tmp_path: Path, role: str, more: tuple[str, ...]
) -> None:
    port = free_port()
    file = tmp_path / "ferroscope.conf"
    file.write_text(
        f"[api]\nhost = 127.0.0.1\nbare_metal_port = {port}\nintrospection_port = 0\ndrain_delay = 4\n"
        f"[database]\nconnection = {sqlite_url}\n"
    )
    command = [sys.executable, "-m", "ferroscope", role, "-c", str(file), *more]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        assert until(lambda: _status(port, "/healthcheck") == 200)
        process.send_signal(signal.SIGTERM)
        assert until(lambda: _status(port, "/healthcheck") == 503)
        assert _status(port, "/v1/nodes") == 200
        assert until(lambda: _status(port, "/v1/nodes") == 0)
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()


def test_a_process_that_cannot_write_fails_its_health_check_until_it_can(sqlite_url: str, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "ferroscope.conf"
    file.write_text(
        f"[api]\nhost = 127.0.0.1\nbare_metal_port = {port}\nintrospection_port = 0\n"
        f"[database]\nconnection = {sqlite_url}\nbusy_timeout = 0.5\n"
        "[worker]\nmember_ttl = 2\nheartbeat_interval = 0.2\n"
    )
    command = [sys.executable, "-m", "ferroscope", "api", "-c", str(file)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        assert until(lambda: _status(port, "/healthcheck") == 200)
        other.execute("BEGIN IMMEDIATE")
        assert until(lambda: _status(port, "/healthcheck") == 503)
        assert _status(port, "/v1/nodes") == 200
        other.execute("ROLLBACK")
        assert until(lambda: _status(port, "/healthcheck") == 200)
    finally:
        other.close()
        process.kill()
        process.wait()
