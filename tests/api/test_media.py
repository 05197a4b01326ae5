"""The ramdisk's image as BMCs read it, from the real HTTP server: ranges, odd requests, slow readers."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ferroscope.config.options import ApiSettings, InspectorSettings
from ferroscope.http_server.server import HttpServer, bind
from ferroscope.http_server.tls import Certificates
from tests.api.service import Service
from tests.support import databases
from tests.support.certificates import Authority
from tests.support.processes import PATIENCE, open_files, until

_SIZE = 3_000_001
_URL = "/v1/media/ipa.iso"


class Server:
    """A running server on ``port``, whose image has ``content``."""

    def __init__(self, port: int, path: Path, authority: Authority | None = None) -> None:
        self.port = port
        self._authority = authority
        self.path = path
        self.content = path.read_bytes()

    def connect(self, *, buffer: int = 0, source: str = "") -> socket.socket:
        client = socket.socket()
        if source:
            client.bind((source, 0))
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", self.port))
        if self._authority is not None:
            context = ssl.create_default_context(cafile=str(self._authority.ca))
            return context.wrap_socket(client, server_hostname="127.0.0.1")
        return client

    def raw(self, request: str, client: socket.socket | None = None) -> tuple[int, dict[str, str], bytes]:
        """Send these bytes; return status, headers and all that follows until the server closes, or is complete."""
        with client or self.connect() as one:
            one.sendall(request.encode("latin-1"))
            stream = one.makefile("rb")
            status = int(stream.readline().split()[1])
            headers = {}
            while line := stream.readline().strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            closes = headers.get("connection") == "close"
            head = request.startswith("HEAD")
            body = b"" if head else stream.read() if closes else stream.read(int(headers["content-length"]))
        return status, headers, body

    def get(
        self, *headers: str, method: str = "GET", url: str = _URL, source: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        lines = [f"{method} {url} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
        return self.raw("\r\n".join(lines) + "\r\n\r\n", self.connect(source=source))


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Return a server with a file of some megabytes; it speaks HTTPS where the test says so."""
    path = tmp_path / "ipa.iso"
    path.write_bytes(os.urandom(_SIZE))
    (tmp_path / "secret.iso").write_bytes(b"secret")
    inspector = InspectorSettings(ramdisk_iso=str(path), callback_endpoint_override="http://192.0.2.1:6385")
    service = Service(databases.sqlite(tmp_path), sections={"inspector": inspector})
    listener = bind("127.0.0.1", 0)
    settings, authority, certificates = ApiSettings(threads=2, body_timeout=1), None, None
    if getattr(request, "param", "http") == "https":
        authority = Authority(tmp_path)
        pair = authority.issue("server")
        files = {"tls_certificate_file": str(pair.certificate), "tls_key_file": str(pair.key)}
        settings = msgspec.structs.replace(settings, **files)
        certificates = Certificates(settings)
    running = HttpServer(service.app, settings, [listener], certificates=certificates)
    running.start()
    try:
        yield Server(listener.getsockname()[1], path, authority)
    finally:
        running.stop(1)


also_https = pytest.mark.parametrize("server", ["http", "https"], indirect=True)


@also_https
def test_the_whole_image_arrives_and_is_announced_as_readable_in_parts(server: Server) -> None:
    status, headers, body = server.get()
    assert (status, body == server.content) == (200, True)
    assert (headers["content-length"], headers["accept-ranges"]) == (str(_SIZE), "bytes")
    assert headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-2047", 0, 2047),
        ("bytes=-512", _SIZE - 512, _SIZE - 1),
        (f"bytes=1000000-{_SIZE + 5000}", 1000000, _SIZE - 1),
    ],
)
def test_a_part_is_exactly_that_part(server: Server, wanted: str, first: int, last: int) -> None:
    status, headers, body = server.get(f"Range: {wanted}")
    assert (status, body == server.content[first : last + 1]) == (206, True)
    assert headers["content-range"] == f"bytes {first}-{last}/{_SIZE}"
    assert headers["content-length"] == str(last - first + 1)
    # HEAD says the same, without the bytes (aws/eks-anywhere#10484).
    probed, same, nothing = server.get(f"Range: {wanted}", method="HEAD")
    assert (probed, same["content-range"], nothing) == (206, headers["content-range"], b"")


def test_if_range_gives_a_part_of_the_same_file_only(server: Server) -> None:
    tag, modified = (server.get(method="HEAD")[1][name] for name in ("etag", "last-modified"))
    assert server.get("Range: bytes=0-9", f"If-Range: {tag}")[0] == 206
    assert server.get("Range: bytes=0-9", f"If-Range: {modified}")[0] == 206
    assert server.get("Range: bytes=0-9", 'If-Range: "other"')[0] == 200
    server.path.write_bytes(server.content[::-1])
    os.utime(server.path, (1, 1))
    assert server.get("Range: bytes=0-9", f"If-Range: {tag}")[0] == 200


@pytest.mark.parametrize(
    "request_text",
    [
        f"GET {_URL} HTTP/1.0\r\nRange: bytes=0-99\r\n\r\n",
        f"GET {_URL} HTTP/1.1\r\nHost:\r\nConnection: close\r\nRange: bytes=0-99\r\n\r\n",
        f"GET {_URL} HTTP/1.1\r\nConnection: close\r\nRANGE:bytes=0-99\r\n\r\n",
        f"GET {_URL} HTTP/1.1\r\nHost: 10.0.0.1:80\r\nConnection: close\r\nrange: bytes=0-99\r\n\r\n",
        f"GET http://192.0.2.1:6385{_URL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes=0-99\r\n\r\n",
    ],
)
def test_odd_requests_of_bmcs_get_their_part(server: Server, request_text: str) -> None:
    if "Host: x" in request_text:
        request_text = request_text.replace("Host: x", "Host: 192.0.2.1:6385")
    status, headers, body = server.raw(request_text)
    assert (status, body == server.content[:100]) == (206, True)
    assert headers["connection"] == "close"


@also_https
def test_hundreds_of_small_parts_on_one_connection_and_some_at_once(server: Server) -> None:
    with server.connect() as client:
        stream = client.makefile("rb")
        for number in range(300):
            at = number * 7919 % (_SIZE - 2048)
            client.sendall(f"GET {_URL} HTTP/1.1\r\nHost: [::1]\r\nRange: bytes={at}-{at + 2047}\r\n\r\n".encode())
            length = 0
            while line := stream.readline().strip():
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            assert stream.read(length) == server.content[at : at + 2048]
        # Pipelined.
        client.sendall(2 * f"GET {_URL} HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=0-99999\r\n\r\n".encode())
        for _ in range(2):
            while stream.readline().strip():
                pass
            assert stream.read(100_000) == server.content[:100_000]


@also_https
def test_slow_readers_hold_no_thread(server: Server) -> None:
    """The server has two threads; twenty clients that read nothing do not stop the others."""
    slow = [server.connect(buffer=4096) for _ in range(20)]
    try:
        for one in slow:
            one.sendall(f"GET {_URL} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        for _ in range(5):
            assert server.get("Range: bytes=0-9")[0] == 206
        assert slow[0].recv(12).startswith(b"HTTP/1.1 200")
    finally:
        for one in slow:
            one.close()


def _open_files(server: Server) -> int:
    return open_files().count(str(server.path.resolve()))


@also_https
def test_a_client_that_leaves_closes_the_file(server: Server) -> None:
    clients = [server.connect(buffer=4096) for _ in range(5)]
    for one in clients:
        one.sendall(f"GET {_URL} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert until(lambda: _open_files(server) == 5)
    for one in clients:
        one.close()
    assert until(lambda: _open_files(server) == 0)
    assert server.get(method="HEAD")[0] == 200
    assert until(lambda: _open_files(server) == 0)


@also_https
def test_a_client_that_stops_reading_is_cut_off_and_one_that_reads_is_not(server: Server) -> None:
    assert server.get()[2] == server.content
    with server.connect(buffer=4096) as client:
        client.sendall(f"GET {_URL} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert until(lambda: _open_files(server) == 1)
        assert until(lambda: _open_files(server) == 0)


def test_nothing_but_the_configured_file_is_served(server: Server) -> None:
    for name in ("secret.iso", "../../etc/passwd", "..%2fsecret.iso", "", "%2fetc%2fpasswd"):
        status, _, body = server.get(url=f"/v1/media/{name}")
        assert (status, b"secret" in body.replace(b"secret.iso", b"")) == (404, False), name


def _replace(server: Server) -> bytes:
    new = server.path.with_name("new.iso")
    new.write_bytes(server.content[::-1])
    os.utime(new, (1, 1))
    new.rename(server.path)
    return server.content[::-1]


def test_an_image_that_is_replaced_while_all_of_it_is_sent_is_sent_to_its_end(server: Server) -> None:
    with server.connect(buffer=4096) as client:
        client.sendall(f"GET {_URL} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert until(lambda: _open_files(server) == 1)
        _replace(server)
        with client.makefile("rb") as stream:
            assert stream.read().endswith(server.content)


def test_an_image_that_somebody_writes_to_while_it_is_sent_is_cut_off(server: Server) -> None:
    with server.connect(buffer=4096) as client:
        client.sendall(f"GET {_URL} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        body = client.recv(1)  # it is being sent: what is written from now on is too late
        with server.path.open("r+b") as file:
            file.write(b"other")
        os.utime(server.path, (1, 1))
        try:
            while data := client.recv(65536):
                body += data
        except (ConnectionError, ssl.SSLError):
            pass
        assert len(body) < _SIZE


def test_a_file_that_is_gone_or_no_file_is_not_found(server: Server) -> None:
    server.path.unlink()
    assert server.get()[0] == 404
    server.path.mkdir()
    assert server.get()[0] == 404
