"""Lists the nodes of a Bare Metal API, page by page, each limited in time and size.

Follows the published reference: ``GET /v1/nodes?fields=uuid&limit=N&marker=UUID``. The server decides the page size
([api] max_limit there), and its ``next`` link says whether there is another page. Only the marker of that link is used:
the URL comes from our configuration.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import urllib3

from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import RegistryUnavailableError
from ferroscope.remote.bounded_http import Deadline, DeadlineError, bound
from ferroscope.remote.retry import backoff, call_with_retries

_PAGE: Final = 1000
_MAX_PAGE: Final = 8 * 1024 * 1024  # bytes; a thousand nodes take 300 KB
_MAX_NODES: Final = 1_000_000
_PAUSE: Final = 0.2  # seconds before the first retry; backoff each time
_AGAIN: Final = frozenset({429, 502, 503, 504})
_HEADERS: Final = {"X-OpenStack-Ironic-API-Version": "1.31", "Accept": "application/json"}


class _Item(msgspec.Struct):
    uuid: str


class _Page(msgspec.Struct):
    nodes: list[_Item]
    next: str | None = None


class _TransientError(Exception):
    """A transient error."""


def _is_transient(error: Exception, _pause: float) -> bool:
    return isinstance(error, _TransientError)


class IronicSource:
    """``contracts.remote.NodeSource``; ``url`` is the API's base.

    A request may take ``timeout`` seconds, response included; each page has ``retries``, with delays that ``stop``
    interrupts.
    """

    def __init__(self, url: str, *, timeout: float, retries: int, stop: StopFlag) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._retries = retries
        self._stop = stop
        self._http = urllib3.PoolManager(timeout=timeout, retries=False)
        bound(self._http)
        self._decoder = msgspec.json.Decoder(_Page)

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes there; ``RegistryUnavailableError`` if the list is incomplete."""
        found: set[str] = set()
        marker: str | None = None
        while not self._stop.is_set():
            page = self._page(marker)
            fresh = {item.uuid for item in page.nodes} - found
            found |= fresh
            if page.next is None and len(page.nodes) < _PAGE:
                return frozenset(found)
            if not fresh:
                raise RegistryUnavailableError("the server repeated a page, so the list may be incomplete")
            if len(found) > _MAX_NODES:
                raise RegistryUnavailableError(f"the list has more than {_MAX_NODES} nodes")
            marker = _marker(page.next) or page.nodes[-1].uuid
        raise RegistryUnavailableError("the process is stopping before the list was read completely")

    def _page(self, marker: str | None) -> _Page:
        try:
            return call_with_retries(
                lambda: self._once(marker),
                pauses=backoff(_PAUSE, self._retries),
                is_retryable=_is_transient,
                stop=self._stop,
            )
        except _TransientError as exc:
            raise RegistryUnavailableError(str(exc)) from exc

    def _once(self, marker: str | None) -> _Page:
        fields: dict[str, Any] = {"fields": "uuid", "limit": _PAGE}
        if marker:
            fields["marker"] = marker
        try:
            with Deadline(self._timeout) as deadline:
                answer = self._http.request(
                    "GET",
                    f"{self._url}/v1/nodes",
                    fields=fields,
                    headers=_HEADERS,
                    redirect=False,
                    preload_content=False,
                )
                body = answer.read(_MAX_PAGE + 1)
                deadline.left()  # headers cut off by the deadline look like a response without a body
                if len(body) <= _MAX_PAGE:
                    answer.read()  # raises if the body is shorter than announced
                    answer.release_conn()
                else:
                    answer.close()
        except (urllib3.exceptions.HTTPError, OSError, DeadlineError) as exc:
            raise _TransientError(f"request failed: {type(exc).__name__}") from exc
        if answer.status in _AGAIN:
            raise _TransientError(f"HTTP {answer.status}")
        if answer.status in (401, 403):
            raise RegistryUnavailableError(f"HTTP {answer.status}: this service is not allowed to list the nodes")
        if answer.status != 200:
            raise RegistryUnavailableError(f"HTTP {answer.status}")
        if len(body) > _MAX_PAGE:
            raise RegistryUnavailableError(f"a page is longer than {_MAX_PAGE} bytes")
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise RegistryUnavailableError("the response is not a list of nodes") from exc


def _marker(link: str | None) -> str | None:
    """Return the marker of a link to the next page."""
    try:
        return parse_qs(urlsplit(link or "").query).get("marker", [None])[0]
    except ValueError:
        return None
