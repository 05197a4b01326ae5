"""Requests to a Bare Metal API: on kept connections, over TLS, and never more than what was meant to be sent."""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.remote import command_fence
from ferroscope.remote.bare_metal_http import Http, TransientError
from tests.support.bad_server import a_server_that
from tests.support.certificates import Authority
from tests.support.processes import PATIENCE, until


class Api(ThreadingHTTPServer):
    """Answers with what it was sent; ``seen`` are the connections and paths of the requests."""

    daemon_threads = True

    def __init__(self, handler: type[Answering]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.seen: list[tuple[int, str]] = []
        self.over = threading.Event()
        self.closed = 0

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        self.closed += 1


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    closes = False
    server: Api

    def answer(self) -> None:
        self.server.seen.append((self.client_address[1], self.path))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Asked", f"{self.command} {self.headers['Host']} {self.headers['X-Auth-Token']}")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.closes

    def do_GET(self) -> None:
        self.answer()

    def do_PUT(self) -> None:
        self.answer()

    def do_PATCH(self) -> None:
        self.answer()

    def log_message(self, *_: Any) -> None: ...


class Closing(Answering):
    """Closes each connection without a word."""

    closes = True


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(getattr(request, "param", Answering)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def http() -> Iterator[Http]:
    found = Http(PATIENCE)
    yield found
    found.close()


def test_a_connection_is_used_again_and_requests_arrive_whole(api: Api, http: Http) -> None:
    url = f"http://127.0.0.1:{api.server_port}"
    answer = http.send("PATCH", f"{url}/v1/nodes/a?fields=uuid", {"X-Auth-Token": "abc"}, b"x" * 300_000)
    assert (answer.status, answer.body) == (200, b"x" * 300_000)
    assert answer.headers["x-asked"] == f"PATCH 127.0.0.1:{api.server_port} abc"
    assert http.send("PUT", url, {}).body == b""
    assert [path for _, path in api.seen] == ["/v1/nodes/a?fields=uuid", "/"]
    assert len({connection for connection, _ in api.seen}) == 1


def _has_closed(api: Api, connections: int) -> bool:
    return api.closed == connections


@pytest.mark.parametrize("api", [Closing], indirect=True)
def test_a_connection_that_the_server_has_closed_is_not_used_again(api: Api, http: Http) -> None:
    for number in range(3):
        assert http.send("PUT", f"http://127.0.0.1:{api.server_port}/a", {}, b"{}").body == b"{}"
        assert until(partial(_has_closed, api, number + 1))
    assert len({connection for connection, _ in api.seen}) == 3


def test_threads_have_connections_of_their_own(api: Api, http: Http) -> None:
    bodies = [bytes([65 + number]) * 50_000 for number in range(8)]
    found: list[bytes] = []

    def send(body: bytes) -> None:
        found.extend(http.send("PUT", f"http://127.0.0.1:{api.server_port}/a", {}, body).body for _ in range(20))
        assert set(found[-1:]) <= set(bodies)

    threads = [threading.Thread(target=send, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(body for body in bodies for _ in range(20))


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: 1\r\n"],
        [b"SSH-2.0-OpenSSH_9.2\r\n"],
    ],
)
def test_half_an_answer_is_none(sent: list[bytes]) -> None:
    with a_server_that(sent) as port, pytest.raises(TransientError):
        Http(1.0).send("GET", f"http://127.0.0.1:{port}/v1", {})


def test_what_follows_an_answer_is_not_taken_for_the_next_one(http: Http) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    with a_server_that([answer + b"ok" + answer + b"no"]) as port:
        for _ in range(2):
            assert http.send("GET", f"http://127.0.0.1:{port}/v1", {}).body == b"ok"
        assert port.calls == 2


def test_a_body_without_an_end_is_bounded(http: Http) -> None:
    endless = [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 1024 * 1024] * 9]
    with a_server_that(endless) as port, pytest.raises(IronicUnavailableError, match="longer than"):
        http.send("GET", f"http://127.0.0.1:{port}/v1", {})


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1", {"X-Auth-Token": "a\r\nX: y"}), ("/v1\r\nX: y", {}), ("/v1 HTTP/1.1", {}), ("/v1", {"A\nB": "c"})],
)
def test_no_header_can_smuggle_another_one(http: Http, path: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="line breaks or spaces"):
        http.send("GET", f"http://127.0.0.1:9{path}", headers)


def test_nothing_is_sent_without_the_right_to(api: Api, http: Http) -> None:
    url, left = f"http://127.0.0.1:{api.server_port}/a", [math.inf]
    http.send("PUT", url, {}, b"1")
    with command_fence.fenced(lambda: left[0]):
        left[0] = 0.0
        with pytest.raises(command_fence.TooLateError):
            http.send("PUT", url, {}, b"2")
    assert http.send("PUT", url, {}, b"3").body == b"3"
    assert len(api.seen) == 2


class Silent(Answering):
    """Answers the first request on a connection only."""

    def answer(self) -> None:
        if any(connection == self.client_address[1] for connection, _ in self.server.seen):
            self.server.over.wait(PATIENCE)
        super().answer()


@pytest.mark.parametrize("api", [Silent], indirect=True)
def test_a_silent_server_is_given_up_in_time_on_a_kept_connection(api: Api) -> None:
    http, url = Http(0.5), f"http://127.0.0.1:{api.server_port}/a"
    assert http.send("GET", url, {}).status == 200
    with pytest.raises(TransientError, match=r"within 0\.5 s"):
        http.send("GET", url, {})
    api.over.set()
    http.close()


def test_certificates_are_verified(api: Api, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    api.socket = context.wrap_socket(api.socket, server_side=True)
    url = f"https://127.0.0.1:{api.server_port}/a"
    for trusting in ({"ca_certs": str(authority.ca)}, {"cert_reqs": "CERT_NONE"}):
        http = Http(PATIENCE, **trusting)
        for _ in range(2):
            assert http.send("PUT", url, {}, b"{}").body == b"{}"
        http.close()
    assert len({connection for connection, _ in api.seen}) == 2
    with pytest.raises(TransientError, match="SSL"):
        Http(PATIENCE, ca_certs=str(other.ca)).send("PUT", url, {}, b"{}")
    assert len(api.seen) == 4
