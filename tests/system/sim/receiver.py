"""Real servers for the simulator's tests: one that takes callbacks, and ones that misbehave on TCP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from tests.support.http_body import whole_body
from tests.support.processes import PATIENCE


class Callback(msgspec.Struct, frozen=True):
    """A callback as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    client: tuple[str, int]


class Receiver:
    """Takes callbacks, and answers each with the next line of ``script``, the last one forever.

    A line is a status, ``close`` (hang up without an answer), ``hang`` (no answer until the end), or the
    bytes of an answer, after which it hangs up when they are not even a whole head.
    """

    def __init__(self, *script: int | str | bytes) -> None:
        self.script = list(script or (202,))
        self.callbacks: list[Callback] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/continue_inspection"

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def documents(self) -> list[Any]:
        return [msgspec.json.decode(callback.body) for callback in self.callbacks]

    def next(self, callback: Callback) -> int | str | bytes:
        with self._lock:
            self.callbacks.append(callback)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = whole_body(self)
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.answer(receiver.next(Callback(self.path, headers, body, self.client_address)))

            def answer(self, line: int | str | bytes) -> None:
                if isinstance(line, bytes):
                    self.wfile.write(line)
                    self.close_connection = b"\r\n\r\n" not in line
                elif isinstance(line, int):
                    text = b'{"uuid": "x"}'
                    self.send_response(line)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                else:
                    self.close_connection = True
                    if line == "hang":
                        receiver.ended.wait(PATIENCE)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def tcp_server(behave: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[int]]]:
    """Serve ``behave(socket)`` on each connection; give the address and a list that grows with each."""
    connections: list[int] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connections.append(len(connections) + 1)
            try:
                behave(self.request)
            except OSError:
                return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", connections
        finally:
            server.shutdown()
            thread.join()
