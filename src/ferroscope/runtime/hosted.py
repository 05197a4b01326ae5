"""The api role under another WSGI server, which has the listeners, connections, threads, TLS and signals.

This module has everything else that ``ferroscope api`` does: connections to the database, the heartbeat, the metrics
port, the application. It is opened by the process that serves, after a fork; nothing of it is shared with a parent.
While it cannot be opened, requests get 503, and it is tried again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from ferroscope.api.errors import bare_metal_body
from ferroscope.config.errors import SetupError, StartError
from ferroscope.config.load import ConfigurationError, load, unknown_options
from ferroscope.config.options import LogSettings, Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.http_server.wsgi import Application as WsgiApplication
from ferroscope.http_server.wsgi import security_headers
from ferroscope.runtime import preflight, wiring
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.member import Membership
from ferroscope.runtime.process import ServiceProcess
from ferroscope.runtime.system import SystemClock, process_name
from ferroscope.telemetry import log
from ferroscope.telemetry.log import QuietLog
from ferroscope.telemetry.metrics import Metrics

VARIABLE: Final = "FERROSCOPE_CONFIG"
# Seconds between two attempts to open it.
_RETRY_SECONDS: Final = 1.0
# Limits on reading the rest of an oversized body: bytes and seconds.
_MAX_DISCARDED_BYTES: Final = 16 * 1024 * 1024
_MAX_DISCARD_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


def _discard(body: Any) -> None:
    """Read the rest of a body that is too large, within limits.

    A server that closes a connection with unread data resets it, and the client may lose the answer.
    """
    left, deadline = _MAX_DISCARDED_BYTES, time.monotonic() + _MAX_DISCARD_SECONDS
    with contextlib.suppress(Exception):  # servers raise many errors if the client leaves, or sends bad chunks
        while left > 0 and time.monotonic() < deadline and (piece := body.read(min(left, 65536))):
            left -= len(piece)


class HostedApi(ServiceProcess):
    """The api role without listeners, from ``open`` to ``close``."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, ("api",), sockets=())

    def open(self) -> WsgiApplication:
        """Return the application; ``StartError``, after which nothing is left open."""
        try:
            self._start_or_explain()
        except BaseException:
            self.close()
            raise
        return self._app

    def close(self) -> None:
        """Leave the members, and close the connections to the database."""
        self._end()

    @property
    def has_ended(self) -> bool:
        """Whether it must be opened again: the database was unavailable for too long, or its file was replaced."""
        return self._stop.is_set()

    def _play_api(
        self, backend: Backend, drivers: Mapping[str, Bmc], membership: Membership, meter: Metrics, *_: Any
    ) -> None:
        self._app = self._build_app(backend, drivers, membership, meter)
        membership.watch("http", lambda: "serving requests of another WSGI server")


class Application:
    """The WSGI application. ``start`` and ``stop`` are optional: the first request starts it, the interpreter's end
    stops it."""

    def __init__(self, files: Sequence[str] | None = None, *, lenient_config: bool = False) -> None:
        """``files``: the configuration, instead of that in ``FERROSCOPE_CONFIG``.

        ``lenient_config``: warn about unknown sections and options instead of refusing them.
        """
        self._files = files
        self._is_lenient = lenient_config
        self._inherited: list[Any] = []
        self._serving: tuple[HostedApi, WsgiApplication] | None = None
        self._lock = threading.Lock()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def check(self) -> None:
        """Raise ``StartError`` if the configuration is invalid, and import what serving needs; open nothing.

        For a server that forks: it can refuse to start, and share the memory.
        """
        try:
            preflight.check(self._settings(), ("api",))
        except (ConfigurationError, SetupError) as exc:
            raise StartError(str(exc)) from exc
        wiring.preload(("api",))

    def start(self) -> bool:
        """Open it, if this process has not done so; return whether it serves. Errors are logged."""
        return self._open_once(again=True) is not None

    def stop(self) -> None:
        """Close it; requests get 503 from now on, until ``start``."""
        with self._lock:
            self._stopped = True
            serving, self._serving = self._serving, None
        if serving is not None:
            serving[0].close()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        statuses = list[str]()

        def respond(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            statuses.append(status)
            present = {name.lower() for name, _ in headers}
            https = environ["wsgi.url_scheme"] == "https"
            return start_response(status, [*headers, *security_headers(https=https, present=present)], *more)

        serving = self._serving
        app = serving[1] if serving is not None and not serving[0].has_ended else self._open_once()
        if app is not None:
            answer = app(environ, respond)
            if statuses[-1].startswith("413"):
                _discard(environ["wsgi.input"])
            return answer
        body = bare_metal_body(503, "The service is not ready; its log says why.")
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Retry-After", "1")]
        respond("503 Service Unavailable", headers)
        return [body]

    def _begin(self) -> None:
        """Start from scratch: a child must neither use nor close what its parent has opened."""
        self._inherited.append(self._serving)
        self._serving = None
        self._stopped = self._registered = False
        self._lock = threading.Lock()
        self._retry_at = float("-inf")
        self._quiet = QuietLog(burst=2, period=60.0)

    def _open_once(self, *, again: bool = False) -> WsgiApplication | None:
        """Open it, once for all threads; None if that fails, or has just failed."""
        with self._lock:
            self._stopped = self._stopped and not again
            if self._serving is not None and not self._serving[0].has_ended:
                return self._serving[1]
            now = SystemClock().monotonic()
            if self._stopped or now < self._retry_at:
                return None
            if self._serving is not None:
                self._serving[0].close()
                self._serving = None
            try:
                self._serving = self._open()
            except (ConfigurationError, SetupError, StartError) as exc:
                self._retry_at = SystemClock().monotonic() + _RETRY_SECONDS
                if self._quiet.admit(now) is not None:
                    _log.error("cannot serve; trying again", error=str(exc))
                return None
            if not self._registered:
                atexit.register(self.stop)
                self._registered = True
            return self._serving[1]

    def _open(self) -> tuple[HostedApi, WsgiApplication]:
        try:
            settings = self._settings()
        except (ConfigurationError, SetupError):
            log.configure(LogSettings(), process=process_name("api"))
            raise
        hosted = HostedApi(settings)
        log.configure(settings.log, process=hosted.name)
        for unknown in unknown_options(self._configuration_files()) if self._is_lenient else ():
            _log.warning("unknown option", option=str(unknown))
        preflight.check(settings, ("api",))
        app = hosted.open()
        _log.info("ready", roles=["api"])
        return hosted, app

    def _settings(self) -> Settings:
        settings = load(self._configuration_files(), lenient=self._is_lenient)
        if settings.api.auth_strategy == "noauth" and not settings.api.allow_anonymous:
            raise SetupError(
                "authentication is disabled ([api] auth_strategy = noauth), and Ferroscope cannot tell who can "
                "reach the web server",
                "set [api] auth_strategy to http_basic or keystone; if only trusted hosts can reach the server, set "
                "[api] allow_anonymous = true",
            )
        return settings

    def _configuration_files(self) -> Sequence[str] | None:
        if self._files is not None:
            return self._files
        return list(filter(None, os.environ.get(VARIABLE, "").split(":"))) or None
