"""urllib3's connections under the thread's deadline: names are looked up and connections made within it.

A pool manager is given them by ``bound``; whatever is asked through it outside of a ``Deadline`` fails with
``DeadlineError``, because it could wait for ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

import urllib3
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ferroscope.contracts.remote import WebError
from ferroscope.remote import command_fence
from ferroscope.remote.resolver import ANYWHERE, Networks, UnresolvedError, resolve

# A hard deadline for everything that one call to a server does, whatever the server does.
#
# Time-outs of sockets only limit the silence between two bytes: one that sends a byte a second
# would hold a worker for ever. So when the time is over, a watchdog shuts the call's connections
# down, which ends whatever waits for them: TLS handshakes, headers, bodies.


class DeadlineError(Exception):
    """The call's time is over."""


class Deadline:
    """``with Deadline(10.0) as deadline:``; what is opened in there and watched ends with it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def remaining(self) -> float:
        """Return the seconds that are left, 0 after the end."""
        return max(0.0, self._end - time.monotonic())

    def left(self) -> float:
        """Return the seconds that are left; ``DeadlineError`` where none are."""
        left = self.remaining()
        if not left:
            raise DeadlineError
        return left

    @property
    def expired(self) -> bool:
        return not self.remaining()

    def watch(self, connection: socket.socket) -> None:
        """Shut ``connection`` down when the time is over, whoever has wrapped it meanwhile."""
        handle = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._watched.append(handle)
        if self.expired:
            self._expire()

    def _expire(self) -> None:
        with self._lock:
            for handle in self._watched:
                with contextlib.suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        _current.deadline = self
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        _current.deadline = None
        with self._lock:
            for handle in self._watched:
                handle.close()
            self._watched.clear()


class _Current(threading.local):
    deadline: Deadline | None = None


_current: Final = _Current()


def current() -> Deadline:
    """Return this thread's deadline; ``DeadlineError`` outside of any: nobody waits for the answer."""
    if _current.deadline is None:
        raise DeadlineError
    return _current.deadline


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


class WebClient:
    """A new connection for each request: a call is rare, and nothing is to be kept of it."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        manager = urllib3.ProxyManager(proxy, retries=False) if proxy else urllib3.PoolManager(retries=False)
        bound(manager)
        with Deadline(timeout) as deadline:
            try:
                answer = manager.request(
                    "GET", url, headers=dict(headers), timeout=timeout, redirect=False, preload_content=False
                )
                status = answer.status
                answer.close()
                deadline.left()
                return int(status)
            except (urllib3.exceptions.HTTPError, ValueError, OSError, DeadlineError) as exc:
                why = f"no answer within {timeout:g} s" if deadline.expired else type(exc).__name__
                raise WebError(why) from exc
            finally:
                manager.clear()
