"""An HTTP server whom the service calls: it answers as it is told, and notes every request."""

from __future__ import annotations

import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.support.http_body import whole_body
from tests.support.processes import PATIENCE


class Seen(NamedTuple):
    """A request as it arrived."""

    path: str
    headers: Message
    body: bytes


class HttpTarget(ThreadingHTTPServer):
    """Answers with the next of ``statuses``, the last one forever, ``headers`` and ``content``; ``with`` it is served.

    A request whose body contains ``poison`` gets a 500. No answer comes before ``goes_on`` is set, as it is at first.
    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
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

    def respond(self, handler: Handler, body: bytes) -> None:
        """Note a request, and answer it."""
        self.seen.append(Seen(handler.path, handler.headers, body))
        self.goes_on.wait(PATIENCE)
        status, content = self.answer(handler.path, body)
        handler.send(status, self.headers, content)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about clients that refuse the certificate."""


class Handler(BaseHTTPRequestHandler):
    server: HttpTarget
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _respond(self) -> None:
        self.server.respond(self, whole_body(self))

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _respond  # noqa: N815  # the library's names

    def send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        length = {} if status == 204 else {"Content-Length": str(len(content))}
        for name, value in {**headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        """Be silent."""
