"""A small HTTP proxy before a BMC that makes faults to order: what BMCs and networks do, for real.

``proxy.will(FAULT, times=2)`` applies it to the next two requests (with ``path`` and ``method``: to
those that match); everything else goes through. With ``sessions`` it also plays the session service
that the emulator behind it lacks. All requests are noted.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from tests.support.http_body import whole_body
from tests.support.processes import PATIENCE

_SESSIONS: Final = "/redfish/v1/SessionService/Sessions"


class Seen(NamedTuple):
    """A request that came in."""

    method: str
    path: str
    authorization: str
    token: str
    body: bytes


Fault = Callable[["_Handler"], None]


def status(code: int, message: str = "") -> Fault:
    """Answer with this status; the message goes where Redfish has it."""

    def act(handler: _Handler) -> None:
        handler.answer(code, json.dumps({"error": {"message": message}}).encode() if message else b"{}")

    return act


def reset(handler: _Handler) -> None:
    """Reset the connection instead of an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def silence(handler: _Handler) -> None:
    """Take the request and say nothing, until the other side gives up."""
    with contextlib.suppress(OSError):
        handler.connection.recv(1)


def late(seconds: float) -> Fault:
    """Let the request through, and answer after ``seconds`` only."""

    def act(handler: _Handler) -> None:
        if not handler.proxy.closing.wait(seconds):
            handler.answer(*handler.forwarded())

    return act


def trickle(handler: _Handler) -> None:
    """Send an answer that never ends, a byte at a time, so that no time-out between two bytes helps."""
    with contextlib.suppress(OSError):
        handler.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Slow: ")
        while not handler.proxy.closing.is_set():
            handler.connection.sendall(b"x")
            time.sleep(0.02)


def flood(handler: _Handler) -> None:
    """Send an answer that never ends, as fast as it can."""
    with contextlib.suppress(OSError):
        handler.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while not handler.proxy.closing.is_set():
            handler.connection.sendall(b" " * 65536)


def cut(handler: _Handler) -> None:
    """End the connection in the middle of the answer."""
    handler.connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"Id')
    handler.connection.shutdown(socket.SHUT_RDWR)


def web_page(handler: _Handler) -> None:
    """Answer like something that is no BMC at all."""
    handler.answer(200, b"<html>Welcome to your printer</html>", media="text/html")


def amended(change: Callable[[dict[str, Any]], object]) -> Fault:
    """Answer with what the BMC says, changed: a BMC that has more, or less, than the one behind."""

    def act(handler: _Handler) -> None:
        code, body = handler.forwarded()
        document = json.loads(body)
        change(document)
        handler.answer(code, json.dumps(document).encode())

    return act


def resource(document: dict[str, Any]) -> Fault:
    """Answer with this resource, which the BMC behind does not have."""
    return lambda handler: handler.answer(200, json.dumps(document).encode())


def after_its_effect(fault: Fault) -> Fault:
    """Let the request through, and lose the answer: the command took effect and nobody knows."""

    def act(handler: _Handler) -> None:
        handler.forwarded()
        fault(handler)

    return act


class _Planned:
    def __init__(self, fault: Fault, times: int, method: str | None, path: str) -> None:
        self.fault, self.times, self.method, self.path = fault, times, method, path


class FaultyProxy:
    """The proxy at ``url``; ``seen`` are the requests so far, ``passed`` those that took effect."""

    def __init__(self, upstream: str, *, sessions: bool = False) -> None:
        self.upstream = urlsplit(upstream)
        self.sessions = sessions
        self.seen: list[Seen] = []
        self.passed: list[Seen] = []
        self.closing = threading.Event()
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()
        self._planned: list[_Planned] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def will(self, fault: Fault, *, times: int = 1, method: str | None = None, path: str = "") -> None:
        """Apply ``fault`` to the next ``times`` requests of this method whose path has ``path`` in it."""
        with self._lock:
            self._planned.append(_Planned(fault, times, method, path))

    def heal(self) -> None:
        """Forget all faults that are still to come."""
        with self._lock:
            self._planned.clear()

    def requests(self, method: str, path: str = "") -> int:
        """Return how many such requests came in."""
        return sum(1 for seen in self.seen if seen.method == method and path in seen.path)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for planned in self._planned:
                if planned.times and planned.method in (None, method) and planned.path in path:
                    planned.times -= 1
                    return planned.fault
        return None

    @staticmethod
    def noted(handler: _Handler) -> Seen:
        headers = handler.headers
        authorization, token = headers.get("Authorization", ""), headers.get("X-Auth-Token", "")
        return Seen(handler.command, handler.path, authorization, token, handler.body)

    def open_session(self, credentials: dict[str, str]) -> str:
        token = secrets.token_hex(8)
        self._tokens[token] = _basic(credentials)
        return token

    def authorization(self, token: str) -> str | None:
        return self._tokens.get(token)

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: FaultyProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def proxy(self) -> FaultyProxy:
        return self.server.proxy

    def handle_one_request(self) -> None:
        super().handle_one_request()
        self.close_connection = True

    def _handle(self) -> None:
        self.body = whole_body(self)
        token = self.headers.get("X-Auth-Token", "")
        self.proxy.seen.append(self.proxy.noted(self))
        fault = self.proxy.next_fault(self.command, self.path)
        if fault is not None:
            fault(self)
        elif self.proxy.sessions and self._session_service(token):
            return
        else:
            self.answer(*self.forwarded())

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _handle  # noqa: N815  # http.server's names

    def _session_service(self, token: str) -> bool:
        """Answer what concerns sessions; return whether that was it."""
        if self.path.startswith(_SESSIONS):
            if self.command == "DELETE":
                self.answer(204, b"")
                return True
            opened = self.proxy.open_session(json.loads(self.body))
            self.answer(201, b"{}", headers={"X-Auth-Token": opened, "Location": f"{_SESSIONS}/{opened}"})
            return True
        if self.path.rstrip("/") != "/redfish/v1" and self.proxy.authorization(token) is None:
            self.answer(401, b'{"error": {"message": "no such session"}}')
            return True
        return False

    def forwarded(self) -> tuple[int, bytes]:
        """Pass the request on and return what came back."""
        upstream = self.proxy.upstream
        connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=PATIENCE)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        if (known := self.proxy.authorization(self.headers.get("X-Auth-Token", ""))) is not None:
            headers["Authorization"] = known
        self.proxy.passed.append(self.proxy.noted(self))
        try:
            connection.request(self.command, self.path, self.body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def answer(
        self, code: int, body: bytes, *, media: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        with contextlib.suppress(OSError):
            self.send_response(code)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the overridden method
        pass


def _basic(credentials: dict[str, str]) -> str:
    pair = f"{credentials['UserName']}:{credentials['Password']}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


P = TypeVar("P", bound=FaultyProxy)


@contextmanager
def proxy_to(upstream: str, *, sessions: bool = False, kind: type[P] | None = None) -> Iterator[P]:
    """Run a proxy, of ``kind`` where that is given, until the end of the block."""
    proxy: Any = (kind or FaultyProxy)(upstream, sessions=sessions)
    try:
        yield proxy
    finally:
        proxy.close()
