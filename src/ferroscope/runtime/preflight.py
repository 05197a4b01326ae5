"""What can be refused before anything is opened: no port, no lease, no connection.

Each part of the service builds its own part of the settings and says what is wrong with it. Here all of them do so at
once and for nothing, so that an operator sees every mistake at the first start, and a supervisor never starts children
that cannot start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib import import_module
from threading import Event
from typing import Final

from ferroscope.config.added import added
from ferroscope.config.options import Settings
from ferroscope.config.plugins import PluginError
from ferroscope.config.setup_error import SetupError
from ferroscope.http_server import tls
from ferroscope.runtime import backend
from ferroscope.runtime.system import RefusedError, StartError, SystemClock

Check = Callable[[], object]

# Those that talk to BMCs, or to the attached registry.
_DRIVE: Final = frozenset({"api", "worker", "failover"})


def check(settings: Settings, roles: Collection[str]) -> None:
    """Raise ``RefusedError`` with all that is wrong with the settings of a process with these roles."""
    wrong: dict[str, None] = {}  # several roles may say the same
    for one in _checks(settings, frozenset(roles)):
        try:
            one()
        except (SetupError, StartError, OSError) as exc:
            wrong[str(exc)] = None
    if wrong:
        raise RefusedError(*wrong)


def _checks(settings: Settings, roles: frozenset[str]) -> Iterator[Check]:
    yield partial(backend.check_url, settings)
    yield partial(backend.key_ring, settings)
    if broker := settings.bus.broker():
        yield partial(backend.check_bus_setup, broker)
    yield from _ports(settings, roles)
    if roles & _DRIVE:
        yield from _inspections(settings, roles)
    if "api" in roles:
        yield from _api(settings)
    yield from _separate_roles(settings, roles)


def _inspections(settings: Settings, roles: frozenset[str]) -> Iterator[Check]:
    from ferroscope.runtime import externals, wiring

    yield partial(externals.check_drivers, settings)
    if roles & {"worker", "failover"}:
        yield partial(wiring.build_resolver, settings, Event())
    if roles & {"api", "worker"}:
        yield partial(wiring.built_in_rules, settings)
        yield partial(externals.build_object_stores, settings, Event())
        yield partial(externals.check, settings)
    if "worker" in roles:
        yield partial(wiring.build_pipeline, settings)
    if "periodic" in roles:
        yield partial(externals.build_coordination_service, settings, "", Event())
        yield partial(wiring.build_senders, settings, Event())


def _ports(settings: Settings, roles: frozenset[str]) -> Iterator[Check]:
    from ferroscope.http_server.server import check_anonymous
    from ferroscope.runtime.authentication import metrics_check
    from ferroscope.runtime.metrics import check_tracing

    yield partial(check_anonymous, settings, api="api" in roles)
    if "api" in roles or settings.metrics.port:
        yield partial(tls.certificates, settings.api)
    if settings.metrics.port:
        yield partial(metrics_check, settings, SystemClock())
    yield partial(check_tracing, settings.tracing)


def _api(settings: Settings) -> Iterator[Check]:
    from ferroscope.runtime.authentication import build_authentication, build_policy
    from ferroscope.runtime.wiring import build_forwarder

    yield _routes
    yield partial(build_authentication, settings, SystemClock())
    yield partial(build_policy, settings, SystemClock(), needed=False)
    yield partial(build_forwarder, settings)


def _routes() -> None:
    """Reject routes and pages of other packages that cannot be used; ``SetupError``."""
    try:
        import_module("ferroscope.api.routes")
        added("ferroscope.pages")
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc


def _separate_roles(settings: Settings, roles: frozenset[str]) -> Iterator[Check]:
    if "pxe-filter" in roles:
        from ferroscope.runtime import pxe_filter

        yield partial(pxe_filter.check, settings)
        yield partial(pxe_filter.check_inspector, settings.pxe_filter)
    if "failover" in roles:
        from ferroscope.runtime.failover_process import http_client

        yield partial(_close_after, http_client, settings.failover.kubeconfig, settings.failover.context)


def _close_after(build: Callable[..., object], *args: object, **options: object) -> None:
    close = getattr(build(*args, **options), "close", None)
    if close is not None:
        close()
