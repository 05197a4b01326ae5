"""The HTTP server beside clients that are slow, silent, too many, or do not speak HTTP."""

from __future__ import annotations

import http.client
import json
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import HttpServer, bind
from tests.api.service import Service
from tests.support.processes import PATIENCE, until

_BODY = b"POST /sum HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


class Small:
    """An application that answers what it got; ``pxe_filter`` holds back answers to /held."""

    def __init__(self) -> None:
        self.pxe_filter = threading.Event()
        self.seen: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        self.seen.append(environ)
        body = environ["wsgi.input"].read()
        if environ["PATH_INFO"] == "/held":
            self.pxe_filter.wait(PATIENCE)
        answer = b"A" * 8_000_000 if environ["PATH_INFO"] == "/large" else b"%d bytes" % len(body)
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(answer)))])
        return [answer]


class Running:
    """A server on a port of 127.0.0.1 with these options; every socket that ``connect`` gives is closed at the end."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.app = app
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        settings = msgspec.structs.replace(ApiSettings(host="127.0.0.1"), **options)
        self.server = HttpServer(app, settings, [listener])
        self.server.start()
        self.sockets: list[socket.socket] = []

    def connect(self, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self.port), 10, source_address=(source, 0))
        self.sockets.append(one)
        if sent:
            one.sendall(sent)
        return one

    def get(self, path: str = "/", source: str = "127.0.0.1") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE, source_address=(source, 0))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def close(self) -> None:
        for one in self.sockets:
            one.close()
        self.server.stop(1)


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Running] = []

    def begin(app: Any = None, **options: Any) -> Running:
        running.append(Running(app or Small(), **options))
        return running[-1]

    yield begin
    for one in running:
        one.close()


def _statuses(data: bytes) -> list[int]:
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]


def _rest(one: socket.socket, seconds: float = PATIENCE) -> bytes:
    """Return all that comes until the server ends the connection; ``TimeoutError`` where it does not."""
    one.settimeout(seconds)
    data = b""
    try:
        while part := one.recv(1 << 20):
            data += part
    except ConnectionError:
        pass
    return data


def _is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return bool(one.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize(
    ("begin", "piece", "status"),
    [(b"", b"", []), (b"GET /", b"a", [408]), (b"GET / HTTP/1.1\r\nX", b"a", [408]), (_BODY % 9000, b"b", [408])],
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
    assert _statuses(b"".join(data)) == status


def test_a_kept_connection_ends_when_nothing_comes(start: Start) -> None:
    running = start(idle_timeout=0.5)
    one = running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert _statuses(_rest(one)) == [200]


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
    answer = _rest(running.connect(line + b"\r\n\r\n"))
    assert _statuses(answer) == [400]
    assert running.get() == 200
    assert _is_logged(answer, capfd)


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
        assert _statuses(_rest(running.connect(b"nonsense\r\n\r\n"))) == [400]
    assert 0 < "".join(capfd.readouterr()).count("\n") < 60


def test_requests_in_a_row_are_answered_in_their_order(start: Start) -> None:
    running = start()
    requests = b"".join(
        b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (n, n) + b"x" * n for n in range(9)
    )
    one = running.connect(requests + b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    data = _rest(one)
    assert [part.partition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 200 OK")[1:]] == [
        b"%d bytes" % n for n in (*range(9), 0)
    ]
    assert [environ["PATH_INFO"] for environ in running.app.seen] == [*(f"/{n}" for n in range(9)), "/end"]


def test_a_client_that_has_closed_its_half_gets_its_answer(start: Start) -> None:
    running = start()
    one = running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
    one.shutdown(socket.SHUT_WR)
    assert until(lambda: bool(running.app.seen))
    assert running.get() == 200  # the end of its half has been seen by now
    running.app.pxe_filter.set()
    assert _statuses(_rest(one)) == [200]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b""),
        (b"GET /a HTTP/1.0\r\n\r\n", b"0 bytes"),
        (b"GET http://other:99/a?b=%20c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"0 bytes"),
        (b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n\r\n", b"1 bytes"),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n", b"0 bytes"),
    ],
)  # fmt: skip
def test_ways_to_ask(start: Start, request_: bytes, answer: bytes) -> None:
    running = start()
    data = _rest(running.connect(request_))
    assert _statuses(data) == [200]
    assert data.partition(b"\r\n\r\n")[2] == answer
    (seen,) = running.app.seen
    assert (seen["PATH_INFO"], seen["REMOTE_ADDR"], seen["SERVER_PORT"]) == ("/a", "127.0.0.1", str(running.port))


def test_an_underscore_does_not_pass_for_a_hyphen(start: Start) -> None:
    running = start()
    fields = b"X_Forwarded_For: 1.2.3.4\r\nX-A: 1\r\nX-A: 2\r\nCookie: a=1\r\nCookie: b=2"
    _rest(running.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields + b"\r\n\r\n"))
    (seen,) = running.app.seen
    assert "HTTP_X_FORWARDED_FOR" not in seen
    assert (seen["HTTP_X_A"], seen["HTTP_COOKIE"]) == ("1, 2", "a=1; b=2")


@pytest.mark.parametrize("size", [2 * 1024 * 1024 + 1, 30_000_000])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("path", ["/v1/continue_inspection", "/v1/nodes"])
def test_a_body_that_is_too_large_is_told_so_though_its_client_writes_all_of_it_first(
    start: Start, sqlite_url: str, request: pytest.FixtureRequest, size: int, chunked: bool, path: str
) -> None:
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
    head, _, body = _rest(one).partition(b"\r\n\r\n")
    assert _statuses(head) == [413]
    assert json.loads(json.loads(body)["error_message"])["faultcode"] == "Client"


def test_a_client_that_asks_first_is_told_before_it_sends(start: Start) -> None:
    running = start(max_body_size=5000)
    fields = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    one = running.connect(fields % 4)
    assert one.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    one.sendall(b"abcd")
    assert _statuses(_rest(one)) == [200]
    refused = running.connect(fields % 5001)
    assert refused.recv(4)  # the application's answer, whatever it is; no "go on"
    assert running.app.seen[-1]["CONTENT_LENGTH"] == "5001"
    assert running.app.seen[-1]["wsgi.input"].getvalue() == b""


@pytest.mark.parametrize("size", [70_000, 300_000, 900_000])
def test_the_application_sees_the_beginning_of_what_is_too_large(start: Start, size: int) -> None:
    running = start(max_body_size=5000)
    running.connect(_BODY % size + b"x" * size).shutdown(socket.SHUT_WR)
    assert until(lambda: bool(running.app.seen))
    (seen,) = running.app.seen
    assert seen["CONTENT_LENGTH"] == str(size)
    assert 0 < len(seen["wsgi.input"].getvalue()) <= 256 * 1024


def test_of_too_many_connections_of_a_source_the_most_silent_is_closed(start: Start) -> None:
    running = start(max_connections_per_source=20)
    members = running.server._host.connections.members
    other = running.connect(source="127.0.0.2")
    half_sent = []
    for number in range(20):
        half_sent.append(running.connect(_BODY % 9000))
        assert until(lambda number=number: sum(one.phase.name == "BODY" for one in list(members)) > number)
    half_sent[0].sendall(b"x")
    assert until(lambda: any(one.held for one in list(members)))
    assert [running.get() for _ in range(5)] == [200] * 5
    assert until(lambda: not _is_open(half_sent[1]))
    assert _is_open(half_sent[0])
    assert _is_open(half_sent[-1])
    assert _is_open(other)


def test_a_proxy_is_many_sources(start: Start) -> None:
    running = start(max_connections_per_source=5, trusted_proxies=("127.0.0.1",))
    many = [running.connect() for _ in range(20)]
    assert running.get() == 200
    assert all(_is_open(one) for one in many)


def test_a_request_that_is_being_answered_is_not_closed_for_others(start: Start) -> None:
    running = start(max_connections_per_source=5, max_connections=16, threads=1)
    asked = running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert until(lambda: bool(running.app.seen))
    for _ in range(50):
        running.connect(source=f"127.0.0.{_ % 20 + 1}")
    running.app.pxe_filter.set()
    assert _statuses(_rest(asked)) == [200]


def test_one_source_cannot_fill_the_queue(start: Start) -> None:
    running = start(threads=1, max_requests_per_source=3)
    held = [running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") for _ in range(3)]
    assert until(lambda: running.server._host.connections._queued == 3)
    refused = _rest(running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert _statuses(refused) == [429]
    assert b"Retry-After: 1\r\n" in refused
    agent = b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: python-ironicclient\r\n\r\n"
    refused = _rest(running.connect(agent))
    assert (_statuses(refused), b"Retry-After" in refused) == ([429], False)
    ramdisk = b"POST /v1/continue_inspection HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    assert _statuses(_rest(running.connect(ramdisk))) == [503]
    other = running.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", source="127.0.0.2")
    running.app.pxe_filter.set()
    assert _statuses(_rest(other)) == [200]
    assert [_statuses(_rest(one)) for one in held] == [[200]] * 3
    assert running.get() == 200
    assert until(lambda: not running.server._host.connections._requests_of)


def test_behind_a_trusted_proxy_its_clients_are_counted(start: Start) -> None:
    running = start(threads=1, max_requests_per_source=1, trusted_proxies=("127.0.0.1",))
    line = b"GET /%s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nConnection: close\r\n\r\n"
    held = running.connect(line % (b"held", b"192.0.2.1"))
    assert until(lambda: running.server._host.connections._queued == 1)
    assert _statuses(_rest(running.connect(line % (b"", b"192.0.2.1")))) == [429]
    other = running.connect(line % (b"", b"192.0.2.2"))
    running.app.pxe_filter.set()
    assert _statuses(_rest(other)) == [200]
    assert _statuses(_rest(held)) == [200]


def test_half_sent_bodies_share_a_budget_and_the_oldest_make_room(start: Start) -> None:
    running = start(max_buffered=4 * 1024 * 1024, max_body_size=1024 * 1024, max_connections_per_source=1000)
    half_sent = [running.connect(_BODY % 1_000_000 + b"x" * 900_000) for _ in range(12)]
    assert until(lambda: sum(map(_is_open, half_sent)) <= 4)
    last = half_sent[-1]
    last.setblocking(True)
    last.sendall(b"x" * 100_000)
    assert last.recv(12) == b"HTTP/1.1 200"
    assert running.server._host.connections._held <= 4 * 1024 * 1024


def test_answers_that_nobody_reads_share_the_budget_too(start: Start) -> None:
    running = start(max_buffered=16 * 1024 * 1024)
    unread = [running.connect(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(6)]
    assert until(lambda: len(running.app.seen) == 6)
    assert until(lambda: running.server._host.connections._held <= 16 * 1024 * 1024)
    assert until(lambda: len(running.server._host.connections.members) < 6)
    assert running.get() == 200
    assert unread


def test_many_connections_that_do_nothing_leave_it_answering(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    try:
        running = start(max_connections=1500, max_connections_per_source=1000)
        for number in range(2000):
            running.connect(b"" if number % 2 else _BODY % 9000, source=f"127.0.{number % 7 + 1}.1")
        assert [running.get() for _ in range(100)] == [200] * 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# A server in a process of its own, which says its port: a limit of descriptors is for all threads of a process.
_ALONE = """
import signal
from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import HttpServer, bind

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "0")])
    return []

listener = bind("127.0.0.1", 0)
HttpServer(app, ApiSettings(host="127.0.0.1"), [listener]).start()
print(listener.getsockname()[1], flush=True)
signal.pause()
"""


def test_no_file_descriptors_left_is_survived_and_logged_once() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", _ALONE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    clients: list[socket.socket] = []
    try:
        assert server.stdout is not None
        address = ("127.0.0.1", int(server.stdout.readline()))
        used = max(int(one.name) for one in Path(f"/proc/{server.pid}/fd").iterdir())
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 8, limits[1]))
        clients += [socket.create_connection(address, 10) for _ in range(40)]
        clients[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert _statuses(_rest(clients[-1])) == [200]
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        clients.append(socket.create_connection(address, 10))
        clients[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert _statuses(_rest(clients[-1])) == [200]
    finally:
        for one in clients:
            one.close()
        server.kill()
        log, _ = server.communicate()
    assert log.count("Too many open files") == 1


def test_a_stop_waits_for_answers_and_not_for_idle_connections(start: Start) -> None:
    running = start()
    idle, half = running.connect(), running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert half.recv(12) == b"HTTP/1.1 200"
    asked = running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
    assert until(lambda: len(running.app.seen) == 2)
    stopping = threading.Thread(target=running.server.stop, args=(20,))
    stopping.start()
    assert until(lambda: not _accepts(running.port))
    assert stopping.is_alive()
    running.app.pxe_filter.set()
    assert b"200 OK" in asked.recv(1000)
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert not _is_open(idle)


def test_a_stop_ends_connections_on_which_requests_go_on(start: Start) -> None:
    app = Small()
    running = start(app)
    running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
    busy = running.connect()
    assert until(lambda: bool(app.seen))
    stopping = threading.Thread(target=running.server.stop, args=(10,))
    stopping.start()
    assert until(lambda: not _accepts(running.port))
    busy.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = _rest(busy)
    assert b"connection: close" in answer.lower()
    app.pxe_filter.set()
    stopping.join()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("unit", [b"[],", b'{"a":{}},', b"[" * 22 + b"]" * 22 + b",", b"1.5,", b'"aa",'])
def test_bodies_that_are_dear_to_decode_leave_others_their_answers(
    start: Start, sqlite_url: str, request: pytest.FixtureRequest, unit: bytes
) -> None:
    service = Service(sqlite_url, failure_rate=0.0)
    request.addfinalizer(service.close)
    running = start(service.app, threads=4)
    head = b'{"inventory":{"interfaces":[{"mac_address":"52:54:00:de:ad:01"}]},"x":['
    body = head + unit * (2_000_000 // len(unit)) + b"0]}"
    asked = [running.connect(b"POST /v1/continue_inspection HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(body) + body) for _ in range(8)]  # fmt: skip
    assert running.get("/healthcheck") == 200
    assert {_statuses(_rest(one))[0] for one in asked} <= {400, 404}
