"""The composition root: builds the implementations of the contracts, and passes them to the roles.

Implementations are built only here, and in ``backend`` (the database).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import structlog

from ferroscope.api.auth.configured import build_authentication, build_policy
from ferroscope.api.auth.failures import guesses
from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend as _selected
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.plugins import SecretOptions
from ferroscope.contracts.remote import Forwarder
from ferroscope.contracts.store import Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.remote.addresses import Networks
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.references import Resolver, SecretReader, load_sources
from ferroscope.storage.stores import build_archive
from ferroscope_client.core.values import new_token, new_uuid
from ferroscope_client.installed import PluginError, load_installed

_log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    from ferroscope.api.auth.authentication import Authentication
    from ferroscope.api.auth.policy import Policy
    from ferroscope.api.http.context import AccessControl, ApiContext, FailureReader
    from ferroscope.api.http.route import AddPages
    from ferroscope.hooks.pipeline import Pipeline
    from ferroscope.rules.engine import CompiledRule
    from ferroscope.runtime.externals import Attached
    from ferroscope.telemetry.metrics import Metrics
    from ferroscope.worker.pool import WorkerPool


# The api and worker packages do not import each other, and each is imported on demand, so a process loads only its own
# roles.


_IMPORTED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("ferroscope.api.routes",),
    "worker": (
        "ferroscope.hooks.pipeline",
        "ferroscope.worker.loop",
        "ferroscope.worker.pool",
        "ferroscope.worker.tasks",
        "ferroscope.worker.start",
    ),
    "periodic": ("ferroscope.periodic.singleton", "ferroscope.periodic.timeouts", "ferroscope.leadership"),
}


def preload(roles: Iterable[str]) -> None:
    """Import what the roles need, so that forked processes share it and start quickly."""
    for role in roles:
        for module in _IMPORTED_BY.get(role, ()):
            import_module(module)


def build_resolver(settings: Settings, stop: StopFlag) -> Resolver | None:
    """Return the resolver of references to secrets; None if there are no sources; ``SetupError``."""
    secrets = settings.secrets
    if not secrets.sources:
        return None
    options = SecretOptions(file_directory=secrets.file_directory, stop=stop)
    try:
        sources = load_sources(secrets.sources, options)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    return Resolver(sources)


def build_app(
    settings: Settings,
    backend: Backend,
    drivers: Mapping[str, Bmc],
    *,
    process: str,
    draining: StopFlag | None = None,
    meter: Metrics | None = None,
    stop: StopFlag | None = None,
    heartbeat_failure: FailureReader | None = None,
    authentication: Authentication | None = None,
    attached: Attached | None = None,
) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application of the api role; its health check fails once ``draining`` is set.

    ``authentication`` None: as configured.
    """
    from ferroscope.api.routes import create_app

    clock = SystemClock()
    context = build_context(
        settings,
        backend,
        drivers,
        authentication or build_authentication(settings, clock, backend.store),
        build_policy(settings, clock, needed=authentication is not None),
        process=process,
        draining=draining,
        meter=meter,
        stop=stop,
        heartbeat_failure=heartbeat_failure,
        attached=attached,
    )
    app = create_app(context)
    more: Mapping[str, AddPages] = load_installed("ferroscope.pages")
    for add in more.values():
        add(app, context)
    return app


def build_context(
    settings: Settings,
    backend: Backend,
    drivers: Mapping[str, Bmc],
    authentication: Authentication,
    policy: Policy,
    *,
    process: str,
    draining: StopFlag | None = None,
    meter: Metrics | None = None,
    stop: StopFlag | None = None,
    heartbeat_failure: FailureReader | None = None,
    attached: Attached | None = None,
) -> ApiContext:
    """Return the dependencies of the API's handlers."""
    from ferroscope.api.baremetal.conductors import LivingConductors
    from ferroscope.api.http.context import ApiContext, ApiServices, DataAccess, DatabaseInfo
    from ferroscope.api.http.context import ProcessContext as ServingProcess
    from ferroscope.api.http.recent import TtlCache
    from ferroscope.api.service.status import read_facts
    from ferroscope.hooks.pipeline import from_settings
    from ferroscope.rules.builtin import RuleCache
    from ferroscope.telemetry.metrics import render
    from ferroscope.telemetry.overview import Overview

    clock = SystemClock()
    context = ApiContext(
        settings=settings,
        data=DataAccess(
            store=backend.store,
            archive=build_archive(settings, backend.store, stop or threading.Event()),
            describe=lambda: DatabaseInfo(*backend.describe()),
            page=settings.api.max_page_size,
            recent=TtlCache(clock),
            heartbeat_failure=heartbeat_failure,
        ),
        access=_control_access(settings, backend, clock, authentication, policy, process=process),
        services=ApiServices(
            drivers=drivers,
            rules=RuleCache(built_in_rules(settings)),
            pipeline=lru_cache(maxsize=1)(lambda: from_settings(settings.inspector)),
            attached=None if attached is None else attached.calls,
            forwarder=build_forwarder(settings),
            conductor_of=LivingConductors(backend.store, clock, drivers),
        ),
        process=ServingProcess(
            name=process,
            log=structlog.get_logger("ferroscope.api"),
            clock=clock,
            new_uuid=new_uuid,
            new_token=new_token,
            meter=meter or SILENT,
            metrics=None if meter is None or not settings.api.enable_metrics else partial(render, meter.registry),
            draining=draining or threading.Event(),
        ),
    )
    if meter is not None and settings.api.enable_metrics:
        meter.registry.register(Overview(backend.store, partial(read_facts, context)))
    return context


def _control_access(
    settings: Settings,
    backend: Backend,
    clock: Clock,
    authentication: Authentication,
    policy: Policy,
    *,
    process: str,
) -> AccessControl:
    from ferroscope.api.http.arrivals import Hosts, known_names
    from ferroscope.api.http.audit import Audit
    from ferroscope.api.http.context import AccessControl
    from ferroscope.api.rate_limit import Callers, RateLimiter
    from ferroscope.http_server.limits import TrustedProxies

    return AccessControl(
        authentication=authentication,
        policy=policy,
        audit=Audit(settings.audit, backend.store, clock, process=process) if settings.audit.enabled else None,
        proxies=TrustedProxies(settings.api.trusted_proxies),
        callers=Callers(settings.api),
        hosts=Hosts(known_names(settings)),
        admission=RateLimiter(settings.api, clock),
        guesses=guesses(settings.api),
    )


def build_forwarder(settings: Settings) -> Forwarder | None:
    """Return the forwarder of callbacks that no node waits for here, if configured; ``SetupError``."""
    if not settings.inspector.forward_unknown_to:
        return None
    try:
        forwarder: Forwarder = _selected("inspector.forward_unknown_to")(settings.inspector)
    except OSError as exc:
        raise SetupError(f"[inspector] forward_ca_file cannot be read: {exc.strerror or exc}") from exc
    return forwarder


def build_pool(
    settings: Settings,
    backend: Backend,
    drivers: Mapping[str, Bmc],
    *,
    clock: Clock,
    stop: StopFlag,
    member: str,
    process: str,
    claim_valid_for: Callable[[float], float],
    meter: Meter = SILENT,
    attached: Attached | None = None,
) -> WorkerPool:
    """Return the worker role's pool, ``claim_valid_for`` as for its attempts; ``SetupError`` if hooks do not fit."""
    from ferroscope.remote.bounded_http import WebClient
    from ferroscope.remote.image_check import ImageCheck
    from ferroscope.rules.builtin import RuleCache
    from ferroscope.worker.loop import Worker
    from ferroscope.worker.pool import WorkerPool
    from ferroscope.worker.process import RuleStep
    from ferroscope.worker.services import Services
    from ferroscope.worker.start import PxeFilterWait, RebootThrottle
    from ferroscope.worker.tasks import build

    throttle = RebootThrottle(
        settings.worker.reboot_throttle,
        holder=member,
        store=backend.lease_store,
        clock=clock,
        profile=settings.lease.numbers(),
        command=max(settings.drivers.command_timeout, settings.drivers.inventory_timeout),
    )
    rules = RuleStep(RuleCache(built_in_rules(settings)), WebClient())
    parts = (build_pipeline(settings), throttle, PxeFilterWait(), rules)
    services = Services(
        backend.store,
        settings,
        clock,
        stop,
        member=member,
        process=process,
        meter=meter,
        archive=build_archive(settings, backend.store, stop),
        secrets=SecretReader(backend.keys, build_resolver(settings, stop)),
        claim_valid_for=claim_valid_for,
        power_times=None if attached is None else attached.power_times,
        images=ImageCheck(clock, allowed=Networks(guarded=True)),
    )
    tasks = build(*parts) if attached is None else build(*parts, attached.tasks)
    return WorkerPool(Worker(services, backend.queue, tasks, drivers))


def build_pipeline(settings: Settings) -> Pipeline:
    """Return the configured hooks; ``SetupError``."""
    from ferroscope.hooks.base import HookSetupError
    from ferroscope.hooks.pipeline import from_settings

    try:
        return from_settings(settings.inspector)
    except HookSetupError as exc:
        raise SetupError(str(exc)) from exc


def built_in_rules(settings: Settings) -> tuple[CompiledRule, ...]:
    """Return the configured rules, and validate the allowed call targets; ``SetupError``."""
    from ferroscope.rules import builtin
    from ferroscope.rules.data import InvalidRuleError

    try:
        builtin.check(settings.inspection_rules.api_call_targets)
        return builtin.load(settings.inspection_rules.built_in_rules)
    except InvalidRuleError as exc:
        raise SetupError(str(exc)) from exc
