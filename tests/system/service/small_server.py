"""An HTTP server with a small application, and clients that send it bytes."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import HttpServer, bind
from ferroscope.http_server.tls import Certificates
from tests.support.processes import PATIENCE

BODY = b"POST /sum HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


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

    def __init__(self, app: Any, *, tls: bool = False, **options: Any) -> None:
        self.app = app
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        settings = msgspec.structs.replace(ApiSettings(host=("127.0.0.1",)), **options)
        self.server = HttpServer(app, settings, [listener], certificates=Certificates(settings) if tls else None)
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


def statuses(data: bytes) -> list[int]:
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]


def rest(one: socket.socket, seconds: float = PATIENCE) -> bytes:
    """Return all that comes until the server ends the connection; ``TimeoutError`` where it does not."""
    one.settimeout(seconds)
    data = b""
    try:
        while part := one.recv(1 << 20):
            data += part
    except ConnectionError:
        pass
    return data


def is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return bool(one.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
