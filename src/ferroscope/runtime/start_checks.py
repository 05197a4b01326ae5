"""Checks the settings of any process before anything is opened: no port, no lease, no connection.

Each part of the service builds itself from its settings and reports their problems. Here all of them do so at once, so
that an operator sees every mistake at the first start, and a supervisor never starts children that cannot start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ferroscope.bus.checks import check_bus_setup
from ferroscope.config.errors import OptionRefusedError, SetupError, StartError
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend
from ferroscope.db.prepare import check_url
from ferroscope.http_server import tls
from ferroscope.http_server.server import check_anonymous
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import key_ring
from ferroscope.telemetry.tracing import check_tracing
from ferroscope_client.installed import PluginError

Check = Callable[[], object]


def refuse_problems(checks: Iterable[Check]) -> None:
    """Raise ``OptionRefusedError`` with the problems that these checks find."""
    problems: dict[str, None] = {}  # several roles may report the same problem
    for run_check in checks:
        try:
            run_check()
        except (SetupError, StartError, OSError) as exc:
            problems[str(exc)] = None
    if problems:
        raise OptionRefusedError(*problems)


def list_checks(settings: Settings, *, api: bool = False) -> Iterator[Check]:
    """Yield the checks of a process with any role; ``api``: it serves the API."""
    yield partial(check_url, settings)
    yield partial(key_ring, settings)
    if broker := settings.bus.broker():
        yield partial(check_bus_setup, broker)
    yield partial(check_anonymous, settings, api=api)
    if api or settings.metrics.port:
        yield partial(tls.certificates, settings.api)
    if settings.metrics.port:
        yield partial(_check_metrics_port, settings)
    yield partial(check_tracing, settings.tracing)


def _check_metrics_port(settings: Settings) -> None:
    try:
        backend("metrics.port").metrics_check(settings, SystemClock())
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
