"""The composition root: builds the implementations of the contracts, and passes them to the roles.

Implementations are built only here, in ``backend`` (the database) and in ``pxe_filter`` (filters).
"""

from __future__ import annotations

import posixpath
import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from ferroscope.bmc.drivers import DriverOptions, Limits, load_drivers
from ferroscope.config.options import Settings
from ferroscope.config.plugins import PluginError
from ferroscope.contracts.bmc import Bmc, KeepsConnections
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.notifications import Senders
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.remote import (
    NodeSource,
    ObjectStore,
    Registry,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from ferroscope.contracts.secrets import SecretOptions, SecretSourceError
from ferroscope.remote.resolver import Networks
from ferroscope.runtime.authentication import build_authentication, build_policy
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.system import SetupError, SystemClock
from ferroscope.secrets.reader import SecretReader
from ferroscope.secrets.references import Resolver, load_sources
from ferroscope.storage.reader import Archive

_log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    from ferroscope.api.auth.authentication import Authentication
    from ferroscope.periodic.singleton import PeriodicTask, Singleton
    from ferroscope.remote.ironic import Login
    from ferroscope.rules.engine import CompiledRule
    from ferroscope.telemetry.metrics import Metrics
    from ferroscope.worker.pool import WorkerPool


# Inspection data: the configured object stores, what reads from them, what moves data there.
#
# Object stores that are not configured are not imported.


def build_archive(settings: Settings, backend: Backend, stop: StopFlag) -> Archive:
    """Return the reader of inspection data; ``stop`` interrupts its waits."""
    return Archive(backend.store, build_object_stores(settings, stop))


def build_object_stores(settings: Settings, stop: StopFlag) -> Mapping[str, ObjectStore]:
    """Return the configured object stores by name; ``SetupError`` if the selected one is not configured."""
    object_stores: dict[str, ObjectStore] = {}
    storage = settings.storage
    if not (settings.s3.endpoint or settings.swift.auth_url or storage.backend in ("s3", "swift")):
        return object_stores
    from ferroscope.storage.object_http import RetryPolicy

    patience = RetryPolicy(timeout=storage.timeout, retries=storage.retries, pause=storage.retry_pause, stop=stop)
    if settings.s3.endpoint:
        from ferroscope.storage.s3 import S3Store

        object_stores["s3"] = S3Store(settings.s3, patience)
    if settings.swift.auth_url:
        from ferroscope.storage.object_http import problem
        from ferroscope.storage.swift import SwiftStore

        if wrong := problem(settings.swift):
            raise SetupError(wrong)
        try:
            object_stores["swift"] = SwiftStore(settings.swift, patience)
        except ImportError as exc:
            raise SetupError(
                f"[swift] needs the Python package {exc.name}, which is not installed",
                "install Ferroscope with [swift], for example: pip install '.[swift]'",
            ) from exc
    if storage.backend in ("s3", "swift") and storage.backend not in object_stores:
        option = "endpoint" if storage.backend == "s3" else "auth_url"
        raise SetupError(f"[storage] backend is {storage.backend}, but [{storage.backend}] {option} is not set")
    return object_stores


def build_archiving(
    settings: Settings, backend: Backend, object_stores: Mapping[str, ObjectStore], *, clock: Clock, process: str
) -> PeriodicTask:
    """Return the task that moves data to the object store, or deletes it if none is to be kept."""
    from ferroscope.periodic.archiving import Archiving, newest_inventory, nothing
    from ferroscope.storage.mover import Mover

    raid = any(name.lstrip("?").replace("_", "-") == "raid-device" for name in settings.inspector.hooks)
    return Archiving(
        backend.store,
        Mover(backend.store, Archive(backend.store, object_stores), process=process),
        keep=settings.storage.backend,
        period=settings.storage.period,
        clock=clock,
        longest_pause=settings.storage.longest_pause,
        wanted=newest_inventory if raid else nothing,
    )


# The api and worker packages do not import each other, and each is imported only where it is needed, so a process
# loads only its own roles.


_IMPORTED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("ferroscope.api.routes",),
    "worker": (
        "ferroscope.hooks.pipeline",
        "ferroscope.worker.loop",
        "ferroscope.worker.pool",
        "ferroscope.worker.tasks",
        "ferroscope.worker.throttle",
    ),
    "periodic": ("ferroscope.periodic.singleton", "ferroscope.periodic.timeouts", "ferroscope.leadership"),
}


def preload(roles: Iterable[str]) -> None:
    """Import what the roles need, so that forked processes share it and start quickly."""
    for role in roles:
        for module in _IMPORTED_BY.get(role, ()):
            import_module(module)


def build_registry(settings: Settings, stop: StopFlag) -> Registry | None:
    """Return the attached Ironic, whose waits ``stop`` interrupts; None if there is none. ``SetupError``.

    It may be unavailable for now, but what it refuses is refused.
    """
    if settings.registry.backend == "embedded":
        return None
    from ferroscope.config.ironic_options import problem
    from ferroscope.remote.ironic import IronicRegistry, LoginSetupError, NoLogin

    if settings.registry.url:
        raise SetupError("[registry] url conflicts with backend = ironic", "set [ironic] endpoint_override instead")
    advice = "see docs/how-to/attach-an-ironic.md"
    if wrong := problem(settings.ironic):
        raise SetupError(f"[registry] backend is ironic, but {wrong}", advice)
    try:
        if settings.ironic.auth_type == "none":
            login: Login = NoLogin(settings.ironic)
        else:
            from ferroscope.remote.keystone_login import KeystoneLogin

            login = KeystoneLogin(settings.ironic)
        registry = IronicRegistry(settings.ironic, login, stop)
        registry.check()
    except ImportError as exc:
        raise SetupError(
            f"[ironic] needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [ironic], for example: pip install '.[ironic]'",
        ) from exc
    except (LoginSetupError, OSError) as exc:
        raise SetupError(str(exc), advice) from exc
    except RegistryRefusedError as exc:
        raise SetupError(f"cannot use the Ironic of [ironic]: {exc}", advice) from exc
    except RegistryUnavailableError as exc:
        _log.warning("Ironic is unavailable; inspections wait for it", error=str(exc))
    return registry


class _EveryDriver(Mapping[str, Bmc]):
    """The one driver that serves the nodes of an attached Ironic, whatever their driver there."""

    def __init__(self, only: Mapping[str, Bmc]) -> None:
        ((self._name, self._driver),) = only.items()

    def __getitem__(self, _name: str) -> Bmc:
        return self._driver

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1


def build_drivers(
    settings: Settings, stop: StopFlag | None = None, registry: Registry | None = None
) -> Mapping[str, Bmc]:
    """Return the enabled drivers by name, whose waits ``stop`` interrupts; ``SetupError``."""
    offered = settings.drivers
    if registry is not None:
        offered = msgspec.structs.replace(offered, enabled=(settings.registry.backend,))
    options = DriverOptions(
        command_timeout=offered.command_timeout,
        command_tries=offered.command_tries,
        inventory_timeout=offered.inventory_timeout,
        limits=Limits(
            networks=Networks(offered.bmc_networks),
            http_passwords=offered.allow_http_passwords,
            ca_directory=posixpath.normpath(offered.ca_directory),
        ),
        stop=stop or threading.Event(),
        registry=registry,
    )
    try:
        drivers = load_drivers(offered.enabled, options)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    _check_discovery(settings)
    return drivers if registry is None else _EveryDriver(drivers)


def _check_discovery(settings: Settings) -> None:
    """Reject settings with which discovered nodes would be unusable, or deleted again."""
    discovered = settings.auto_discovery
    if not discovered.enabled:
        return
    if settings.registry.backend != "embedded":
        raise SetupError(
            f"[auto_discovery] enabled conflicts with [registry] backend = {settings.registry.backend}: nodes are "
            "enrolled there",
            "set only one of the two",
        )
    if not discovered.driver:
        raise SetupError(
            "[auto_discovery] driver is not set; it is the driver of discovered nodes",
            f"set it to one of [drivers] enabled: {', '.join(settings.drivers.enabled)}",
        )
    if discovered.driver not in settings.drivers.enabled:
        raise SetupError(
            f"[auto_discovery] driver {discovered.driver!r} is not in [drivers] enabled",
            f"enabled drivers: {', '.join(settings.drivers.enabled)}",
        )
    if settings.registry.url:
        raise SetupError(
            "[auto_discovery] enabled conflicts with [registry] url: nodes that the registry does not list "
            "are deleted here",
            "set only one of the two",
        )


def build_resolver(settings: Settings, stop: StopFlag) -> Resolver | None:
    """Return what resolves references to secrets; None if there are no sources; ``SetupError``."""
    secrets = settings.secrets
    if not secrets.sources:
        return None
    options = SecretOptions(
        timeout=secrets.timeout, file_directory=secrets.file_directory, env_prefix=secrets.env_prefix, stop=stop
    )
    try:
        sources = load_sources(secrets.sources, options)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    return Resolver(sources, timeout=secrets.timeout, keep=secrets.cache_seconds)


def close_drivers(drivers: Mapping[str, Bmc]) -> None:
    """Close the drivers' persistent connections."""
    for driver in drivers.values():
        if isinstance(driver, KeepsConnections):
            driver.close()


def build_app(
    settings: Settings,
    backend: Backend,
    drivers: Mapping[str, Bmc],
    *,
    process: str,
    draining: StopFlag | None = None,
    meter: Metrics | None = None,
    stop: StopFlag | None = None,
    can_write: Callable[[], bool] = lambda: True,
    authentication: Authentication | None = None,
    registry: Registry | None = None,
) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application of the api role; its health check fails once ``draining`` is set.

    ``authentication`` None: as configured.
    """
    from ferroscope.api.baremetal.conductors import LivingConductors
    from ferroscope.api.http.admission import Admission
    from ferroscope.api.http.audit import Audit
    from ferroscope.api.http.hosts import Hosts, known_names
    from ferroscope.api.http.rate_limit import Callers
    from ferroscope.api.http.route import ApiContext, DatabaseInfo
    from ferroscope.api.routes import create_app
    from ferroscope.hooks.pipeline import from_settings
    from ferroscope.rules.builtin import RuleCache

    clock = SystemClock()
    context = ApiContext(
        store=backend.store,
        archive=build_archive(settings, backend, stop or threading.Event()),
        settings=settings,
        drivers=drivers,
        process=process,
        new_uuid=lambda: str(uuid.uuid4()),
        new_token=lambda: secrets.token_urlsafe(32),
        log=structlog.get_logger("ferroscope.api"),
        draining=draining or threading.Event(),
        clock=clock,
        describe=lambda: DatabaseInfo(*backend.describe()),
        rules=RuleCache(built_in_rules(settings)),
        pipeline=lru_cache(maxsize=1)(lambda: from_settings(settings.inspector)),
        meter=meter or SILENT,
        callers=Callers(settings.api),
        hosts=Hosts(known_names(settings)),
        admission=Admission(settings.api, clock),
        authentication=authentication or build_authentication(settings, clock, backend.store),
        policy=build_policy(settings, clock, needed=authentication is not None),
        can_write=can_write,
        registry=registry,
        audit=Audit(settings.audit, backend.store, SystemClock(), process=process) if settings.audit.enabled else None,
        conductor_of=LivingConductors(backend.store, clock, drivers),
        metrics=None if meter is None or not settings.api.enable_metrics else _renderer(meter, backend),
    )
    return create_app(context)


def _renderer(meter: Metrics, backend: Backend) -> Callable[[], bytes]:
    """Return the renderer of ``GET /metrics``: the metrics of this process and of the service."""
    from ferroscope.telemetry.metrics import Overview, render

    meter.registry.register(Overview(backend.store, SystemClock()))
    return lambda: render(meter.registry)


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
    registry: Registry | None = None,
) -> WorkerPool:
    """Return the worker role's pool, ``claim_valid_for`` as in ``Services``; ``SetupError`` if hooks do not fit."""
    from ferroscope.hooks.base import HookSetupError
    from ferroscope.hooks.pipeline import from_settings
    from ferroscope.remote.bounded_http import WebClient
    from ferroscope.rules.builtin import RuleCache
    from ferroscope.worker.loop import Worker
    from ferroscope.worker.pool import WorkerPool
    from ferroscope.worker.process import RuleStep
    from ferroscope.worker.start import PxeFilterWait
    from ferroscope.worker.tasks import build
    from ferroscope.worker.throttle import RebootThrottle

    try:
        pipeline = from_settings(settings.inspector)
    except HookSetupError as exc:
        raise SetupError(str(exc)) from exc

    throttle = RebootThrottle(
        settings.worker.reboot_throttle,
        holder=member,
        store=backend.lease_store,
        clock=clock,
        profile=settings.lease.numbers(),
        command=settings.drivers.command_timeout,
    )
    rules = RuleStep(RuleCache(built_in_rules(settings)), WebClient())
    tasks = build(pipeline, throttle, PxeFilterWait(settings.pxe_filter.allow_timeout), rules)

    archive = build_archive(settings, backend, stop)

    worker = Worker(
        store=backend.store,
        queue=backend.queue,
        tasks=tasks,
        drivers=drivers,
        settings=settings,
        clock=clock,
        stop=stop,
        member=member,
        process=process,
        meter=meter,
        archive=archive,
        secrets=SecretReader(backend.keys, build_resolver(settings, stop)),
        claim_valid_for=claim_valid_for,
        registry=registry,
    )
    return WorkerPool(worker)


def built_in_rules(settings: Settings) -> tuple[CompiledRule, ...]:
    """Return the configured rules, and validate the allowed call targets; ``SetupError``."""
    from ferroscope.rules import builtin
    from ferroscope.rules.data import InvalidRuleError

    try:
        builtin.check(settings.inspection_rules.api_call_targets)
        return builtin.load(settings.inspection_rules.built_in_rules)
    except InvalidRuleError as exc:
        raise SetupError(str(exc)) from exc


def build_source(settings: Settings, stop: StopFlag, registry: Registry | None = None) -> NodeSource | None:
    """Return what says which nodes exist, whose waits ``stop`` interrupts; None if nothing does but we."""
    if registry is not None:
        return registry
    if not settings.registry.url:
        return None
    from ferroscope.remote.ironic import IronicSource

    options = settings.registry
    return IronicSource(options.url, timeout=options.timeout, retries=options.retries, stop=stop)


def build_senders(settings: Settings, stop: StopFlag) -> Senders:
    """Return what delivers events, by target; ``SetupError``."""
    webhooks = settings.notifications.webhooks()
    if not webhooks:
        return {}
    from ferroscope.remote.webhook import Webhook

    resolver = build_resolver(settings, stop) or Resolver({})
    networks = Networks(settings.notifications.networks)
    found = {}
    for one in webhooks:
        try:
            found[one.name] = Webhook(
                one, source=settings.notifications.source, networks=networks, resolve=resolver.resolve
            )
        except (OSError, SecretSourceError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise SetupError(
                f"[notifications] target {one.name} cannot be used: {reason}", "correct its secret or ca_file"
            ) from exc
    return found


def build_singletons(
    settings: Settings,
    backend: Backend,
    *,
    clock: Clock,
    stop: StopFlag,
    member: str,
    process: str,
    meter: Meter = SILENT,
    not_now: Callable[[], str] = str,
    registry: Registry | None = None,
) -> list[Singleton]:
    """Return the periodic singletons, to be run in a thread each; ``not_now`` as in ``Singleton``."""
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.notifications import Notifications
    from ferroscope.periodic.registry_sync import RegistrySync
    from ferroscope.periodic.retention import Retention
    from ferroscope.periodic.singleton import Singleton
    from ferroscope.periodic.timeouts import Timeouts

    profile, inspector = settings.lease.numbers(), settings.inspector
    keep = LeaseRenewer(profile, clock, meter=meter)
    source = build_source(settings, stop, registry)
    tasks: list[Callable[[], PeriodicTask]] = [
        lambda: Timeouts(backend.store, timeout=inspector.timeout, period=inspector.timeout_period, process=process),
        lambda: RegistrySync(backend.store, source, settings=settings.registry, process=process),
        lambda: Retention(
            backend.store,
            threshold=inspector.retention,
            number=inspector.retention_number,
            logs=inspector.logs_retention,
            audit=settings.audit.retention_days * 86400.0,
            events=(settings.notifications.keep_delivered * 86400.0, settings.notifications.keep_dead * 86400.0),
            period=inspector.retention_period,
            clock=clock,
        ),
    ]

    if registry is not None:
        from ferroscope.periodic.registry_mirror import RegistryMirror

        tasks.append(lambda: RegistryMirror(backend.store, registry, settings=settings.registry))

    object_stores = build_object_stores(settings, stop)
    if object_stores or settings.storage.backend == "none":
        tasks.append(lambda: build_archiving(settings, backend, object_stores, clock=clock, process=process))

    if senders := build_senders(settings, stop):
        tasks.append(lambda: Notifications(backend.store, senders, settings.notifications, clock=clock, meter=meter))

    def single(build: Callable[[], PeriodicTask]) -> Singleton:
        election = Election(build().name, member, store=backend.lease_store, clock=clock, profile=profile)
        return Singleton(
            build, election, keep=keep, profile=profile, bus=backend.bus, clock=clock, stop=stop, not_now=not_now
        )

    return [single(build) for build in tasks]
