"""A process that stops behind a load balancer: the health check goes first, the listener last."""

from __future__ import annotations

import http.client
import threading

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import HttpServer, bind
from ferroscope.runtime import wiring
from tests.api.service import DRIVERS, Service
from tests.support.processes import PATIENCE


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
