"""A server that answers as a test tells it: for what the real service does not do when asked to."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.http_body import whole_body

Answer = tuple[int, dict[str, str], bytes]

HANG_UP: Answer = (0, {}, b"")


class ScriptedServer:
    """Gives ``answers`` in turn, the last one forever; ``asked`` are the requests that came.

    ``ports`` are their methods, with the port of the client's end of the connection.
    """

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.ports: list[tuple[str, int]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = whole_body(self)
                outer.ports.append((self.command, self.client_address[1]))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                status, headers, content = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815  # the library's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that do not trust it
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


Serve = Callable[..., ScriptedServer]
