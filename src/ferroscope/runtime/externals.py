"""Builds what controls machines: the enabled BMC drivers, or an attached Ironic, whose driver is then the only one.

Modules that are not configured are not imported.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from ferroscope.bmc import BmcLimits, DriverOptions, load_drivers
from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend as load_backend
from ferroscope.contracts.bmc import Bmc, KeepsConnections
from ferroscope.contracts.remote import IronicClient
from ferroscope.contracts.store import StopFlag
from ferroscope.db import Store
from ferroscope.remote.addresses import Networks
from ferroscope_client.installed import PluginError

if TYPE_CHECKING:
    from ferroscope.api.http.context import AttachedCalls
    from ferroscope.periodic.singleton import PeriodicTask
    from ferroscope.worker.services import PowerTimes
    from ferroscope.worker.tasks import InspectionTasks

_log = structlog.get_logger(__name__)


class Attached(Protocol):
    """An attached Ironic, which the nodes belong to; it is one of the ``ferroscope.backends``.

    ``calls``: what it does in calls of the API. ``power_times``: how long its power changes take.
    """

    client: IronicClient
    calls: AttachedCalls
    power_times: PowerTimes

    def serving(self, drivers: Mapping[str, Bmc]) -> Mapping[str, Bmc]:
        """Return the loaded drivers by the names that nodes have."""

    def copying(self, store: Store) -> PeriodicTask:
        """Return the periodic task that keeps our copy of its nodes up to date."""

    def tasks(self, own: InspectionTasks) -> InspectionTasks:
        """Return the tasks of an inspection of its nodes, made from those of our own nodes."""


class AttachedBackend(Protocol):
    """How it is attached."""

    def check(self, settings: Settings) -> None:
        """Reject settings with which it cannot be attached, without asking anybody; ``SetupError``."""

    def attach(self, settings: Settings, stop: StopFlag) -> Attached:
        """Attach it; ``stop`` interrupts its waits. It may be unavailable for now; ``SetupError``: it refuses us."""


def build_attached(settings: Settings, stop: StopFlag) -> Attached | None:
    """Return the Ironic that ``[registry] backend`` attaches; ``SetupError``. ``stop`` interrupts its waits."""
    if settings.registry.backend == "embedded":
        return None
    return _attached_backend(settings).attach(settings, stop)


def _attached_backend(settings: Settings) -> AttachedBackend:
    backend: AttachedBackend = _load_backend(f"registry.{settings.registry.backend}")
    return backend


def _load_backend(name: str) -> Any:
    try:
        return load_backend(name)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc


def build_drivers(
    settings: Settings, stop: StopFlag | None = None, attached: Attached | None = None
) -> Mapping[str, Bmc]:
    """Return the enabled drivers by name, whose waits ``stop`` interrupts; ``SetupError``."""
    offered = settings.drivers
    options = DriverOptions(
        command_timeout=offered.command_timeout,
        inventory_timeout=offered.inventory_timeout,
        limits=BmcLimits(
            networks=Networks(offered.bmc_networks, guarded=True),
            http_passwords=offered.allow_http_passwords,
            ca_directory=posixpath.normpath(offered.ca_directory),
        ),
        stop=stop or threading.Event(),
        ironic=None if attached is None else attached.client,
    )
    try:
        names = offered.enabled if attached is None else (settings.registry.backend,)
        drivers = load_drivers(names, options)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    _check_discovery(settings)
    return drivers if attached is None else attached.serving(drivers)


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
