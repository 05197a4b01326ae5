"""urllib3 connections under the thread's deadline, which covers name resolution and connecting too.

``limit_connections`` sets up a pool manager for that. Requests outside of a ``Deadline`` fail with ``DeadlineError``,
because they could wait forever.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
import urllib3
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ferroscope.contracts.remote import WebError
from ferroscope.remote import command_fence
from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.deadline import Deadline, DeadlineError, current
from ferroscope.remote.resolver import UnresolvedError, connect, resolve


class HttpAnswer(msgspec.Struct, frozen=True):
    """Status, headers and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def limit_connections(manager: PoolManager, allowed: Networks = ANYWHERE) -> None:
    """Limit all connections of ``manager`` to the deadline of the thread that uses them and to ``allowed`` networks."""
    http = type("_HttpConnection", (_HttpConnection,), {"allowed": allowed})
    https = type("_HttpsConnection", (_HttpsConnection,), {"allowed": allowed})
    manager.pool_classes_by_scheme = {
        "http": type("_HttpPool", (_HttpPool,), {"ConnectionCls": http}),
        "https": type("_HttpsPool", (_HttpsPool,), {"ConnectionCls": https}),
    }


class _BoundedConnection:
    """Mixin for urllib3's connections: deadline, allowed networks, command fence."""

    allowed = ANYWHERE
    host: str
    port: int
    sock: Any
    _dns_host: str
    _watched_by: Deadline | None = None

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"  # used in error messages

    def _new_conn(self) -> socket.socket:
        host = self._dns_host
        if ":" in host:  # in a URL, the % before the interface of a link-local address is encoded
            host = host.replace("%25", "%")
        try:
            self._watched_by = deadline = current()
            connection = connect(resolve(host, deadline.seconds_left(), self.allowed), self.port, deadline)
            deadline.watch(connection)
        except UnresolvedError as exc:
            raise NewConnectionError(self, str(exc)) from None  # type: ignore[arg-type]
        except TimeoutError:
            failure: Exception = ConnectTimeoutError("connecting timed out")
        except OSError as exc:
            failure = NewConnectionError(self, f"cannot connect: {exc.strerror or exc}")  # type: ignore[arg-type]
            failure.__cause__ = exc
        else:
            return connection
        # Not from within: the time-out of the socket would be its context, and be taken for what it says.
        raise failure

    def send(self, data: Any) -> None:
        # Check the fence last, after everything that takes time: connecting, the TLS handshake, building the request.
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        elif self._watched_by is not current():
            # A persistent connection was watched by an earlier call's deadline; now it belongs to this call.
            self._watched_by = current()
            with contextlib.suppress(OSError):  # closed meanwhile: the request itself will fail
                self._watched_by.watch(self.sock)
        command_fence.guard(self.sock)
        super().send(data)  # type: ignore[misc]


class _HttpConnection(_BoundedConnection, HTTPConnection):
    """HTTP without TLS."""


class _HttpsConnection(_BoundedConnection, HTTPSConnection):
    """HTTP over TLS."""


class _QuietPool:
    """Mixin for urllib3's pools: a surplus connection is closed without a warning."""

    def _put_conn(self, conn: Any) -> None:
        if conn is not None and self.pool is not None and self.pool.full():  # type: ignore[attr-defined]
            conn.close()
        else:
            super()._put_conn(conn)  # type: ignore[misc]


class _HttpPool(_QuietPool, HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(_QuietPool, HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


class WebClient:
    """``contracts.remote.Web``: HTTP calls of inspection rules, with a new connection each, as they are rare.

    Certificates are verified, redirects are returned as responses, and bodies are not read.
    """

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        manager = urllib3.ProxyManager(proxy, retries=False) if proxy else urllib3.PoolManager(retries=False)
        limit_connections(manager)
        with Deadline(timeout) as deadline:
            try:
                answer = manager.request(
                    "GET", url, headers=dict(headers), timeout=timeout, redirect=False, preload_content=False
                )
                status = answer.status
                answer.close()
                deadline.seconds_left()
                return int(status)
            except (urllib3.exceptions.HTTPError, ValueError, OSError, DeadlineError) as exc:
                why = f"timed out after {timeout:g} s" if deadline.has_expired else type(exc).__name__
                raise WebError(why) from exc
            finally:
                manager.clear()
