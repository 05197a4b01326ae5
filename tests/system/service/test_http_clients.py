"""The HTTP server beside too many clients and busy ones, and its end."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.api.service import Service
from tests.support.processes import PATIENCE, until
from tests.system.service.small_server import BODY, Running, Small, Start, is_open, rest, statuses


def test_of_too_many_connections_of_a_source_the_most_silent_is_closed(start: Start) -> None:
    running = start(max_connections_per_source=20)
    members = running.server._host.connections.members
    other = running.connect(source="127.0.0.2")
    half_sent = []
    for number in range(20):
        half_sent.append(running.connect(BODY % 9000))
        assert until(lambda number=number: sum(one.phase.name == "BODY" for one in list(members)) > number)
    half_sent[0].sendall(b"x")
    assert until(lambda: any(one.held for one in list(members)))
    assert [running.get() for _ in range(5)] == [200] * 5
    assert until(lambda: not is_open(half_sent[1]))
    assert is_open(half_sent[0])
    assert is_open(half_sent[-1])
    assert is_open(other)


def test_a_proxy_is_many_sources(start: Start) -> None:
    running = start(max_connections_per_source=5, trusted_proxies=("127.0.0.1",))
    many = [running.connect() for _ in range(20)]
    assert running.get() == 200
    assert all(is_open(one) for one in many)


def test_a_request_that_is_being_answered_is_not_closed_for_others(start: Start) -> None:
    running = start(max_connections_per_source=5, max_connections=16, threads=1)
    asked = running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert until(lambda: bool(running.app.seen))
    for _ in range(50):
        running.connect(source=f"127.0.0.{_ % 20 + 1}")
    running.app.pxe_filter.set()
    assert statuses(rest(asked)) == [200]


def test_one_source_cannot_fill_the_queue(start: Start) -> None:
    running = start(threads=1, max_requests_per_source=3)
    held = [running.connect(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") for _ in range(3)]
    assert until(lambda: running.server._host.connections._queued == 3)
    refused = rest(running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
    assert statuses(refused) == [429]
    assert b"Retry-After: 1\r\n" in refused
    agent = b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: python-ironicclient\r\n\r\n"
    refused = rest(running.connect(agent))
    assert (statuses(refused), b"Retry-After" in refused) == ([429], False)
    ramdisk = b"POST /v1/continue_inspection HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    assert statuses(rest(running.connect(ramdisk))) == [503]
    other = running.connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", source="127.0.0.2")
    running.app.pxe_filter.set()
    assert statuses(rest(other)) == [200]
    assert [statuses(rest(one)) for one in held] == [[200]] * 3
    assert running.get() == 200
    assert until(lambda: not running.server._host.connections._requests_of)


def test_behind_a_trusted_proxy_its_clients_are_counted(start: Start) -> None:
    running = start(threads=1, max_requests_per_source=1, trusted_proxies=("127.0.0.1",))
    line = b"GET /%s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nConnection: close\r\n\r\n"
    held = running.connect(line % (b"held", b"192.0.2.1"))
    assert until(lambda: running.server._host.connections._queued == 1)
    assert statuses(rest(running.connect(line % (b"", b"192.0.2.1")))) == [429]
    other = running.connect(line % (b"", b"192.0.2.2"))
    running.app.pxe_filter.set()
    assert statuses(rest(other)) == [200]
    assert statuses(rest(held)) == [200]


def test_half_sent_bodies_share_a_budget_and_the_oldest_make_room(start: Start) -> None:
    running = start(max_buffered=4 * 1024 * 1024, max_body_size=1024 * 1024, max_connections_per_source=1000)
    half_sent = [running.connect(BODY % 1_000_000 + b"x" * 900_000) for _ in range(12)]
    assert until(lambda: sum(map(is_open, half_sent)) <= 4)
    last = half_sent[-1]
    last.setblocking(True)
    last.sendall(b"x" * 100_000)
    assert last.recv(12) == b"HTTP/1.1 200"
    assert running.server._host.connections._held <= 4 * 1024 * 1024


def test_half_sent_headers_share_the_budget_too(start: Start) -> None:
    running = start(max_buffered=1024 * 1024, max_body_size=1024 * 1024, max_connections_per_source=1000)
    head = b"GET /v1/ HTTP/1.1\r\nHost: x\r\nCookie: " + b"x" * 60_000
    half_sent = [running.connect(head) for _ in range(40)]
    assert until(lambda: sum(map(is_open, half_sent)) <= 1024 * 1024 // 60_000)
    assert running.server._host.connections._held <= 1024 * 1024
    assert running.get() == 200


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
            running.connect(b"" if number % 2 else BODY % 9000, source=f"127.0.{number % 7 + 1}.1")
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
        assert statuses(rest(clients[-1])) == [200]
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        clients.append(socket.create_connection(address, 10))
        clients[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert statuses(rest(clients[-1])) == [200]
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
    assert not is_open(idle)


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
    answer = rest(busy)
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
    assert {statuses(rest(one))[0] for one in asked} <= {400, 404}


def _upload(running: Running, source: str, size: int, *, proxied: bool = False) -> socket.socket:
    """Begin to send a body of this size, all but its last byte, and return when it has been read."""
    members = running.server._host.connections.members
    address, reported = ("127.0.0.1", b"X-Forwarded-For: %s\r\n" % source.encode()) if proxied else (source, b"")
    one = running.connect(b"POST /sum HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (reported, size), address)
    port = str(one.getsockname()[1])
    one.sendall(b"x" * (size - 1))
    assert until(lambda: any(m._base["REMOTE_PORT"] == port and m.held == size - 1 for m in list(members)))
    return one


@pytest.mark.parametrize("proxied", [False, True], ids=["direct", "proxied"])
def test_a_source_that_uploads_too_much_ends_its_own_uploads_only(start: Start, *, proxied: bool) -> None:
    proxies = ("127.0.0.1",) if proxied else ()
    running = start(max_buffered=4_000_000, trusted_proxies=proxies)
    slow = _upload(running, "127.0.0.2", 1_000_000, proxied=proxied)
    greedy = [_upload(running, "127.0.0.3", 500_000, proxied=proxied) for _ in range(20)]
    assert is_open(greedy[-1])
    assert not is_open(greedy[0])
    slow.sendall(b"x")
    assert slow.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("is_first", [False, True], ids=["afterwards", "first"])
def test_a_client_that_does_not_read_its_response_ends_no_upload_of_others(start: Start, *, is_first: bool) -> None:
    running = start(max_buffered=2_500_000)
    members = running.server._host.connections.members
    upload = None if is_first else _upload(running, "127.0.0.3", 100_000)
    reader = running.connect(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", "127.0.0.2")
    assert until(lambda: any(m.held > 2_500_000 for m in list(members)))
    upload = upload or _upload(running, "127.0.0.3", 100_000)
    upload.sendall(b"x")
    assert upload.recv(1000).startswith(b"HTTP/1.1 200")
    assert len(rest(reader)) < 8_000_000


def test_of_too_many_connections_those_of_the_largest_source_are_closed(start: Start) -> None:
    running = start(max_connections=16)
    first = running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "127.0.0.2")
    assert first.recv(1000).startswith(b"HTTP/1.1 200")
    greedy = [running.connect(source="127.0.0.3") for _ in range(40)]
    assert running.get(source="127.0.0.4") == 200
    assert until(lambda: not is_open(greedy[0]))
    assert is_open(first)


def test_bodies_of_one_source_that_wait_for_a_thread_do_not_stop_others(start: Start) -> None:
    running = start(threads=1, max_buffered=2 * 1024 * 1024)
    connections = running.server._host.connections
    body = b"POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500_000
    greedy = [running.connect(source="127.0.0.3") for _ in range(8)]
    for number, one in enumerate(greedy):
        threading.Thread(target=one.sendall, args=(body,), daemon=True).start()
        assert until(lambda number=number: connections._queued + len(connections._paused) > number)
    other, members = running.connect(BODY % 100_000, "127.0.0.2"), connections.members
    assert until(lambda: any(m.source == "127.0.0.2" and m.phase.name == "BODY" for m in list(members)))
    other.sendall(b"x" * 100_000)
    assert until(lambda: "127.0.0.2" in connections._requests_of)
    running.app.pxe_filter.set()
    assert other.recv(1000).startswith(b"HTTP/1.1 200")
    assert all(one.recv(1000).startswith(b"HTTP/1.1 200") for one in greedy)
