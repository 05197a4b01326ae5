"""Runs the WSGI application: the environ of a request, the bytes of the response, and the threads for both.

The threads are started when there is a call for them. ``concurrent.futures`` gives each call a future with a lock and a
condition, which no caller here waits for. With it, a call costs the server half as much again.
"""

from __future__ import annotations

import io
import re
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from email.utils import formatdate
from http import HTTPStatus
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import httptools
import structlog

from ferroscope.http_server.agreed import HEADER
from ferroscope.http_server.file_part import FilePart

_AUTHORITY_END: Final = re.compile(rb"[/?#]")

Application = Callable[..., Iterable[bytes]]
Job = Callable[[], None]

_log: Final = structlog.get_logger(__name__)

# Sent with every response: browsers must not guess its type, run anything in it, embed it, keep a copy, or pass on its
# address. Source: OWASP Secure Headers Project.
_SECURITY_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
_HTTPS_ONLY: Final = ("Strict-Transport-Security", "max-age=31536000")


class ReceivedRequest:
    """The received part of a request. ``refused``: 413 if it is too large; ``asks``: its client waits for 100 Continue;
    ``undecided``: the application has not decided yet whether to read the body."""

    __slots__ = (
        "asks",
        "body",
        "headers",
        "keep",
        "length",
        "method",
        "refused",
        "size",
        "target",
        "undecided",
        "version",
    )

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()  # not its parts: a client may send a million of them
        self.size = 0
        self.length: int | None = None
        self.method = self.version = ""
        self.keep = True
        self.refused = 0
        self.asks = False
        self.undecided = False


def base_environ(host: str, port: int, *, https: bool = False) -> dict[str, Any]:
    """Return the environ that all requests of one listener share."""
    return {
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_SOFTWARE": "ferroscope",
        "SCRIPT_NAME": "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if https else "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }


def environ_of(request: ReceivedRequest, body: bytes) -> dict[str, Any]:
    """Return the environ of a request; ``ValueError`` if the request is invalid."""
    host, path, query = _target(request)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query.decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "wsgi.input": io.BytesIO(body),
    }
    for raw, value in request.headers:
        if b"_" in raw:  # in an environ it would look like the header with a hyphen
            continue
        name = "HTTP_" + raw.decode("latin-1").upper().replace("-", "_")
        text = value.decode("latin-1").strip()
        if name not in environ:
            environ[name] = text
        else:
            environ[name] += ("; " if name == "HTTP_COOKIE" else ", ") + text
    if host:
        environ["HTTP_HOST"] = host.decode("latin-1")
    environ.pop("HTTP_CONTENT_LENGTH", None)
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE", "")
    length = request.length or request.size if request.refused else len(body)
    if length:
        environ["CONTENT_LENGTH"] = str(length)
    return environ


def _target(request: ReceivedRequest) -> tuple[bytes, bytes, bytes]:
    """Return host, path and query of the request target; ``ValueError``, ``HttpParserError``.

    If the target is a URL, its host replaces the header Host (RFC 9112, section 3.2.2); otherwise it is b"".
    """
    target = request.target
    if target[:1] != b"/" and target != b"*":
        url = httptools.parse_url(target)
        host = _AUTHORITY_END.split(target.partition(b"//")[2], 1)[0]
        if url.schema not in (b"http", b"https") or b"@" in host:
            raise ValueError("not a URL of this server")
        return host, url.path or b"/", url.query or b""
    path, _, query = target.partition(b"#")[0].partition(b"?")
    return b"", path, query


def security_headers(*, https: bool, present: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return the headers of every response, except those whose names, in lower case, are ``present``."""
    wanted = (*_SECURITY_HEADERS, _HTTPS_ONLY) if https else _SECURITY_HEADERS
    return [(name, value) for name, value in wanted if name.lower() not in present]


# The same as lines, by their names in lower case: for HTTP and for HTTPS.
_SECURITY_LINES: Final = tuple(
    {name.lower(): f"{name}: {value}" for name, value in security_headers(https=https)} for https in (False, True)
)


def refusal(status: int, message: str = "", *, https: bool, request_id: str, retry: bool = False) -> bytes:
    """Return the server's own response to a request that never reaches the application; the connection ends with it.

    ``retry``: the client should try again in a second.
    """
    phrase = f"{status} {HTTPStatus(status).phrase}"
    text = message or phrase
    lines = [f"HTTP/1.1 {phrase}", "Connection: close", "Content-Type: text/plain", f"Content-Length: {len(text) + 1}"]
    lines += [f"{HEADER}: {request_id}", *(["Retry-After: 1"] if retry else [])]
    return "\r\n".join([*lines, *_SECURITY_LINES[https].values(), "", f"{text}\n"]).encode("latin-1")


def run(app: Application, environ: dict[str, Any], *, keep: bool, version: str) -> tuple[bytes, bytes | FilePart]:
    """Return head and body of the application's response; the connection itself reads a part of a file."""
    status, headers = "", [("Content-Length", "0")]

    def start_response(line: str, fields: list[tuple[str, str]], _exc_info: Any = None) -> None:
        nonlocal status, headers
        status, headers = line, fields

    parts = app(environ, start_response)
    body: bytes | FilePart
    if isinstance(parts, FilePart):
        body, length = parts, parts.length
    else:
        try:
            body = b"".join(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        length = len(body)
    lines, defaults = [f"HTTP/1.1 {status}"], _SECURITY_LINES[environ["wsgi.url_scheme"] == "https"].copy()
    if status[:3] not in ("204", "304"):
        defaults["content-length"] = f"Content-Length: {length}"
    defaults["date"] = f"Date: {formatdate(usegmt=True)}"
    for name, value in headers:
        lines.append(f"{name}: {value}")
        defaults.pop(name.lower(), None)
    if "\r" in (all_lines := "\x00".join(lines)) or "\n" in all_lines:
        raise ValueError("a response header contains a line break")
    lines += defaults.values()
    if not keep:
        lines.append("Connection: close")
    elif version == "1.0":
        lines.append("Connection: keep-alive")
    no_body = environ["REQUEST_METHOD"] == "HEAD" or status[:3] in ("204", "304")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), b"" if no_body else body


class CallThreads:
    """At most ``most`` threads, which live until ``close``. Submit from one thread only.

    Sources take turns, so that a source with many jobs delays each of the others by one of them. Half of the threads
    take no long job: the interpreter runs one thread at a time, so each long job slows all others down.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._started = 0
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, deque[tuple[Job, bool]]] = OrderedDict()  # and whether it is a long one
        self._long = 0  # jobs that run
        self._put_off = 0  # jobs that a thread could have taken, if not so many long ones had run
        # One True for each job; False ends a thread.
        self._waiting: SimpleQueue[bool] = SimpleQueue()
        # One entry for each thread that has finished its work. Surplus entries, once all threads have started, do no
        # harm.
        self._idle: deque[None] = deque()

    def submit(self, job: Job, source: str, *, is_long: bool = False) -> None:
        """Run ``job`` when a thread is free and it is this source's turn."""
        with self._lock:
            self._jobs.setdefault(source, deque()).append((job, is_long))
        self._waiting.put(True)
        try:
            self._idle.pop()
        except IndexError:
            if self._started < self._most:
                self._started += 1
                threading.Thread(target=self._run, name=f"{self._name}_{self._started}", daemon=True).start()

    def close(self) -> None:
        """Drop the waiting jobs; the threads end with their present job."""
        with self._lock:
            self._put_off = 0
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            for _ in range(self._started):
                self._waiting.put(False)

    def _run(self) -> None:
        while self._waiting.get():
            job, is_long = self._take()
            try:
                job()
            except Exception:  # noqa: BLE001  # the boundary: a job answers its own faults, and its thread must live
                _log.exception("a call failed")
            if is_long:
                self._end_long()
            self._idle.append(None)

    def _take(self) -> tuple[Job, bool]:
        """Return the first job of the source whose turn it is; an empty job if only long ones are left."""
        with self._lock:
            is_full = self._long >= max(1, self._most // 2)
            source = next((source for source, jobs in self._jobs.items() if not (is_full and jobs[0][1])), None)
            if source is None:
                self._put_off += 1
                return _do_nothing, False
            jobs = self._jobs[source]
            job, is_long = jobs.popleft()
            self._long += is_long
            if jobs:
                self._jobs.move_to_end(source)
            else:
                del self._jobs[source]
            return job, is_long

    def _end_long(self) -> None:
        with self._lock:
            self._long -= 1
            if self._put_off:
                self._put_off -= 1
                self._waiting.put(True)


def _do_nothing() -> None:
    """Leave the jobs to the threads that run long ones."""
