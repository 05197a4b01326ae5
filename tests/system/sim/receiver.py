"""Real servers for the simulator's tests: one that takes callbacks, and ones that misbehave on TCP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from tests.support.http_target import Handler, HttpTarget
from tests.support.processes import PATIENCE


class Callback(msgspec.Struct, frozen=True):
    """A callback as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    client: tuple[str, int]


class Receiver(HttpTarget):
    """Takes callbacks, and answers each with the next line of ``script``, the last one forever.

    A line is a status, ``close`` (hang up without an answer), ``hang`` (no answer until the end), or the
    bytes of an answer, after which it hangs up when they are not even a whole head.
    """

    def __init__(self, *script: int | str | bytes) -> None:
        super().__init__()
        self.script = list(script or (202,))
        self.callbacks: list[Callback] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        super().__exit__()

    @property
    def url(self) -> str:
        return f"{super().url}/v1/continue_inspection"

    def respond(self, handler: Handler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self.callbacks.append(Callback(handler.path, headers, body, handler.client_address))
            line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(line, bytes):
            handler.wfile.write(line)
            handler.close_connection = b"\r\n\r\n" not in line
        elif isinstance(line, int):
            handler.send(line, {}, b'{"uuid": "x"}')
        else:
            handler.close_connection = True
            if line == "hang":
                self.ended.wait(PATIENCE)


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
