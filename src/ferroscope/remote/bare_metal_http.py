"""HTTP requests to a Bare Metal API: bounded in time and size, and lists page by page.

Lists follow the server's ``next`` links; only the marker of a link is used, because the URL comes from our
configuration. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import urllib3

from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.contracts.store import StopFlag
from ferroscope.remote.bounded_http import HttpAnswer, limit_connections
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.retry import backoff, call_with_retries
from ferroscope_client.core import json_safety

T = TypeVar("T")

# The most items of a page, for lists of UUIDs; servers decide anyway.
PAGE_ITEMS: Final = 1000
# Statuses after which a request may be repeated soon.
AGAIN: Final = frozenset({429, 502, 503, 504})
VERSION: Final = "X-OpenStack-Ironic-API-Version"
_MAX_BODY_BYTES: Final = 8 * 1024 * 1024  # bytes; a thousand UUIDs take 300 KB
_MAX_NODES: Final = 1_000_000
# Connections that are kept for the next requests. Ironic's own server closes a connection after its answer while ten
# clients wait, so keeping more would mean to reconnect for a third of the requests.
_MAX_KEPT_CONNECTIONS: Final = 6
# Made once: otherwise urllib3 makes one for each request. The sender of a request repeats it.
_NO_RETRIES: Final = urllib3.Retry(total=False, redirect=False)


class TransientHttpError(Exception):
    """No usable answer, this time."""


class BareMetalHttp:
    """Requests to one server, each with a deadline; thread-safe. ``tls``: keyword arguments of urllib3's pool."""

    def __init__(self, timeout: float, **tls: Any) -> None:
        self._timeout = timeout
        self._http = urllib3.PoolManager(timeout=timeout, retries=_NO_RETRIES, maxsize=_MAX_KEPT_CONNECTIONS, **tls)
        limit_connections(self._http)
        # Pools by scheme and host: finding one by its URL costs half as much as a request.
        self._pools: dict[str, urllib3.HTTPConnectionPool] = {}

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpAnswer:
        """Return the complete response; ``TransientHttpError`` if there was none, ``IronicUnavailableError``."""
        deadline = Deadline(self._timeout)
        try:
            with deadline:
                pool, path = self._place(url)
                answer = pool.urlopen(
                    method, path, body=body, headers=headers, retries=_NO_RETRIES, redirect=False, preload_content=False
                )
                # A body that fits is read at once, which is a third of the work of reading up to a limit.
                length = answer.length_remaining
                fits = length is not None and length <= _MAX_BODY_BYTES and "Content-Encoding" not in answer.headers
                content = answer.read() if fits else answer.read(_MAX_BODY_BYTES + 1)
                deadline.seconds_left()  # headers cut off by the deadline look like a response without a body
                if len(content) <= _MAX_BODY_BYTES:
                    if not fits:
                        answer.read()  # raises if the body is shorter than announced
                    answer.release_conn()
                else:
                    answer.close()
        except (urllib3.exceptions.HTTPError, OSError, DeadlineError) as exc:
            # A connection that the deadline has shut down fails in many ways.
            why = f"no complete answer within {self._timeout:g} s" if deadline.has_expired else type(exc).__name__
            raise TransientHttpError(f"request failed: {why}") from exc
        if len(content) > _MAX_BODY_BYTES:
            raise IronicUnavailableError(f"a page is longer than {_MAX_BODY_BYTES} bytes")
        return HttpAnswer(answer.status, answer.headers, content)

    def _place(self, url: str) -> tuple[urllib3.HTTPConnectionPool, str]:
        """Return the connections to the URL's host, and the rest of the URL."""
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        pool = self._pools.get(f"{scheme}://{host}")
        if pool is None:
            pool = self._pools[f"{scheme}://{host}"] = self._http.connection_from_url(url)
        return pool, f"{slash}{path}"

    def close(self) -> None:
        self._http.clear()


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
        if link is None and len(items) < PAGE_ITEMS:
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


_PAUSE_SECONDS: Final = 0.2  # seconds before the first retry; backoff each time


class _Item(msgspec.Struct):
    uuid: str


class _ListPage(msgspec.Struct):
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
        self._http = BareMetalHttp(timeout)

    def list_tracked_uuids(self) -> frozenset[str]:
        """Return the UUIDs of all nodes there; ``IronicUnavailableError`` if the list is incomplete."""
        return frozenset(item.uuid for item in pages(self._page, lambda item: item.uuid))

    def _page(self, marker: str | None) -> tuple[list[_Item], str | None]:
        if self._stop.is_set():
            raise IronicUnavailableError("the process is stopping before the list was read completely")
        try:
            page = call_with_retries(
                lambda: self._read_page(marker),
                pauses=backoff(_PAUSE_SECONDS, self._retries),
                is_retryable=lambda error, _pause: isinstance(error, TransientHttpError),
                stop=self._stop,
            )
        except TransientHttpError as exc:
            raise IronicUnavailableError(str(exc)) from exc
        return page.nodes, page.next

    def _read_page(self, marker: str | None) -> _ListPage:
        query = {"fields": "uuid", "limit": str(PAGE_ITEMS)} | ({"marker": marker} if marker else {})
        headers = {VERSION: "1.31", "Accept": "application/json"}
        answer = self._http.send("GET", f"{self._url}/v1/nodes?{urlencode(query)}", headers)
        if answer.status in AGAIN:
            raise TransientHttpError(f"HTTP {answer.status}")
        if answer.status in (401, 403):
            raise IronicUnavailableError(f"HTTP {answer.status}: this service is not allowed to list the nodes")
        if answer.status != 200:
            raise IronicUnavailableError(f"HTTP {answer.status}")
        try:
            return json_safety.decode(answer.body, _ListPage)
        except json_safety.JsonError as exc:
            raise IronicUnavailableError("the response is not a list of nodes") from exc
