"""An HTTP or HTTPS server in this process, which hands each request to something that answers."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.support.http_body import whole_body


class Answer(NamedTuple):
    """An answer; ``body`` is sent as it is if it is bytes."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}


class Answers(Protocol):
    """What answers requests; ``body`` is the decoded JSON, None without one."""

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answers: Answers
    errors: list[Exception]
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread: a client that does not must stop no other."""
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        with self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secured:
            secured.do_handshake()
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or does not trust the certificate, is what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _handle(self) -> None:
        text = whole_body(self)
        try:
            body = json.loads(text) if text else None
            answer = self.server.answers.answer(self.command, self.path, self.headers, body)
        except Exception as exc:  # noqa: BLE001  # of the bench itself: it must fail the test
            self.server.errors.append(exc)
            answer = Answer(500)
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        if answer.body is not None and not isinstance(answer.body, bytes):
            body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in ({"Content-Type": "application/json; charset=utf-8"} | answer.headers).items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the overridden method
        pass


@contextmanager
def hosted(answers: Answers, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Serve until the end of the block; give the URL. ``certificate``: its file and its key's, for https.

    An error in ``answers`` is raised at the end of the block.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.answers, server.errors = answers, []
    if certificate is not None:
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(*certificate)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    scheme = "http" if certificate is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    if server.errors:
        raise server.errors[0]
