"""An attached Ironic: the implementation of the seam, and how it is built from ``[registry]`` and ``[ironic]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from ferroscope.config.errors import SetupError, extra
from ferroscope.config.integration_options import problem
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.remote import IronicClient, IronicRefusedError, IronicUnavailableError
from ferroscope.contracts.store import StopFlag
from ferroscope.contrib.openstack.calls import IronicCalls
from ferroscope.contrib.openstack.client import BareMetalClient, IronicLogin, LoginSetupError, NoLogin
from ferroscope.contrib.openstack.inspections import IronicPowerTimes, wrap_tasks
from ferroscope.contrib.openstack.sync import IronicCopies
from ferroscope.db import Store
from ferroscope.worker.tasks import InspectionTasks

_ATTACH: Final = "see: ferroscope docs attach-an-ironic"

_log = structlog.get_logger(__name__)


class AttachedIronic:
    """See ``runtime.externals.Attached``."""

    def __init__(self, client: IronicClient, settings: Settings) -> None:
        self.client, self._settings = client, settings
        self.calls = IronicCalls(client)
        self.power_times = IronicPowerTimes()

    def serving(self, drivers: Mapping[str, Bmc]) -> Mapping[str, Bmc]:
        return _EveryDriver(drivers)

    def copying(self, store: Store) -> IronicCopies:
        return IronicCopies(store, self.client, settings=self._settings.registry)

    def tasks(self, own: InspectionTasks) -> InspectionTasks:
        return wrap_tasks(self.client, own)


class _EveryDriver(Mapping[str, Bmc]):
    """The one driver that serves all nodes of an attached Ironic, regardless of their driver there."""

    def __init__(self, only: Mapping[str, Bmc]) -> None:
        ((self._name, self._driver),) = only.items()

    def __getitem__(self, _name: str) -> Bmc:
        return self._driver

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1


class IronicBackend:
    """See ``runtime.externals.AttachedBackend``."""

    def check(self, settings: Settings) -> None:
        if settings.registry.url:
            raise SetupError("[registry] url conflicts with backend = ironic", "set [ironic] endpoint_override instead")
        if wrong := problem(settings.ironic):
            raise SetupError(f"[registry] backend is ironic, but {wrong}", _ATTACH)

    def attach(self, settings: Settings, stop: StopFlag) -> AttachedIronic:
        self.check(settings)
        login = login_of(settings)
        try:
            client = BareMetalClient(settings.ironic, login, stop)
            client.check()
        except (LoginSetupError, OSError) as exc:
            raise SetupError(str(exc), _ATTACH) from exc
        except IronicRefusedError as exc:
            raise SetupError(f"cannot use the Ironic of [ironic]: {exc}", _ATTACH) from exc
        except IronicUnavailableError as exc:
            _log.warning("Ironic is unavailable; inspections wait for it", error=str(exc))
        return AttachedIronic(client, settings)


def login_of(settings: Settings) -> IronicLogin:
    """Return the login of ``[ironic]``; ``SetupError``."""
    try:
        if settings.ironic.auth_type == "none":
            return NoLogin(settings.ironic)
        from ferroscope.contrib.openstack.login import KeystoneLogin

        return KeystoneLogin(settings.ironic)
    except ImportError as exc:
        raise SetupError(
            f"[ironic] needs the Python package {exc.name}, which is not installed",
            extra("openstack"),
        ) from exc
    except (LoginSetupError, OSError) as exc:
        raise SetupError(str(exc), _ATTACH) from exc


IRONIC: Final = IronicBackend()
