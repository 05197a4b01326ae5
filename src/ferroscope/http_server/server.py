"""The HTTP server: an asyncio loop in a separate thread, and the application's threads.

Connections are in ``connection``, their limits in ``limits``. One application serves several listeners. On
``stop`` it stops accepting connections, waits for running requests, and then ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from ferroscope.config.errors import SetupError
from ferroscope.config.options import ApiSettings, Settings, is_loopback
from ferroscope.http_server.connection import Connection
from ferroscope.http_server.host import Host
from ferroscope.http_server.limits import OpenConnections, TrustedProxies, limits
from ferroscope.http_server.tls import Certificates, TlsConnection
from ferroscope.http_server.wsgi import Application, CallThreads, base_environ
from ferroscope.telemetry.log import QuietLog

BACKLOG_CONNECTIONS: Final = 1024
# Seconds between checks of deadlines.
_TICK_SECONDS: Final = 1.0
# Connections accepted in one go; few, so that processes that share a listener share its clients.
_MAX_ACCEPTED_AT_ONCE: Final = 16
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Seconds without a tick after which the loop is considered hung.
_HANG_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.2
_MOMENT_SECONDS: Final = 0.02

_log = structlog.get_logger(__name__)


class HttpServer:
    """Serves ``app`` on listening sockets from ``start`` to ``stop``; ``failed`` is called if it ends before that.

    ``certificates``: None serves plain HTTP.
    """

    def __init__(
        self,
        app: Application,
        settings: ApiSettings,
        sockets: Sequence[socket.socket],
        *,
        certificates: Certificates | None = None,
        failed: Callable[[], object] = lambda: None,
        decides: bool = False,
    ) -> None:
        """``decides``: the application decides from a request's header whether to read its body (``HEAD_ONLY``)."""
        self._certificates = certificates
        self._ticked = time.monotonic()
        self._failed = failed
        self._sockets = list(sockets)
        self._threads = CallThreads(settings.threads, "http-call")
        self._draining = threading.Event()
        connections = OpenConnections(limits(settings), TrustedProxies(settings.trusted_proxies))
        self._host = Host(app, connections, self._threads.submit, self._draining.is_set, decides=decides)
        self._grace = 0.0
        self._stopping = threading.Event()
        self._interrupt: Callable[[], object] = lambda: None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Return when connections are accepted."""
        self._thread.start()
        self._begun.wait()

    def drain(self) -> None:
        """Continue to serve, but close each connection after its response.

        So a client with persistent connections never sends a request on a connection that is being closed.
        """
        self._draining.set()

    def stop(self, timeout: float) -> None:
        """Stop accepting, and wait up to ``timeout`` seconds for running requests.

        Each connection ends with the response to its present request. Otherwise, clients on persistent connections
        would be served until the time is over, and then be cut off.
        """
        self._draining.set()
        self._grace = timeout
        self._stopping.set()
        self._interrupt()
        self._thread.join(timeout + _TICK_SECONDS)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def is_responsive(self) -> bool:
        """Whether the loop has run within the last seconds. A loop that hangs serves no client."""
        return time.monotonic() - self._ticked < _HANG_SECONDS

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        if self._certificates is not None:
            self._certificates.refresh()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        finally:
            self._threads.close()
            self._begun.set()
            if not self._stopping.is_set():
                self._failed()

    async def _serve(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        reception = _Reception(self._host, loop, self._certificates, self._tick)
        try:
            reception.open(self._sockets)
            self._interrupt = lambda: _call(loop, stopped.set)
            self._begun.set()
            if not self._stopping.is_set():
                await stopped.wait()
        finally:
            reception.close()
        # The listeners are closed, so waiting cannot lose a request: begun ones are still answered.
        end = loop.time() + self._grace
        while reception.connections(unfinished=True) and loop.time() < end:
            await asyncio.sleep(_MOMENT_SECONDS)
        for connection in reception.connections():
            connection.evict()
        await asyncio.sleep(0)  # let the connections be closed


class _Reception:
    """Accepts connections while there is room, and closes those whose deadline has passed."""

    def __init__(
        self,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        certificates: Certificates | None,
        tick: Callable[[], object],
    ) -> None:
        self._host = host
        self._tick = tick
        self._certificates = certificates
        self._connections = host.connections
        self._loop = loop
        self._listeners: list[socket.socket] = []
        self._adopting: set[asyncio.Task[None]] = set()
        self._quiet = QuietLog(burst=1, period=60.0)
        loop.set_exception_handler(self._fault)

    def open(self, sockets: Sequence[socket.socket]) -> None:
        """Listen on all sockets."""
        self._listeners = list(sockets)
        for listener in self._listeners:
            listener.listen(BACKLOG_CONNECTIONS)
            listener.setblocking(False)
            self._take_from(listener)
        self._loop.call_later(_TICK_SECONDS, self._check_deadlines)

    def close(self) -> None:
        """Stop accepting connections."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._loop.remove_reader(listener)
            listener.close()

    def connections(self, *, unfinished: bool = False) -> list[Connection]:
        """Return all connections, or those with an unanswered request."""
        members = [member for member in self._connections.members if isinstance(member, Connection)]
        return [member for member in members if member.is_unfinished()] if unfinished else members

    def _take_from(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            host, port = listener.getsockname()[:2]
            self._loop.add_reader(
                listener, self._accept, listener, base_environ(host, port, https=self._certificates is not None)
            )

    def _accept(self, listener: socket.socket, environ: dict[str, Any]) -> None:
        for _ in range(_MAX_ACCEPTED_AT_ONCE):
            if self._connections.is_full():
                self._pause(listener, "too many requests at once")
                return
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                if exc.errno not in _NO_ROOM:
                    raise
                # Out of file descriptors. The connection stays in the backlog and the listener stays readable, so
                # without a pause the loop would spin.
                self._connections.make_room(_MAX_ACCEPTED_AT_ONCE)
                self._pause(listener, str(exc))
                return
            accepted.setblocking(False)
            # asyncio keeps only weak references to tasks, so ``_adopting`` holds it until it is done.
            task = self._loop.create_task(self._adopt(accepted, environ))
            self._adopting.add(task)
            task.add_done_callback(self._adopting.discard)

    async def _adopt(self, accepted: socket.socket, environ: dict[str, Any]) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._protocol(environ), accepted)
        except OSError:  # it was closed already
            accepted.close()

    def _protocol(self, environ: dict[str, Any]) -> asyncio.Protocol:
        connection = Connection(self._host, self._loop, environ)
        return connection if self._certificates is None else TlsConnection(self._certificates, connection)

    def _pause(self, listener: socket.socket, why: str) -> None:
        """Stop accepting for a moment; clients wait in the kernel's backlog."""
        self._loop.remove_reader(listener)
        self._loop.call_later(_PAUSE_SECONDS, self._take_from, listener)
        self._log_limited("pausing new connections", why=why)

    def _check_deadlines(self) -> None:
        """Close connections whose deadline has passed."""
        self._tick()
        now = self._loop.time()
        for connection in self.connections():
            if connection.deadline < now and not self._connections.is_paused(connection):
                connection.time_out()
        if self._connections.evicted and self._log_limited(
            "too many connections; closed the idle ones", closed=self._connections.evicted
        ):
            self._connections.evicted = 0
        self._loop.call_later(_TICK_SECONDS, self._check_deadlines)

    def _log_limited(self, message: str, **more: object) -> bool:
        """Log it, unless something was logged just before."""
        if self._quiet.admit(self._loop.time()) is None:
            return False
        _log.warning(message, connections=len(self._connections.members), **more)
        return True

    def _fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of one connection; the others are unaffected."""
        exc = context.get("exception")
        if not isinstance(exc, ConnectionError | TimeoutError):
            _log.error("connection failed", message=context.get("message"), exc_info=exc)


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(callback)


def listeners(settings: ApiSettings) -> list[socket.socket]:
    """Return a bound socket for each enabled API; ``SetupError`` names the one that failed."""
    return [
        _listener(host, option, port) for option, _, port in enabled_apis(settings) for host in addresses(settings.host)
    ]


def addresses(hosts: Iterable[str]) -> list[str]:
    """Return the addresses to listen on: ``localhost`` is both loopback addresses if the host has IPv6."""
    loopback = ["127.0.0.1", "::1"] if _has_ipv6() else ["127.0.0.1"]
    return list(dict.fromkeys(address for host in hosts for address in (loopback if host == "localhost" else [host])))


def _has_ipv6() -> bool:
    try:
        bind("::1", 0).close()
    except OSError:
        return False
    return True


def check_anonymous(settings: Settings, *, api: bool) -> None:
    """Raise ``SetupError`` if other hosts could use this service without authentication and no option allows that.

    ``api``: whether this process serves the API.
    """
    if settings.api.auth_strategy != "noauth" or settings.api.allow_anonymous:
        return
    open_to_all = [f"[api] host = {','.join(settings.api.host)}"] if api and enabled_apis(settings.api) else []
    exposed = open_to_all if not settings.api.loopback_only else []
    if settings.metrics.port and not is_loopback(settings.metrics.host):
        exposed.append(f"[metrics] host = {settings.metrics.host}")
    if exposed:
        raise SetupError(
            f"authentication is disabled ([api] auth_strategy = noauth), but other hosts can reach {exposed[0]}",
            "set [api] auth_strategy to http_basic or keystone, or listen on localhost only; if only trusted hosts "
            "can reach it, set [api] allow_anonymous = true",
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket that does not listen yet; ``::`` also accepts IPv4. ``OSError``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because only then asyncio sets TCP_NODELAY on accepted connections. Without it, the first
    # response over TLS waits until the client has acknowledged the session tickets, 40 ms later.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def enabled_apis(settings: ApiSettings) -> list[tuple[str, str, int]]:
    """Return option, name and port of each enabled API."""
    apis = (
        ("bare_metal_port", "bare_metal", settings.bare_metal_port),
        ("introspection_port", "introspection", settings.introspection_port),
    )
    return [api for api in apis if api[2]]


def _listener(host: str, option: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
    except OSError as exc:
        advice = (
            f"find the process with: ss -ltnp 'sport = :{port}'; or set another [api] {option}"
            if exc.errno == errno.EADDRINUSE
            else f"correct [api] host or {option}"
        )
        raise SetupError(f"cannot listen on {host} port {port}: {exc.strerror or exc}", advice) from exc
