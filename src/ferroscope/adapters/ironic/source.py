"""The nodes of a Bare Metal API, page by page, with a deadline for each page.

It follows the published reference: ``GET /v1/nodes?fields=uuid&limit=N&marker=UUID``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import urllib3

from ferroscope.ports.registry import RegistryUnavailableError

_PAGE: Final = 1000
_HEADERS: Final = {"X-OpenStack-Ironic-API-Version": "1.31", "Accept": "application/json"}


class _Item(msgspec.Struct):
    uuid: str


class _Page(msgspec.Struct):
    nodes: list[_Item]


class IronicSource:
    """``ports.registry.NodeSource``; ``url`` is the API's base, ``timeout`` seconds for each request."""

    def __init__(self, url: str, *, timeout: float, retries: int) -> None:
        self._url = url.rstrip("/")
        self._http = urllib3.PoolManager(
            timeout=urllib3.Timeout(total=timeout),
            retries=urllib3.Retry(retries, redirect=0, backoff_factor=0.2, status_forcelist=(502, 503, 504)),
        )
        self._decoder = msgspec.json.Decoder(_Page)

    def tracked(self) -> frozenset[str]:
        """Return the UUIDs of all nodes there; ``RegistryUnavailableError`` where any page is missing."""
        found: set[str] = set()
        marker: str | None = None
        while True:
            page = self._page(marker)
            fresh = {item.uuid for item in page.nodes} - found
            found |= fresh
            if len(page.nodes) < _PAGE:
                return frozenset(found)
            if not fresh:
                raise RegistryUnavailableError("the registry repeats a page; its list cannot be complete")
            marker = page.nodes[-1].uuid

    def _page(self, marker: str | None) -> _Page:
        fields: dict[str, Any] = {"fields": "uuid", "limit": _PAGE}
        if marker:
            fields["marker"] = marker
        try:
            answer = self._http.request("GET", f"{self._url}/v1/nodes", fields=fields, headers=_HEADERS)
            if answer.status != 200:
                raise RegistryUnavailableError(f"the registry answers {answer.status}")
            return self._decoder.decode(answer.data)
        except (urllib3.exceptions.HTTPError, msgspec.DecodeError) as exc:
            raise RegistryUnavailableError(f"the registry cannot be read: {type(exc).__name__}") from exc
