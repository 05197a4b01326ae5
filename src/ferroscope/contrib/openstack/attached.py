"""An attached Ironic: the implementation of the seam, and how it is built from ``[registry]`` and ``[ironic]``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from ferroscope.api.errors import belongs_to_ironic
from ferroscope.api.http.context import ApiContext
from ferroscope.config.errors import SetupError, extra
from ferroscope.config.integration_options import problem
from ferroscope.config.options import Settings
from ferroscope.contracts.attached import Attached
from ferroscope.contracts.bmc import Bmc, Switch
from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import IronicClient, IronicRefusedError, IronicUnavailableError, NodeSource
from ferroscope.contrib.openstack import calls, inspections
from ferroscope.contrib.openstack.client import BareMetalClient, IronicLogin, LoginSetupError, NoLogin
from ferroscope.contrib.openstack.sync import IronicCopies
from ferroscope.core.delivery import Fail
from ferroscope.core.lookup import Evidence
from ferroscope.core.model import Document, Node
from ferroscope.db.store import Store
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.services import Services

_ATTACH: Final = "see: ferroscope docs attach-an-ironic"

_log = structlog.get_logger(__name__)


class AttachedIronic(Attached):
    """See ``contracts.attached``."""

    second_hand = True
    reinspects = False

    def __init__(self, client: IronicClient, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._power_times = inspections.PowerTimes()

    def client(self) -> IronicClient:
        return self._client

    def source(self) -> NodeSource:
        return self._client

    def enabled(self, _drivers: Sequence[str]) -> Sequence[str]:
        return (self._settings.registry.backend,)

    def serving(self, drivers: Mapping[str, Bmc]) -> Mapping[str, Bmc]:
        return _EveryDriver(drivers)

    def tasks(self, store: Store) -> Iterable[Callable[[], Any]]:
        yield lambda: IronicCopies(store, self._client, settings=self._settings.registry)

    def check_change(self, endpoint: str) -> None:
        raise belongs_to_ironic(endpoint, self._client.url)

    def prepare(self, context: ApiContext, ident: str, *, manage_boot: bool = True) -> None:
        calls.prepare(self._client, context, ident, manage_boot=manage_boot)

    def search(self, context: ApiContext, evidence: Evidence) -> bool:
        return calls.search(self._client, context, evidence)

    def sources(self, node: Node) -> Mapping[str, Any]:
        """Nothing: Ironic does not say who has set a value."""
        return {}

    def begin(self, attempt: Attempt) -> Fail | None:
        return inspections.begin(self._client, attempt)

    def recorded(self, attempt: Attempt) -> Document:
        return inspections.record_changes(attempt)

    def apply(self, attempt: Attempt, journal: Journal, services: Services) -> Fail | None:
        return inspections.apply(self._client, attempt, journal, services)

    def pace(
        self, attempt: Attempt, power: Switch, pause: float, longest: float, seconds: float
    ) -> tuple[float, float]:
        return inspections.pace(self._power_times, attempt, power, pause, longest, seconds)

    def reached(self, attempt: Attempt, power: Switch, took: float) -> None:
        self._power_times.learn_change(power, took)
        attempt.reported_power.saw(power)


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
    """See ``contracts.attached.Backend``."""

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
            extra("ironic"),
        ) from exc
    except (LoginSetupError, OSError) as exc:
        raise SetupError(str(exc), _ATTACH) from exc


IRONIC: Final = IronicBackend()
