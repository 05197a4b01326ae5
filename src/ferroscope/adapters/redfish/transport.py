"""HTTP to a BMC that cannot be trusted to behave: bounded in time, in size, and to its own host.

A requests session whose connections resolve names within the deadline and are watched by it, whose
answers end at ``MAX_BODY``, and which follows no redirect to another host, where the session's
token would go along. Nothing of the environment (proxies, netrc, CA bundles) is read.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ferroscope.adapters.redfish.deadline import current
from ferroscope.resolver import UnresolvedError, resolve

MAX_BODY: Final = 4 * 1024 * 1024
_CHUNK: Final = 64 * 1024


class TooLargeError(requests.exceptions.RequestException):
    """The BMC sends more than any BMC has to say."""


def _connect(connection: Any) -> socket.socket:
    """Open a watched connection to the first address that takes it, each with its share of the time."""
    deadline = current()
    try:
        addresses = resolve(connection._dns_host, deadline.left())
    except UnresolvedError as exc:
        raise NewConnectionError(connection, str(exc)) from None
    for number, address in enumerate(addresses):
        try:
            share = deadline.left() / (len(addresses) - number)
            opened = socket.create_connection((address, connection.port), share)
        except TimeoutError:
            failure: Exception = ConnectTimeoutError(connection, "it did not accept the connection in time")
            continue
        except OSError as exc:
            failure = NewConnectionError(connection, f"it cannot be reached: {exc.strerror or exc}")
            continue
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline.watch(opened)
        return opened
    raise failure


class _Plain(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch_again(self)
        super().request(*args, **kwargs)


class _Secure(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch_again(self)
        super().request(*args, **kwargs)


def _watch_again(connection: HTTPConnection) -> None:
    """A connection that was kept alive belongs to the call that uses it now."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # closed meanwhile: the request will say so itself
            current().watch(connection.sock)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}

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
    """For one BMC. ``base``: its URL, the only place that this session speaks to."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = urlsplit(base)
        self.trust_env = False
        self.mount("http://", _Adapter())
        self.mount("https://", _Adapter())

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where a redirect leads, None where that is another host."""
        target = super().get_redirect_target(resp)
        return target if target is not None and self.belongs(urljoin(str(resp.url), target)) else None

    def belongs(self, url: str) -> bool:
        """Whether ``url`` is on this BMC."""
        parts = urlsplit(url)
        return (parts.scheme, parts.netloc) == (self._base.scheme, self._base.netloc)
