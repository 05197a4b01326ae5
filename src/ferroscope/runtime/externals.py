"""What is outside: BMC drivers, an attached Ironic, the coordination service, and object stores for inspection data.

Each is built from its options. What is not configured is not imported. With an attached Ironic, its driver is the
only one.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from ferroscope.bmc.drivers import DriverOptions, Limits, load_drivers
from ferroscope.config.added import backend as selected
from ferroscope.config.coordination_options import problem
from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.config.plugins import PluginError
from ferroscope.contracts.attached import Attached
from ferroscope.contracts.attached import Backend as AttachedBackend
from ferroscope.contracts.bmc import Bmc, KeepsConnections
from ferroscope.contracts.coordination import (
    CoordinationRefusedError,
    CoordinationService,
    CoordinationUnavailableError,
)
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.remote import (
    NodeSource,
    ObjectStore,
)
from ferroscope.liveness.watch import PartyWatch
from ferroscope.remote.addresses import Networks
from ferroscope.runtime.backend import Backend
from ferroscope.storage.reader import Archive

if TYPE_CHECKING:
    from ferroscope.periodic.singleton import PeriodicTask


_log = structlog.get_logger(__name__)


def build_attached(settings: Settings, stop: StopFlag) -> Attached:
    """Return the attached Ironic, whose waits ``stop`` interrupts, or nothing attached. ``SetupError``."""
    if settings.registry.backend == "embedded":
        return Attached()
    return _attached_backend(settings).attach(settings, stop)


def _attached_backend(settings: Settings) -> AttachedBackend:
    found: AttachedBackend = _selected(f"registry.{settings.registry.backend}")
    return found


def _selected(name: str) -> Any:
    try:
        return selected(name)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc


def build_drivers(
    settings: Settings, stop: StopFlag | None = None, attached: Attached | None = None
) -> Mapping[str, Bmc]:
    """Return the enabled drivers by name, whose waits ``stop`` interrupts; ``SetupError``."""
    offered, owner = settings.drivers, attached or Attached()
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
        attached=owner,
    )
    try:
        drivers = load_drivers(owner.enabled(offered.enabled), options)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    _check_discovery(settings)
    return owner.serving(drivers)


def check_drivers(settings: Settings) -> None:
    """Reject drivers, or an attached Ironic, that cannot be used, without asking anybody; ``SetupError``."""
    if settings.registry.backend == "embedded":
        close_drivers(build_drivers(settings))
    else:
        _attached_backend(settings).check(settings)
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


def build_source(settings: Settings, stop: StopFlag, attached: Attached) -> NodeSource | None:
    """Return what says which nodes exist, whose waits ``stop`` interrupts; None if nothing does but we."""
    if not settings.registry.url:
        return attached.source()
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
    try:
        service: CoordinationService = _selected(f"coordination.{backend}")(settings.coordination, member, stop)
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
