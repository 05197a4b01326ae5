"""HTTP to a server that cannot be trusted to behave, such as a BMC: bounded in time, in size, and to its own host.

A requests session whose connections resolve names within the deadline and are watched by it, whose
answers end at ``MAX_BODY``, and which follows no redirect to another host, where the session's
token would go along. Nothing of the environment (proxies, netrc, CA bundles) is read.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter

from ferroscope.remote.bounded_http import bound
from ferroscope.remote.resolver import ANYWHERE, Networks

MAX_BODY: Final = 4 * 1024 * 1024
_CHUNK: Final = 64 * 1024


class TooLargeError(requests.exceptions.RequestException):
    """The server sends more than it can have to say."""


class _Adapter(HTTPAdapter):
    def __init__(self, tls: ssl.SSLContext | None, allowed: Networks) -> None:
        self._tls = tls
        self._allowed = allowed
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._tls is not None:
            kwargs["ssl_context"] = self._tls
        super().init_poolmanager(*args, **kwargs)
        bound(self.poolmanager, self._allowed)

    def send(self, request: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        response = super().send(request, **kwargs | {"stream": True})
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > MAX_BODY:
                response.close()
                raise TooLargeError(f"its answer is longer than {MAX_BODY} bytes")
        response._content = bytes(body)
        return response


class BoundedSession(requests.Session):
    """For one server. ``base``: its URL, the only place that it speaks to; ``tls``: versions and ciphers.

    ``allowed``: where it may be; ``ForbiddenAddressError`` where it turns out to be elsewhere.
    """

    def __init__(self, base: str, tls: ssl.SSLContext | None = None, allowed: Networks = ANYWHERE) -> None:
        super().__init__()
        self._base = urlsplit(base)
        self.trust_env = False
        self.mount("http://", _Adapter(None, allowed))
        self.mount("https://", _Adapter(tls, allowed))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where a redirect leads, None where that is another host."""
        target = super().get_redirect_target(resp)
        return target if target is not None and self.belongs(urljoin(str(resp.url), target)) else None

    def part(self) -> None:
        """Close the connections that are kept; the next request opens one."""
        for adapter in self.adapters.values():
            adapter.close()

    def belongs(self, url: str) -> bool:
        """Whether ``url`` is on this server."""
        parts = urlsplit(url)
        return (parts.scheme, parts.netloc) == (self._base.scheme, self._base.netloc)
