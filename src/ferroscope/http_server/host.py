"""What all connections of an HTTP server share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from ferroscope.http_server.limits import OpenConnections
from ferroscope.http_server.wsgi import Application
from ferroscope.telemetry.log import QuietLog


class Submit(Protocol):
    """Runs a job in a thread, in the turn of its source."""

    def __call__(self, job: Callable[[], None], source: str, *, is_long: bool = False) -> object: ...


_log = structlog.get_logger(__name__)


class Host:
    """The application, its threads, the limits, and whether responses are the last ones."""

    def __init__(
        self,
        app: Application,
        connections: OpenConnections,
        submit: Submit,
        is_draining: Callable[[], bool],
        *,
        decides: bool = False,
    ) -> None:
        self.decides = decides  # whether the application decides from the header if a body should be read
        self.app = app
        self.connections = connections
        self.submit = submit
        self.is_draining = is_draining
        self._refusals = QuietLog(burst=30)

    def log_refusal(self, now: float, **fields: object) -> None:
        """Log a request that does not reach the application; not each one of many, because anyone can cause them."""
        left_out = self._refusals.admit(now)
        if left_out is not None:
            _log.info("request refused", **fields, left_out=left_out)
