"""The HTTP server of the api role: waitress, on its own thread, with a graceful end.

One application on several listeners. When asked to stop it no longer accepts connections, lets
the requests that it has taken finish, and only then ends.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import waitress.server
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.task import WSGITask

from ferroscope.config.settings import ApiSettings
from ferroscope.runtime.life import SetupError

BACKLOG: Final = 1024
_TICK: Final = 0.25


class HttpServer:
    """Serves ``app`` on listening sockets from ``start`` to ``stop``; ``failed`` hears of an end before that."""

    def __init__(
        self,
        app: Callable[..., Iterable[bytes]],
        settings: ApiSettings,
        sockets: Sequence[socket.socket],
        *,
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self._failed = failed
        self._map: dict[int, Any] = {}
        self._server = waitress.server.create_server(
            app,
            map=self._map,
            sockets=list(sockets),
            threads=settings.threads,
            max_request_body_size=settings.max_body_size,
            backlog=BACKLOG,
            connection_limit=1000,
            channel_timeout=60,
            ident="",
            asyncore_use_poll=True,
        )
        self._stopping = threading.Event()
        self._draining = threading.Event()
        for listener in self._listeners():
            listener.channel_class = _channel_class(self._draining)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """Go on serving, but let each answer be the last one of its connection.

        A client that keeps connections then never sends a request on one that is being closed.
        """
        self._draining.set()

    def stop(self, timeout: float) -> None:
        """Stop accepting, let running requests end for up to ``timeout`` seconds."""
        self._stopping.set()
        self._thread.join(timeout + 2 * _TICK)
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=1)
        if not self._thread.is_alive():
            wasyncore.close_all(self._map)  # idle connections, and the server's own wake-up pipe

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            if not self._stopping.is_set():
                self._failed()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            wasyncore.loop(timeout=_TICK, use_poll=True, map=self._map, count=1)
        for listener in self._listeners():
            listener.del_channel()
            listener.socket.close()
        while self._busy():
            wasyncore.loop(timeout=_TICK, use_poll=True, map=self._map, count=1)

    def _listeners(self) -> Sequence[Any]:
        return [item for item in list(self._map.values()) if isinstance(item, waitress.server.BaseWSGIServer)]

    def _busy(self) -> bool:
        channels = [item for item in list(self._map.values()) if hasattr(item, "requests")]
        return any(channel.requests or channel.request or channel.total_outbufs_len for channel in channels)


def _channel_class(draining: threading.Event) -> type[HTTPChannel]:
    """Return waitress's connection, that says goodbye with every answer once ``draining`` is set."""

    class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
        def service(self) -> None:
            if draining.is_set():
                self.request.headers["CONNECTION"] = "close"
            super().service()

    class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
        task_class = Task

    return Channel


def listeners(settings: ApiSettings) -> list[socket.socket]:
    """Return a bound socket for each API that is enabled; ``SetupError`` says which one failed, and what to do."""
    return [
        _listener(host, option, port) for option, _, port in _enabled(settings) for host in addresses(settings.host)
    ]


def addresses(hosts: Iterable[str]) -> list[str]:
    """Return the addresses to listen on: ``localhost`` is both of the loopback's, where the host has IPv6."""
    found = ["127.0.0.1", "::1"] if _has_ipv6() else ["127.0.0.1"]
    return list(dict.fromkeys(one for host in hosts for one in (found if host == "localhost" else [host])))


def _has_ipv6() -> bool:
    try:
        bind("::1", 0).close()
    except OSError:
        return False
    return True


def announce(settings: ApiSettings, log: Any) -> None:
    """Say where the APIs listen, and what it means where that is more than this host."""
    hosts = [f"[{host}]" if ":" in host else host for host in addresses(settings.host)]
    places = {name: ",".join(f"{host}:{port}" for host in hosts) for _, name, port in _enabled(settings)}
    log.info("listens", **places)
    if places and not settings.loopback_only:
        log.warning(
            "there is no authentication: whoever reaches these ports may do everything; "
            "set [api] host, or put a proxy in front that decides who may call",
            host=",".join(settings.host),
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a TCP socket on which nobody listens yet; ``::`` takes IPv4 as well. ``OSError``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def _enabled(settings: ApiSettings) -> list[tuple[str, str, int]]:
    """Return option, name and port of each API that is enabled."""
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
            f"see who has it (ss -ltnp 'sport = :{port}'), or choose another [api] {option}"
            if exc.errno == errno.EADDRINUSE
            else f"correct [api] host or {option}"
        )
        raise SetupError(f"cannot listen on {host} port {port}: {exc.strerror or exc}; {advice}") from exc
