"""A mirror of Debian that passes requests on to the real one, keeps what it has passed on, and breaks where it is told.

What it keeps is a mirror of its own, of what was asked for, as one on a disk.
"""

from __future__ import annotations

import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ferroscope.contrib.ramdisk import mirrors
from ferroscope.contrib.ramdisk.plan import BuildPlan
from tests.support.processes import PATIENCE

Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def missing(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    """Answer that there is no such file."""
    handler.send_error(404)


def page(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    """Answer with a web page, as a network that wants a login first."""
    _send(handler, b"<html><body>Please log in</body></html>")


def cut_off(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """End in the middle of a file."""
    _send(handler, content, most=len(content) // 2)
    handler.close_connection = True


def silent(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """Send nothing more in the middle of a file, and keep the connection."""
    _send(handler, content, most=len(content) // 2)
    handler.wfile.flush()
    server: Any = handler.server
    server.over.wait()
    handler.close_connection = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        kept = self.server.directory / unquote(self.path).lstrip("/")
        try:
            if not kept.is_file():
                _fetch(self.path, kept)
            content = kept.read_bytes()
        except urllib.error.HTTPError as exc:
            self.send_error(exc.code)
            return
        breaks = re.search(self.server.where, self.path) if self.server.where else None
        (self.server.answer if breaks else _send)(self, content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the overridden method
        pass


def _real(path: str) -> str:
    """Return the URL of a file at the mirror that this host's apt uses."""
    real = mirrors.of(BuildPlan())
    _, archive, file = path.split("/", 2)
    return f"{real.security if archive == 'debian-security' else real.packages}/{file}"


def _fetch(path: str, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_name(f"{kept.name}.{threading.get_ident()}")
    with urllib.request.urlopen(_real(path), timeout=PATIENCE) as answer, new.open("wb") as file:
        shutil.copyfileobj(answer, file)
    new.rename(kept)


def _send(handler: BaseHTTPRequestHandler, content: bytes, *, most: int | None = None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[:most])


@contextmanager
def serving(directory: Path, where: str = "", answer: Answer = missing) -> Iterator[str]:
    """Give its URL; ``directory``: what it keeps. ``where``: an expression for the paths at which it breaks."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.directory, server.where, server.answer, server.over = directory, where, answer, threading.Event()
    thread = threading.Thread(target=partial(server.serve_forever, 0.02), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)
