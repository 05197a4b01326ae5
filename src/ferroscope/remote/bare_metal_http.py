"""HTTP requests to a Bare Metal API: bounded in time and size, and lists page by page.

Lists follow the server's ``next`` links; only the marker of a link is used, because the URL comes from our
configuration. Source: the Bare Metal API reference.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import urllib3

from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.remote.bounded_http import HttpConnection, HttpsConnection
from ferroscope.remote.deadline import Deadline, DeadlineError, current
from ferroscope.remote.http_answers import Answer, AnswerReader, MalformedError, TooLongError
from ferroscope.remote.retry import backoff, call_with_retries

T = TypeVar("T")

# The most items of a page, for lists of UUIDs; servers decide anyway.
PAGE: Final = 1000
# Statuses after which a request may be repeated soon.
AGAIN: Final = frozenset({429, 502, 503, 504})
VERSION: Final = "X-OpenStack-Ironic-API-Version"
_MAX_BODY: Final = 8 * 1024 * 1024  # bytes; a thousand UUIDs take 300 KB
_MAX_NODES: Final = 1_000_000
_READ: Final = 64 * 1024  # bytes
_MOST_IDLE: Final = 32
# Our interface, in the address of a server; to the server it is no part of its name.
_ZONE: Final = re.compile(r"%[^\]]*")
_COMMON: Final = {"User-Agent": "ferroscope", "Accept-Encoding": "identity"}


class TransientError(Exception):
    """No usable answer, this time."""


class Http:
    """Requests to a server, each with a deadline; thread-safe. ``tls``: keyword arguments of urllib3's connections.

    urllib3 connects, and keeps no more than that: its requests and responses cost three times as much.
    """

    def __init__(self, timeout: float, **tls: Any) -> None:
        self._timeout = timeout
        self._tls = tls
        self._servers: dict[str, _Server] = {}

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """Return the complete response; ``TransientError`` if there was none, ``IronicUnavailableError``."""
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        server = self._servers.get(f"{scheme}://{host}")
        if server is None:
            server = self._servers[f"{scheme}://{host}"] = _Server(f"{scheme}://{host}", self._timeout, self._tls)
        request = _request(method, f"{slash}{path}" or "/", {"Host": server.name, **_COMMON, **headers}, body)
        deadline = Deadline(self._timeout)
        try:
            with deadline:
                return server.exchange(request)
        except TooLongError as exc:
            raise IronicUnavailableError(str(exc)) from exc
        except (urllib3.exceptions.HTTPError, OSError, DeadlineError, MalformedError) as exc:
            # A connection that the deadline has shut down fails in many ways.
            why = f"no complete answer within {self._timeout:g} s" if deadline.expired else _why(exc)
            raise TransientError(f"request failed: {why}") from exc

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


class _Server:
    """The persistent connections to one server. ``name``: of the header ``Host``."""

    def __init__(self, base: str, timeout: float, tls: Mapping[str, Any]) -> None:
        parts = urlsplit(base)
        self.name = _ZONE.sub("", parts.netloc.rpartition("@")[2])
        kind, options = (HttpsConnection, tls) if parts.scheme == "https" else (HttpConnection, {})
        self._connection = partial(kind, parts.hostname or "", parts.port, timeout=timeout, **options)
        self._timeout = timeout
        self._idle: deque[HttpConnection | HttpsConnection] = deque()
        self.close = weakref.finalize(self, _close, self._idle)

    def exchange(self, request: bytes) -> Answer:
        """Send it on a connection of its own, and return the response; within the thread's deadline."""
        connection, kept = self._take(), False
        try:
            if connection.sock is not None:
                current().watch(connection.sock)  # its last request had a deadline of its own
            connection.send(request)
            reader, sock = AnswerReader(_MAX_BODY), connection.sock
            sock.settimeout(self._timeout)
            while (answer := _read(reader, sock.recv(_READ))) is None:
                pass
            current().left()  # what the deadline has cut off may look like a response that ends with the connection
            if reader.keep_alive and not reader.more and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                kept = True
            return answer
        finally:
            if not kept:
                connection.close()

    def _take(self) -> HttpConnection | HttpsConnection:
        """Return the connection that was used last, if the server has not closed it, or else a new one."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_connected:
                    return connection
                connection.close()
        return self._connection()


def _close(idle: deque[HttpConnection | HttpsConnection]) -> None:
    while idle:
        idle.pop().close()


def _request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the bytes of a request; ``ValueError`` if a header would end before its value does."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None or method != "GET":
        lines.append(f"Content-Length: {len(body or b'')}")
    if any("\r" in line or "\n" in line for line in lines) or " " in target:
        raise ValueError("a request with line breaks or spaces where none can be")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (body or b"")


def _read(reader: AnswerReader, data: bytes) -> Answer | None:
    answer = reader.feed(data) if data else reader.end()
    if answer is None and not data:
        raise MalformedError("the connection was closed before the response was complete")
    return answer


def _why(exc: Exception) -> str:
    return str(exc) if isinstance(exc, MalformedError) else type(exc).__name__


def pages(read: Callable[[str | None], tuple[list[T], str | None]], ident: Callable[[T], str]) -> Iterator[T]:
    """Yield the items of all pages; ``read`` returns those after a marker, and the link to the next page.

    ``IronicUnavailableError`` if the list may be incomplete.
    """
    seen: set[str] = set()
    marker: str | None = None
    while True:
        items, link = read(marker)
        fresh = [item for item in items if ident(item) not in seen]
        seen.update(map(ident, fresh))
        yield from fresh
        if link is None and len(items) < PAGE:
            return
        if not fresh:
            raise IronicUnavailableError("the server repeated a page, so the list may be incomplete")
        if len(seen) > _MAX_NODES:
            raise IronicUnavailableError(f"the list has more than {_MAX_NODES} items")
        marker = _marker(link) or ident(items[-1])


def _marker(link: str | None) -> str | None:
    """Return the marker of a link to the next page."""
    try:
        return parse_qs(urlsplit(link or "").query).get("marker", [None])[0]
    except ValueError:
        return None


_PAUSE: Final = 0.2  # seconds before the first retry; backoff each time


class _Item(msgspec.Struct):
    uuid: str


class _Page(msgspec.Struct):
    nodes: list[_Item]
    next: str | None = None


class IronicSource:
    """``contracts.remote.NodeSource``; ``url`` is the API's base.

    A request may take ``timeout`` seconds, response included; each page has ``retries``, with delays that ``stop``
    interrupts.
    """

    def __init__(self, url: str, *, timeout: float, retries: int, stop: StopFlag) -> None:
        self._url = url.rstrip("/")
        self._retries = retries
        self._stop = stop
        self._http = Http(timeout)
        self._decoder = msgspec.json.Decoder(_Page)

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes there; ``IronicUnavailableError`` if the list is incomplete."""
        return frozenset(item.uuid for item in pages(self._page, lambda item: item.uuid))

    def _page(self, marker: str | None) -> tuple[list[_Item], str | None]:
        if self._stop.is_set():
            raise IronicUnavailableError("the process is stopping before the list was read completely")
        try:
            page = call_with_retries(
                lambda: self._once(marker),
                pauses=backoff(_PAUSE, self._retries),
                is_retryable=lambda error, _pause: isinstance(error, TransientError),
                stop=self._stop,
            )
        except TransientError as exc:
            raise IronicUnavailableError(str(exc)) from exc
        return page.nodes, page.next

    def _once(self, marker: str | None) -> _Page:
        query = {"fields": "uuid", "limit": str(PAGE)} | ({"marker": marker} if marker else {})
        headers = {VERSION: "1.31", "Accept": "application/json"}
        answer = self._http.send("GET", f"{self._url}/v1/nodes?{urlencode(query)}", headers)
        if answer.status in AGAIN:
            raise TransientError(f"HTTP {answer.status}")
        if answer.status in (401, 403):
            raise IronicUnavailableError(f"HTTP {answer.status}: this service is not allowed to list the nodes")
        if answer.status != 200:
            raise IronicUnavailableError(f"HTTP {answer.status}")
        try:
            return self._decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise IronicUnavailableError("the response is not a list of nodes") from exc
