"""A consumer of webhooks in a process of its own: it notes each event in a file, then confirms it, or fails to.

``python -m tests.support.consumer PORT FILE SECRET [MOODS]``. Standard library only. Each request meets a mood at
random: ``ok``, ``500``, ``429``, ``slow``, ``half`` (noted, but the answer is cut off), ``silent`` (noted, but the
connection is closed). A kill loses nothing of what was confirmed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import random
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests import ROOT
from tests.support.http_body import whole_body
from tests.support.installation import Played
from tests.support.processes import free_port

SECRET: Final = "a secret of tests"


class Consumer(Played):
    """The process; ``events`` are what it has noted, in the order of arrival."""

    def __init__(self, directory: Path, *moods: str) -> None:
        self.port = free_port()
        self.file = directory / f"events-{self.port}"
        command = [sys.executable, "-m", "tests.support.consumer", str(self.port), str(self.file), SECRET, *moods]
        super().__init__(f"consumer-{self.port}", directory, command, cwd=ROOT)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def start(self) -> None:
        super().start()
        self.wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2):
                return True
        except OSError:
            return False

    def events(self) -> list[dict[str, Any]]:
        """Return what was noted; a line that a kill has cut off was never confirmed."""
        lines = self.file.read_text().splitlines(keepends=True) if self.file.exists() else []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def is_signed(headers: Any, body: bytes, secret: str) -> bool:
    """Whether the signature is right and recent, as the Standard Webhooks specification says."""
    stamp = str(headers.get("webhook-timestamp", ""))
    signed = f"{headers.get('webhook-id')}.{stamp}.".encode() + body
    wanted = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()
    recent = stamp.isdigit() and abs(time.time() - int(stamp)) < 300
    return recent and hmac.compare_digest(f"v1,{wanted}", str(headers.get("webhook-signature", "")))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, file: str, secret: str, moods: list[str]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.secret = secret
        self.moods = moods or ["ok"]
        self.lock = threading.Lock()
        os.write(self.descriptor, b"\n")  # ends a line that a kill has cut off


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        body = whole_body(self)
        mood = random.choice(self.server.moods)
        if mood == "slow":
            time.sleep(0.3)
        if mood in ("500", "429"):
            self._answer(int(mood))
            return
        event = json.loads(body)
        event["bad"] = (
            not is_signed(self.headers, body, self.server.secret) or event["id"] != self.headers["webhook-id"]
        )
        with self.server.lock:
            os.write(self.server.descriptor, json.dumps(event).encode() + b"\n")
            os.fsync(self.server.descriptor)
        if mood == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        if mood in ("half", "silent"):
            self.close_connection = True
            return
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Be silent."""


if __name__ == "__main__":
    _Server(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]).serve_forever()
