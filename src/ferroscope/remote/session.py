"""A requests session for a server that may misbehave, such as a BMC: limited in time, in size, and to its host.

Connections resolve names within the deadline and are watched by it, responses are limited to ``MAX_BODY_BYTES``, and
redirects to another host are not followed, because the session's token would be sent there. Nothing in the environment
(proxies, netrc, CA bundles) is used.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.bounded_http import limit_connections

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_ZONE: Final = re.compile(r"%[^\]]*")


class TooLargeError(requests.exceptions.RequestException):
    """The response is larger than any valid one."""


class _Adapter(HTTPAdapter):
    """For one thread at a time.

    Without ``tls``, it makes one context for all its connections, with the CAs that they need. urllib3 would read all
    CAs of the host for each connection, even without verification, which takes ten times as long as a handshake.
    """

    def __init__(self, tls: ssl.SSLContext | None, allowed: Networks) -> None:
        self._tls = tls
        self._allowed = allowed
        self._own: tuple[tuple[Any, ...], ssl.SSLContext] | None = None  # the key of the context, and the context
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._tls is not None:
            kwargs["ssl_context"] = self._tls
        super().init_poolmanager(*args, **kwargs)
        limit_connections(self.poolmanager, self._allowed)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, verify, cert)
        if self._tls is None and url.lower().startswith("https"):
            conn.conn_kw["ssl_context"] = self._context(conn.cert_reqs, conn.ca_certs, conn.ca_cert_dir)
            conn.ca_certs = conn.ca_cert_dir = None

    def _context(self, verified: str, file: str | None, directory: str | None) -> ssl.SSLContext:
        place = file or directory
        made_for = (verified, place, None if place is None else Path(place).stat().st_mtime_ns)
        if self._own is None or self._own[0] != made_for:
            context = create_urllib3_context(cert_reqs=resolve_cert_reqs(verified))
            if place is not None:
                try:
                    context.load_verify_locations(file, directory)
                except OSError as exc:
                    raise requests.exceptions.SSLError(exc) from exc
            self._own = made_for, context
        return self._own[1]

    def send(self, request: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        response = super().send(request, **kwargs | {"stream": True})
        body = bytearray()
        with contextlib.ExitStack() as broken:
            broken.callback(response.close)  # the rest of it is useless
            for chunk in response.iter_content(_CHUNK_BYTES):
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise TooLargeError(f"the response is longer than {MAX_BODY_BYTES} bytes")
            broken.pop_all()
        response._content = bytes(body)
        response.encoding = "utf-8"  # otherwise requests guesses the encoding from its bytes, which may take long
        return response


class BoundedSession(requests.Session):
    """A session for one server. ``base``: its URL, the only server it connects to; ``tls``: versions and ciphers.

    ``allowed``: networks; ``ForbiddenAddressError`` if the server is in none of them.
    """

    def __init__(self, base: str, tls: ssl.SSLContext | None = None, allowed: Networks = ANYWHERE) -> None:
        super().__init__()
        self._base = urlsplit(requests.utils.requote_uri(base))  # as it is in the URLs of requests
        self.trust_env = False
        if "%" in self._base.netloc.rpartition("@")[2]:  # our interface, which is not part of the server's name
            self.headers["Host"] = _ZONE.sub("", self._base.netloc.rpartition("@")[2])
        self.mount("http://", _Adapter(None, allowed))
        self.mount("https://", _Adapter(tls, allowed))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the target of a redirect, None if it is another host or invalid."""
        with contextlib.suppress(ValueError):
            target = super().get_redirect_target(resp)
            if target is not None and self.belongs(urljoin(str(resp.url), target)):
                return target
        return None

    def disconnect(self) -> None:
        """Close persistent connections; the next request opens one."""
        for adapter in self.adapters.values():
            adapter.close()

    def belongs(self, url: str) -> bool:
        """Whether ``url`` is on this server."""
        parts = urlsplit(url)
        return (parts.scheme, parts.netloc) == (self._base.scheme, self._base.netloc)
