"""Which nodes another Bare Metal service has: all that ``[registry] url`` needs."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

import msgspec

from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import RegistryUnavailableError
from ferroscope.remote import bare_metal_http
from ferroscope.remote.bare_metal_http import AGAIN, VERSION, Http, TransientError, pages
from ferroscope.remote.retry import backoff, call_with_retries

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
        """Return the UUIDs of all nodes there; ``RegistryUnavailableError`` if the list is incomplete."""
        return frozenset(item.uuid for item in pages(self._page, lambda item: item.uuid))

    def _page(self, marker: str | None) -> tuple[list[_Item], str | None]:
        if self._stop.is_set():
            raise RegistryUnavailableError("the process is stopping before the list was read completely")
        try:
            page = call_with_retries(
                lambda: self._once(marker),
                pauses=backoff(_PAUSE, self._retries),
                is_retryable=lambda error, _pause: isinstance(error, TransientError),
                stop=self._stop,
            )
        except TransientError as exc:
            raise RegistryUnavailableError(str(exc)) from exc
        return page.nodes, page.next

    def _once(self, marker: str | None) -> _Page:
        query = {"fields": "uuid", "limit": str(bare_metal_http.PAGE)} | ({"marker": marker} if marker else {})
        headers = {VERSION: "1.31", "Accept": "application/json"}
        answer = self._http.send("GET", f"{self._url}/v1/nodes?{urlencode(query)}", headers)
        if answer.status in AGAIN:
            raise TransientError(f"HTTP {answer.status}")
        if answer.status in (401, 403):
            raise RegistryUnavailableError(f"HTTP {answer.status}: this service is not allowed to list the nodes")
        if answer.status != 200:
            raise RegistryUnavailableError(f"HTTP {answer.status}")
        try:
            return self._decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise RegistryUnavailableError("the response is not a list of nodes") from exc
