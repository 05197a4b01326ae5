"""urllib3's connections under the thread's deadline: names are looked up and connections made within it.

A pool manager is given them by ``bound``; whatever is asked through it outside of a ``Deadline`` fails with
``DeadlineError``, because it could wait for ever.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ferroscope.net import command_fence
from ferroscope.net.deadline import current
from ferroscope.net.resolver import ANYWHERE, Networks, UnresolvedError, resolve


def bound(manager: PoolManager, allowed: Networks = ANYWHERE) -> None:
    """Let all connections of ``manager`` end with the deadline of the thread that uses them, and go to ``allowed``."""
    plain = type("_Plain", (_Plain,), {"allowed": allowed})
    secure = type("_Secure", (_Secure,), {"allowed": allowed})
    manager.pool_classes_by_scheme = {
        "http": type("_PlainPool", (_PlainPool,), {"ConnectionCls": plain}),
        "https": type("_SecurePool", (_SecurePool,), {"ConnectionCls": secure}),
    }


def _connect(connection: Any) -> socket.socket:
    """Open a watched connection to the first address that takes it, each with its share of the time."""
    deadline = current()
    try:
        addresses = resolve(connection._dns_host, deadline.left(), connection.allowed)
    except UnresolvedError as exc:
        raise NewConnectionError(connection, str(exc)) from None
    for number, address in enumerate(addresses):
        try:
            share = deadline.left() / (len(addresses) - number)
            opened = socket.create_connection((address, connection.port), share)
        except TimeoutError:
            failure: Exception = ConnectTimeoutError("it did not accept the connection in time")
            continue
        except OSError as exc:
            failure = NewConnectionError(connection, f"it cannot be reached: {exc.strerror or exc}")
            failure.__cause__ = exc
            continue
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline.watch(opened)
        return opened
    raise failure


class _Plain(HTTPConnection):
    allowed = ANYWHERE

    def __repr__(self) -> str:
        return _place(self)

    def _new_conn(self) -> socket.socket:
        return _connect(self)

    def send(self, data: Any) -> None:
        _guard(self)
        super().send(data)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch_again(self)
        super().request(*args, **kwargs)


class _Secure(HTTPSConnection):
    allowed = ANYWHERE

    def __repr__(self) -> str:
        return _place(self)

    def _new_conn(self) -> socket.socket:
        return _connect(self)

    def send(self, data: Any) -> None:
        _guard(self)
        super().send(data)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch_again(self)
        super().request(*args, **kwargs)


def _place(connection: HTTPConnection) -> str:
    """Return how messages name the connection."""
    return f"{connection.host}:{connection.port}"


def _guard(connection: HTTPConnection) -> None:
    """Look at the fence when all that takes time is done: the connection and its handshake, the request's head."""
    if connection.sock is None:
        connection.connect()
    command_fence.guard(connection.sock)


def _watch_again(connection: HTTPConnection) -> None:
    """A connection that was kept alive belongs to the call that uses it now."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):  # closed meanwhile: the request will say so itself
            current().watch(connection.sock)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure
