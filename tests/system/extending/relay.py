"""A board behind a relay: HTTP as Tasmota speaks it; switched on, it boots, and its ramdisk calls back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class Relay:
    """``with Relay(boot) as relay:``; ``boot`` is called in a thread of its own whenever the power comes on."""

    def __init__(self, boot: Callable[[], None]) -> None:
        self.commands: list[str] = []
        self.on = False
        self._boot = boot
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the base class's name
                parts = urlsplit(self.path)
                answer = relay.obey(parse_qs(parts.query)["cmnd"][0]) if parts.path == "/cm" else None
                body = json.dumps(answer).encode()
                self.send_response(404 if answer is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # the base class's name

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def obey(self, command: str) -> dict[str, str]:
        self.commands.append(command)
        if command == "Power On" and not self.on:
            threading.Thread(target=self._boot, daemon=True).start()
        self.on = {"Power On": True, "Power Off": False}.get(command, self.on)
        return {"POWER": "ON" if self.on else "OFF"}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
