"""An HTTP server whom the service calls: it answers as it is told, and notes every request."""

from __future__ import annotations

import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.support.http_body import whole_body
from tests.support.processes import PATIENCE


class Seen(NamedTuple):
    """A request as it arrived; ``body`` is empty for a GET."""

    path: str
    headers: Message
    body: bytes


class HttpTarget(ThreadingHTTPServer):
    """Answers with the next of ``statuses``, the last one forever, ``headers`` and ``content``; ``with`` it is served.

    A request whose body contains ``poison`` gets a 500. No answer comes before ``goes_on`` is set, as it is at first.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = [200]
        self.headers: dict[str, str] = {}
        self.content = b""
        self.seen: list[Seen] = []
        self.poison = b""
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.connections = 0
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_on.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, _path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and content of the next answer."""
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return 500 if self.poison and self.poison in body else status, self.content

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about clients that refuse the certificate."""


class _Handler(BaseHTTPRequestHandler):
    server: HttpTarget
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(whole_body(self))

    def _answer(self, body: bytes) -> None:
        self.server.seen.append(Seen(self.path, self.headers, body))
        self.server.goes_on.wait(PATIENCE)
        status, content = self.server.answer(self.path, body)
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        """Be silent."""
