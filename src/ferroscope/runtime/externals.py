"""What is outside: BMC drivers, an attached registry, the coordination service, and object stores for inspection data.

Each is built from its options. What is not configured is not imported. With an attached registry, its driver is the
only one.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from ferroscope.bmc.drivers import DriverOptions, Limits, load_drivers
from ferroscope.config.coordination_options import problem
from ferroscope.config.options import Settings
from ferroscope.config.plugins import PluginError
from ferroscope.config.setup_error import SetupError
from ferroscope.contracts.bmc import Bmc, KeepsConnections
from ferroscope.contracts.coordination import (
    CoordinationRefusedError,
    CoordinationService,
    CoordinationUnavailableError,
)
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.remote import (
    IntrospectionSource,
    NodeSource,
    ObjectStore,
    Registry,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from ferroscope.liveness.watch import PartyWatch
from ferroscope.remote.addresses import Networks
from ferroscope.runtime.backend import Backend
from ferroscope.storage.reader import Archive

if TYPE_CHECKING:
    from ferroscope.periodic.singleton import PeriodicTask
    from ferroscope.remote.ironic import Login


_ATTACH: Final = "see: ferroscope docs attach-an-ironic"

_log = structlog.get_logger(__name__)


def build_registry(settings: Settings, stop: StopFlag) -> Registry | None:
    """Return the attached Ironic, whose waits ``stop`` interrupts; None if there is none. ``SetupError``.

    It may be unavailable for now, but what it refuses is refused.
    """
    if settings.registry.backend == "embedded":
        return None
    from ferroscope.remote.ironic import IronicRegistry, LoginSetupError

    _check_ironic(settings)
    login = _login(settings)
    try:
        registry = IronicRegistry(settings.ironic, login, stop)
        registry.check()
    except (LoginSetupError, OSError) as exc:
        raise SetupError(str(exc), _ATTACH) from exc
    except RegistryRefusedError as exc:
        raise SetupError(f"cannot use the Ironic of [ironic]: {exc}", _ATTACH) from exc
    except RegistryUnavailableError as exc:
        _log.warning("Ironic is unavailable; inspections wait for it", error=str(exc))
    return registry


def build_introspections(settings: Settings) -> IntrospectionSource:
    """Return what reads introspections from the ironic-inspector of ``[inspector] forward_unknown_to``. ``SetupError``.

    It is asked with the login of ``[ironic]``, if there is one.
    """
    from ferroscope.remote.inspector_data import InspectorData

    asked = settings.ironic.cloud or settings.ironic.auth_type not in ("", "none")
    return InspectorData(settings.inspector, _login(settings) if asked else None)


def _login(settings: Settings) -> Login:
    """Return the login of ``[ironic]``; ``SetupError``."""
    from ferroscope.remote.ironic import LoginSetupError, NoLogin

    try:
        if settings.ironic.auth_type == "none":
            return NoLogin(settings.ironic)
        from ferroscope.remote.keystone_login import KeystoneLogin

        return KeystoneLogin(settings.ironic)
    except ImportError as exc:
        raise SetupError(
            f"[ironic] needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [ironic], for example: pip install '.[ironic]'",
        ) from exc
    except (LoginSetupError, OSError) as exc:
        raise SetupError(str(exc), _ATTACH) from exc


def _check_ironic(settings: Settings) -> None:
    from ferroscope.config.integration_options import problem

    if settings.registry.url:
        raise SetupError("[registry] url conflicts with backend = ironic", "set [ironic] endpoint_override instead")
    if wrong := problem(settings.ironic):
        raise SetupError(f"[registry] backend is ironic, but {wrong}", _ATTACH)


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
            networks=Networks(offered.bmc_networks, guarded=True),
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


def check_drivers(settings: Settings) -> None:
    """Reject drivers, or an attached Ironic, that cannot be used, without asking anybody; ``SetupError``."""
    if settings.registry.backend == "embedded":
        close_drivers(build_drivers(settings))
    else:
        _check_ironic(settings)
        _check_discovery(settings)


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


def close_drivers(drivers: Mapping[str, Bmc]) -> None:
    """Close the drivers' persistent connections."""
    for driver in drivers.values():
        if isinstance(driver, KeepsConnections):
            driver.close()


def build_source(settings: Settings, stop: StopFlag, registry: Registry | None = None) -> NodeSource | None:
    """Return what says which nodes exist, whose waits ``stop`` interrupts; None if nothing does but we."""
    if registry is not None:
        return registry
    if not settings.registry.url:
        return None
    from ferroscope.remote.bare_metal_http import IronicSource

    options = settings.registry
    return IronicSource(options.url, timeout=options.timeout, retries=options.retries, stop=stop)


def check(settings: Settings) -> None:
    """Reject a section that is incomplete or wrong; ``SetupError``."""
    if wrong := problem(settings.coordination):
        raise SetupError(wrong, "see: ferroscope docs use-a-coordination-service")


def build_coordination_service(settings: Settings, member: str, stop: StopFlag) -> CoordinationService | None:
    """Return the connection to the coordination service, which is not connected yet; None without one; ``SetupError``.

    ``stop`` interrupts its waits.
    """
    check(settings)
    if settings.coordination.backend == "sql":
        return None
    backend = settings.coordination.backend
    from importlib.metadata import entry_points

    try:
        (found,) = {one.value: one for one in entry_points(group="ferroscope.coordination", name=backend)}.values()
        service: CoordinationService = found.load()(settings.coordination, member, stop)
    except CoordinationRefusedError as exc:
        raise SetupError(f"[coordination] backend {backend}: {exc}") from exc
    except ImportError as exc:
        raise SetupError(
            f"[coordination] backend {backend} needs the Python package {exc.name}, which is not installed",
            f"install Ferroscope with [{backend}], for example: pip install '.[{backend}]'",
        ) from exc
    return service


def build_party_watch(
    settings: Settings, backend: Backend, *, member: str, clock: Clock, stop: StopFlag
) -> PartyWatch | None:
    """Return the watch over the members, not started; None without a coordination service; ``SetupError``.

    The service may be unavailable for now, but if it refuses us, we refuse it.
    """
    service = build_coordination_service(settings, member, stop)
    if service is None:
        return None
    try:
        service.join()
    except CoordinationRefusedError as exc:
        if settings.coordination.backend != "tooz":
            raise SetupError(f"[coordination] backend {settings.coordination.backend}: {exc}") from exc
        raise SetupError(f"[coordination] backend_url: the service rejects our credentials: {exc}") from exc
    except CoordinationUnavailableError as exc:
        _log.warning("the coordination service is unavailable; the database alone decides", why=str(exc))
    return PartyWatch(
        service,
        member=member,
        session=settings.coordination.session_timeout,
        bus=backend.bus,
        clock=clock,
        stop=stop,
    )


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
