"""The BMC drivers, and the attached registry, whose driver then is the only one."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import structlog

from ferroscope.bmc.drivers import DriverOptions, Limits, load_drivers
from ferroscope.config.options import Settings
from ferroscope.config.plugins import PluginError
from ferroscope.contracts.bmc import Bmc, KeepsConnections
from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import NodeSource, Registry, RegistryRefusedError, RegistryUnavailableError
from ferroscope.remote.resolver import Networks
from ferroscope.runtime.system import SetupError

if TYPE_CHECKING:
    from ferroscope.remote.ironic import Login

_log = structlog.get_logger(__name__)


def build_registry(settings: Settings, stop: StopFlag) -> Registry | None:
    """Return the attached Ironic, whose waits ``stop`` interrupts; None if there is none. ``SetupError``.

    It may be unavailable for now, but what it refuses is refused.
    """
    if settings.registry.backend == "embedded":
        return None
    from ferroscope.config.integration_options import problem
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
    from ferroscope.remote.node_source import IronicSource

    options = settings.registry
    return IronicSource(options.url, timeout=options.timeout, retries=options.retries, stop=stop)
