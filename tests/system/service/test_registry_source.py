"""Another Bare Metal service as the source of nodes: read over HTTP, page by page, or not at all."""

from __future__ import annotations

import gzip
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from ferroscope.config.options import ApiSettings
from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.core.model import Node
from ferroscope.http_server.server import HttpServer, bind
from ferroscope.remote import bare_metal_http
from ferroscope.remote.bare_metal_http import IronicSource
from tests.api.service import Service
from tests.support.bad_server import a_server_that, one_by_one
from tests.support.http_target import HttpTarget
from tests.support.processes import PATIENCE, finished, free_port, until


@pytest.fixture
def registry(sqlite_url: str) -> Iterator[tuple[Service, str]]:
    """Give a service whose nodes are the registry, and its address."""
    service = Service(sqlite_url)
    socket = bind("127.0.0.1", 0)
    server = HttpServer(service.app, ApiSettings(), [socket])
    server.start()
    yield service, f"http://127.0.0.1:{socket.getsockname()[1]}"
    server.stop(5)
    service.close()


def source_at(url: str, *, timeout: float, retries: int = 0, stop: threading.Event | None = None) -> IronicSource:
    return IronicSource(url, timeout=timeout, retries=retries, stop=stop or threading.Event())


def enrol(service: Service, number: int) -> set[str]:
    nodes = [Node(uuid=str(uuid.uuid4()), driver="fake-hardware") for _ in range(number)]

    def work(tx) -> None:  # type: ignore[no-untyped-def]
        for node in nodes:
            tx.nodes.add(node)

    service.store.write(work)
    return {node.uuid for node in nodes}


def test_all_nodes_are_read_however_many_pages_they_fill(
    registry: tuple[Service, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, url = registry
    monkeypatch.setattr(bare_metal_http, "PAGE_ITEMS", 3)
    expected = enrol(service, 10)
    assert source_at(url, timeout=PATIENCE).tracked() == expected


def test_an_empty_registry_is_an_answer(registry: tuple[Service, str]) -> None:
    assert source_at(registry[1] + "/", timeout=PATIENCE).tracked() == frozenset()


def test_a_registry_that_is_not_there_is_no_answer() -> None:
    with pytest.raises(IronicUnavailableError):
        source_at(f"http://127.0.0.1:{free_port()}", timeout=1.0).tracked()


def test_an_error_of_the_registry_is_no_answer(registry: tuple[Service, str]) -> None:
    with pytest.raises(IronicUnavailableError, match="404"):
        source_at(registry[1] + "/elsewhere", timeout=PATIENCE).tracked()


def test_a_registry_that_sends_a_byte_at_a_time_is_given_up_in_time() -> None:
    with a_server_that(one_by_one(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 9000), pause=0.01) as port:
        with pytest.raises(IronicUnavailableError, match=r"within 0\.3 s"):
            source_at(f"http://127.0.0.1:{port}", timeout=0.3, retries=1).tracked()
        assert port.calls == 2, "each try has the same time"
        assert port.heard_out == 0


def test_the_stop_flag_ends_the_pauses_between_tries() -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    source = source_at(f"http://127.0.0.1:{free_port()}", timeout=1.0, retries=1000, stop=stop)
    with pytest.raises(IronicUnavailableError):
        finished(source.tracked)  # all pauses would be hours


def test_a_process_that_stops_reads_no_further_page(registry: tuple[Service, str]) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(IronicUnavailableError, match="stopping"):
        source_at(registry[1], timeout=PATIENCE, stop=stop).tracked()


def answering(*bodies: bytes, status: str = "200 OK", length: int | None = None, more: str = "") -> list[bytes]:
    """Return what a server sends: the same to everybody."""
    body = b"".join(bodies)
    size = len(body) if length is None else length
    return [f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{more}Connection: close\r\n\r\n".encode() + body]


@pytest.mark.parametrize(
    "sent",
    [
        answering(b'{"error": "no token"}', status="401 Unauthorized"),
        answering(b"", status="403 Forbidden"),
        answering(b"oops", status="500 Internal Server Error"),
        answering(b"<html>It works</html>"),
        answering(b'{"nodes": [{"uu'),
        answering(b'{"nodes": []}', length=5000),
        answering(b'{"nodes": [{"name": "a"}]}'),
        answering(b'{"nodes": null}'),
        answering(b"{}"),
        answering(b"\xff\xfe\x00garbage"),
        answering(b'{"nodes": [', b" " * (9 * 1024 * 1024), b"]}"),
        answering(gzip.compress(b'{"nodes": [' + b" " * (9 * 1024 * 1024) + b"]}"), more="Content-Encoding: gzip\r\n"),
        answering(b'{"nodes": [], "next": "http://elsewhere.example/v1/nodes?marker=1"}'),
        answering(b'{"nodes": [{"uuid": "a"}], "next": "http://[::1/v1/nodes?marker=a"}'),
        answering(b"", status="302 Found"),
    ],
    ids=lambda sent: sent[0][:20].decode() + sent[0][-20:].decode("ascii", errors="replace"),
)
def test_an_answer_that_is_no_whole_list_is_no_answer(sent: list[bytes]) -> None:
    with a_server_that(sent) as port, pytest.raises(IronicUnavailableError):
        source_at(f"http://127.0.0.1:{port}", timeout=PATIENCE).tracked()


class Capped(HttpTarget):
    """A Bare Metal API whose pages are shorter than asked for, and whose links name another host."""

    nodes = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(250)]

    def answer(self, path: str, _body: bytes) -> tuple[int, bytes]:
        marker = parse_qs(urlsplit(path).query).get("marker", [None])[0]
        start = self.nodes.index(marker) + 1 if marker else 0
        page = self.nodes[start : start + 100]
        document: dict[str, object] = {"nodes": [{"uuid": one} for one in page]}
        if start + 100 < len(self.nodes):
            document["next"] = f"http://behind-a-proxy.invalid/v1/nodes?fields=uuid&limit=100&marker={page[-1]}"
        return 200, json.dumps(document).encode()


def test_a_registry_with_short_pages_is_read_to_its_end() -> None:
    with Capped() as server:
        assert source_at(server.url, timeout=PATIENCE).tracked() == frozenset(Capped.nodes)


class Together(BaseHTTPRequestHandler):
    """A Bare Metal API that keeps its connections, and answers when so many requests have come."""

    protocol_version = "HTTP/1.1"
    number = 3 * bare_metal_http._MAX_KEPT_CONNECTIONS
    together = threading.Barrier(number, timeout=PATIENCE)
    opened: list[str] = []
    ended: list[str] = []

    def setup(self) -> None:
        super().setup()
        self.opened.append(threading.current_thread().name)

    def finish(self) -> None:
        super().finish()
        self.ended.append(threading.current_thread().name)

    def do_GET(self) -> None:
        self.together.wait()
        self.send_response(200)
        self.send_header("Content-Length", "13")
        self.end_headers()
        self.wfile.write(b'{"nodes": []}')

    def log_message(self, *_args: object) -> None: ...


def test_few_connections_are_kept_after_many_requests_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Together) as server, ThreadPoolExecutor(Together.number) as callers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        source = source_at(f"http://127.0.0.1:{server.server_port}", timeout=PATIENCE)
        for _ in range(2):  # the second time, those that were kept are used again
            assert (
                list(callers.map(lambda _: source.tracked(), range(Together.number))) == [frozenset()] * Together.number
            )
            assert until(lambda: len(Together.opened) - len(Together.ended) == bare_metal_http._MAX_KEPT_CONNECTIONS)
        server.shutdown()
        source._http.close()
    assert len(Together.opened) == 2 * Together.number - bare_metal_http._MAX_KEPT_CONNECTIONS
    assert caplog.records == []  # a connection too many is no reason to warn
