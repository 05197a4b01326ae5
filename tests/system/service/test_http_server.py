"""The HTTP server beside clients that are slow or silent, send too much, or do not speak HTTP."""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.api.service import Service
from tests.support.processes import until
from tests.system.service.small_server import BODY, Start, rest, statuses


@pytest.mark.parametrize(
    ("begin", "piece", "status"),
    [(b"", b"", []), (b"GET /", b"a", [408]), (b"GET / HTTP/1.1\r\nX", b"a", [408]), (BODY % 9000, b"b", [408])],
    ids=["silent", "trickled line", "trickled header", "trickled body"],
)
def test_a_request_that_does_not_come_is_cut_off_however_busy_its_sender_is(
    start: Start, begin: bytes, piece: bytes, status: list[int]
) -> None:
    running = start(header_timeout=0.5, body_timeout=0.5)
    one = running.connect(begin)
    one.settimeout(0.05)
    data: list[bytes] = []

    def is_cut_off() -> bool:
        try:
            if piece:
                one.sendall(piece)
            data.append(one.recv(1000))
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return not data[-1]

    assert until(is_cut_off)
    assert statuses(b"".join(data)) == status


def test_a_kept_connection_ends_when_nothing_comes(start: Start) -> None:
    running = start(idle_timeout=0.5)
    one = running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert statuses(rest(one)) == [200]


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://[::1 HTTP/1.1", b"GET http:// HTTP/1.1", b"GET / HTTP/9.9", b"nonsense", b"\x16\x03\x01",
        b"CONNECT x:1 HTTP/1.1", b"GET ftp://x/ HTTP/1.1", b"GET / HTTP/1.1\r\nContent-Length: -1", b"GET \xff HTTP/1",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1",
    ],
)  # fmt: skip
def test_what_is_no_request_gets_400_and_one_line_in_the_log(
    start: Start, capfd: pytest.CaptureFixture[str], line: bytes
) -> None:
    running = start()
    answer = rest(running.connect(line + b"\r\n\r\n"))
    assert statuses(answer) == [400]
    assert running.get() == 200
    assert _is_logged(answer, capfd)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        # The request line: RFC 9112, section 3.
        (b"GET  / HTTP/1.1\r\nHost: x", 400), (b"GET /  HTTP/1.1\r\nHost: x", 400), (b"GET / HTTP/1.1 ", 400),
        (b"GET\t/ HTTP/1.1\r\nHost: x", 400), (b"GET /", 400), (b"GET / HTTP/0.9", 400), (b"GET / HTTP/2.0", 400),
        (b"GET / http/1.1\r\nHost: x", 400), (b"SOURCE / ICE/1.0\r\nHost: x", 400),
        # Host: section 3.2.
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: x", 400), (b"GET / HTTP/1.0\r\nHost: x\r\nHost: x", 400),
        (b"GET http://a@x/ HTTP/1.1\r\nHost: x", 400),
        # Fields: section 5.
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c", 400), (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc", 400),
        (b"GET / HTTP/1.1\r\nHost : x", 400), (b"GET / HTTP/1.1\r\nHost: x\r\n: b", 400),
        (b"GET / HTTP/1.1\nHost: x", 400), (b"GET / HTTP/1.1\r\nHost: x\r\nA: \0", 400),
        # The length of the body: section 6.
        (b"PUT / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip", 501),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked", 501),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked", 501),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5", 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: +5", 400),
    ],
)  # fmt: skip
def test_a_request_that_a_proxy_may_read_differently_is_refused_and_its_connection_ends(
    start: Start, head: bytes, status: int
) -> None:
    running = start()
    answer = rest(running.connect(head + b"\r\n\r\n0\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert statuses(answer) == [status]
    assert b"\r\nConnection: close\r\n" in answer
    assert running.app.seen == []


def test_a_url_as_target_names_the_host(start: Start) -> None:
    running = start()
    rest(running.connect(b"GET http://[::1]:99?a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    (seen,) = running.app.seen
    assert (seen["HTTP_HOST"], seen["PATH_INFO"], seen["QUERY_STRING"]) == ("[::1]:99", "/", "a")


def test_what_follows_a_body_in_chunks_in_the_same_packet_is_left_to_another_connection(start: Start) -> None:
    running = start()
    chunked = b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    one = running.connect(chunked)
    assert one.recv(1000).startswith(b"HTTP/1.1 200")
    one.sendall(chunked + b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
    assert statuses(rest(one)) == [200]
    assert [seen["PATH_INFO"] for seen in running.app.seen] == ["/a", "/a"]


def _is_logged(answer: bytes, capfd: pytest.CaptureFixture[str]) -> bool:
    """Whether the log is one line with the request ID that is in the answer."""
    found = re.search(rb"Openstack-Request-Id: (req-[0-9a-f-]{36})\r\n", answer)
    said: list[str] = []

    def logged() -> bool:
        said.extend(capfd.readouterr())
        return found is not None and f"request_id={found[1].decode()}" in "".join(said)

    return until(logged) and "".join(said).count("\n") == 1


def test_a_header_without_end_is_refused(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    running = start()
    one = running.connect(b"GET / HTTP/1.1\r\n" + b"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 50_000)
    answer = one.recv(4096)
    assert answer[:12] == b"HTTP/1.1 431"
    assert running.get() == 200
    assert _is_logged(answer, capfd)


def test_many_refusals_are_not_all_logged(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    running = start()
    for _ in range(60):
        assert statuses(rest(running.connect(b"nonsense\r\n\r\n"))) == [400]
    assert 0 < "".join(capfd.readouterr()).count("\n") < 60


def test_a_request_whose_first_bytes_came_with_the_previous_one_keeps_its_header(start: Start) -> None:
    running = start()
    one = running.connect(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGE")
    assert one.recv(1000).startswith(b"HTTP/1.1 200")
    one.sendall(b"T /second HTTP/1.1\r\nHost: x\r\nX-Mark: 1\r\nConnection: close\r\n\r\n")
    assert statuses(rest(one)) == [200]
    assert running.app.seen[-1]["HTTP_X_MARK"] == "1"


def test_a_client_that_has_closed_its_half_gets_its_answer(start: Start) -> None:
    running = start()
    one = running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
    one.shutdown(socket.SHUT_WR)
    assert until(lambda: bool(running.app.seen))
    assert running.get() == 200  # the end of its half has been seen by now
    running.app.pxe_filter.set()
    assert statuses(rest(one)) == [200]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b""),
        (b"GET /a HTTP/1.0\r\n\r\n", b"0 bytes"),
        (b"GET http://other:99/a?b=%20c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"0 bytes"),
        (b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n\r\n",
         b"1 bytes"),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n", b"0 bytes"),
    ],
)  # fmt: skip
def test_ways_to_ask(start: Start, request_: bytes, answer: bytes) -> None:
    running = start()
    data = rest(running.connect(request_))
    assert statuses(data) == [200]
    assert data.partition(b"\r\n\r\n")[2] == answer
    (seen,) = running.app.seen
    assert (seen["PATH_INFO"], seen["REMOTE_ADDR"], seen["SERVER_PORT"]) == ("/a", "127.0.0.1", str(running.port))


def test_an_underscore_does_not_pass_for_a_hyphen(start: Start) -> None:
    running = start()
    fields = b"X_Forwarded_For: 1.2.3.4\r\nX-A: 1\r\nX-A: 2\r\nCookie: a=1\r\nCookie: b=2"
    rest(running.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields + b"\r\n\r\n"))
    (seen,) = running.app.seen
    assert "HTTP_X_FORWARDED_FOR" not in seen
    assert (seen["HTTP_X_A"], seen["HTTP_COOKIE"]) == ("1, 2", "a=1; b=2")


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("path", ["/v1/continue_inspection", "/v1/nodes"])
def test_a_body_that_is_too_large_is_told_so_though_its_client_writes_all_of_it_first(
    start: Start, sqlite_url: str, request: pytest.FixtureRequest, chunked: bool, path: str
) -> None:
    size = 30_000_000
    service = Service(sqlite_url)
    request.addfinalizer(service.close)
    one = start(service.app).connect()
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
    one.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n\r\n" % (path.encode(), framing))
    for left in range(size, 0, -65536):
        part = b"[" * min(65536, left)
        one.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
    if chunked:
        one.sendall(b"0\r\n\r\n")
    head, _, body = rest(one).partition(b"\r\n\r\n")
    assert statuses(head) == [413]
    assert json.loads(json.loads(body)["error_message"])["faultcode"] == "Client"


def test_a_client_that_asks_first_is_told_before_it_sends(start: Start) -> None:
    running = start(max_body_size=5000)
    fields = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    one = running.connect(fields % 4)
    assert one.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    one.sendall(b"abcd")
    assert statuses(rest(one)) == [200]
    refused = running.connect(fields % 5001)
    assert refused.recv(4)  # the application's answer, whatever it is; no "go on"
    assert running.app.seen[-1]["CONTENT_LENGTH"] == "5001"
    assert running.app.seen[-1]["wsgi.input"].getvalue() == b""


def test_the_application_sees_the_beginning_of_what_is_too_large(start: Start) -> None:
    size = 900_000
    running = start(max_body_size=5000)
    running.connect(BODY % size + b"x" * size).shutdown(socket.SHUT_WR)
    assert until(lambda: bool(running.app.seen))
    (seen,) = running.app.seen
    assert seen["CONTENT_LENGTH"] == str(size)
    assert 0 < len(seen["wsgi.input"].getvalue()) <= 256 * 1024
