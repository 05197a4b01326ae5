"""The failover process, the controller of failed Kubernetes nodes; and its plan, for the command line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import structlog

from ferroscope.config.options import FailoverSettings, Settings
from ferroscope.contracts.bmc import Bmc, Power
from ferroscope.contracts.errors import BmcError, NotFoundError, StoreUnavailableError
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Channel
from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.core.reasons import Reason
from ferroscope.core.remediation import Remediation
from ferroscope.failover.decision import Rules
from ferroscope.remote.command_fence import fenced
from ferroscope.runtime import system, wiring
from ferroscope.runtime.backend import Backend, check_bus, ensure_schema, open_backend, opened
from ferroscope.runtime.drivers import build_drivers, build_registry, close_drivers
from ferroscope.runtime.member import Membership, watched
from ferroscope.runtime.reload import Reload, Reread
from ferroscope.runtime.system import (
    EXIT_CUT_OFF,
    EXIT_FAULT,
    SetupError,
    StartError,
    SystemClock,
    Watchdog,
    notify,
    process_name,
)
from ferroscope.secrets.reader import SecretReader
from ferroscope.telemetry import members

if TYPE_CHECKING:
    from ferroscope.failover.client import Kubernetes
    from ferroscope.failover.controller import Failover, Looked
    from ferroscope.periodic.singleton import Singleton

ROLE: Final = "failover"
# The oldest server with the API versions that are used: Leases of kubelets, policy/v1beta1, storage/v1.
_OLDEST: Final = (1, 17)

_log = structlog.get_logger(__name__)


class BmcPower:
    """See ``failover.controller.MachinePower``: the drivers, with the nodes and credentials of the store."""

    def __init__(self, settings: Settings, backend: Backend, drivers: Mapping[str, Bmc], secrets: SecretReader) -> None:
        self._trusts_networks = bool(settings.drivers.bmc_networks)
        self._store = backend.store
        self._drivers = drivers
        self._secrets = secrets

    def is_off(self, machine: str) -> bool:
        node, driver = self._of(machine)
        return driver.get_power(node) is Power.OFF

    def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        node, driver = self._of(machine)
        with fenced(left):
            driver.set_power(node, Power.ON if on else Power.OFF)
        _log.info("power command sent", node=machine, on=on)

    def _of(self, machine: str) -> tuple[Node, Bmc]:
        try:
            node = self._store.read(lambda tx: tx.nodes.get(machine))
        except (NotFoundError, StoreUnavailableError) as exc:
            raise BmcError(str(exc), transient=True) from exc
        driver = self._drivers.get(node.driver)
        if driver is None:
            message = f"driver {node.driver!r} is not enabled: add it to [drivers] enabled"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_UNKNOWN)
        if not self._trusts_networks and bmc_access.unconfirmed(node) and bmc_access.secrets(node.driver_info):
            message = "the BMC address was reported by the machine itself: approve the node, or set it yourself"
            raise BmcError(message, transient=False, reason=Reason.BMC_NOT_ALLOWED)
        return self._secrets.revealed(node), driver


def rules_of(settings: FailoverSettings) -> Rules:
    """Return the options that decide."""
    return Rules(
        mode=settings.mode,
        dwell=settings.dwell,
        dwell_reporting=settings.dwell_reporting,
        silence=settings.silence,
        max_unhealthy=settings.max_unhealthy,
        storm_cooldown=settings.storm_cooldown,
        power_off=settings.power_off,
        power_on=settings.power_on,
        labels=settings.label_selector,
        namespaces=settings.label_namespaces,
    )


def connect(settings: FailoverSettings) -> Kubernetes:
    """Return the client of the configured cluster; ``SetupError``. It sends nothing."""
    try:
        from lightkube import KubeConfig
        from lightkube.config import client_adapter
        from lightkube.core.exceptions import ConfigError
    except ImportError as exc:
        raise SetupError(
            f"the role failover needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [kubernetes], for example: pip install '.[kubernetes]'",
        ) from exc
    from yaml import YAMLError

    from ferroscope.failover.client import Kubernetes

    try:
        found = KubeConfig.from_file(settings.kubeconfig) if settings.kubeconfig else KubeConfig.from_env()
        one = found.get(context_name=settings.context) if settings.context else found.get()
        http = None if one is None else client_adapter.Client(one, client_adapter.ConnectionParams())
    except (ConfigError, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        where = settings.kubeconfig or "the default kubeconfig"
        raise SetupError(
            f"{where} cannot be used: {exc or type(exc).__name__}", "correct [failover] kubeconfig"
        ) from exc
    if http is None:
        raise SetupError("the kubeconfig has no such context", "correct [failover] context")
    return Kubernetes(http, timeout=settings.request_timeout)


def check_cluster(kube: Kubernetes, settings: FailoverSettings) -> None:
    """Check version and rights; ``SetupError`` names a missing right, and the rule that grants it."""
    from ferroscope.failover.client import FORCING_RIGHTS, RIGHTS, KubernetesError, Right

    try:
        version = kube.version()
        if (0, 0) < version < _OLDEST:
            raise SetupError(f"Kubernetes {version[0]}.{version[1]} is too old: 1.17 or newer is needed")
        needed = RIGHTS + (() if settings.dry_run else FORCING_RIGHTS)
        if settings.mode == "label" and not settings.dry_run:
            needed += (Right("create", "", "pods/eviction"),)
        for right in needed:
            if not kube.may(right):
                raise SetupError(
                    f"Kubernetes forbids to {right.verb} {right.resource}",
                    f"add this rule to the ClusterRole of the controller: {right.rule}",
                )
    except KubernetesError as exc:
        if exc.status == 401:
            raise SetupError("Kubernetes rejected the credentials", "correct [failover] kubeconfig") from exc
        raise SetupError(f"cannot use the Kubernetes API: {exc}", "correct [failover] kubeconfig") from exc


def plan(settings: Settings) -> list[Looked]:
    """Return what would be done now about each failed node, and why not more; change nothing. ``StartError``."""
    try:
        with opened(settings) as backend, _controller(settings, backend, threading.Event(), dry_run=True) as (task, _):
            from ferroscope.failover.client import KubernetesError

            try:
                return task.look()
            except KubernetesError as exc:
                raise SetupError(f"cannot use the Kubernetes API: {exc}", "correct [failover] kubeconfig") from exc
    except (SetupError, StoreUnavailableError, OSError) as exc:
        raise StartError(str(exc)) from exc


def history(settings: Settings, limit: int) -> Sequence[Remediation]:
    """Return the newest remediations of the cluster; ``StartError``."""
    try:
        with opened(settings) as backend:
            return backend.store.read(lambda tx: tx.remediations.newest(settings.failover.cluster, limit))
    except (SetupError, StoreUnavailableError, OSError) as exc:
        raise StartError(str(exc)) from exc


@contextmanager
def _controller(
    settings: Settings,
    backend: Backend,
    stop: threading.Event,
    *,
    dry_run: bool,
    meter: Meter = SILENT,
    wake: threading.Event | None = None,
) -> Iterator[tuple[Failover, Kubernetes]]:
    """Build the controller with its drivers and its client, and close them at the end."""
    from ferroscope.failover.controller import Failover

    wanted, clock = settings.failover, SystemClock()
    kube = connect(wanted)
    try:
        check_cluster(kube, wanted)
        registry = build_registry(settings, stop)
        drivers = build_drivers(settings, stop, registry)
        secrets = SecretReader(backend.keys, wiring.build_resolver(settings, stop))
        task = Failover(
            kube,
            BmcPower(settings, backend, drivers, secrets),
            backend.store,
            rules_of(wanted),
            cluster=wanted.cluster,
            clock=clock,
            api_servers=wanted.api_servers,
            resync=wanted.resync,
            dry_run=dry_run,
            process=process_name(ROLE),
            meter=meter,
            wake=wake,
        )
        try:
            yield task, kube
        finally:
            task.close()
            close_drivers(drivers)
    finally:
        kube.close()


def run(settings: Settings, *, reread: Reread | None = None) -> int:
    """Run the controller until SIGTERM or SIGINT; return the exit code. ``StartError`` if it cannot start."""
    reload = Reload(settings, process_name(ROLE), reread)
    signal.pthread_sigmask(signal.SIG_BLOCK, system.AWAITED)
    stop, wake = threading.Event(), threading.Event()
    try:
        schema = ensure_schema(settings, upgrade=False)
        check_bus(settings)
        backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=False)
        try:
            dry_run = settings.failover.dry_run
            with _controller(settings, backend, stop, dry_run=dry_run, wake=wake) as (task, kube):
                return _serve(settings, backend, schema, task, kube, stop, wake, reload)
        finally:
            backend.close()
    except (SetupError, StoreUnavailableError, OSError) as exc:
        raise StartError(str(exc)) from exc


def _serve(
    settings: Settings,
    backend: Backend,
    schema: str,
    task: Failover,
    kube: Kubernetes,
    stop: threading.Event,
    wake: threading.Event,
    reload: Callable[[], Any],
) -> int:
    from ferroscope.failover.controller import NodeWatch

    membership = Membership(
        backend.lease_store,
        settings.worker,
        role=ROLE,
        stop=stop,
        clock=SystemClock(),
        describe=members.describer(settings, (ROLE,), schema),
        retries=settings.database.outage_retries,
        lost=watched(settings.database),
    )
    membership.start()
    singleton = _singleton(settings, backend, task, membership.member.id, stop)
    membership.watch("failover", lambda: singleton.status, lambda: singleton.problem)
    singleton.start()
    NodeWatch(kube, wake, stop).start()
    notify("READY=1")
    _log.info("ready", roles=[ROLE], cluster=settings.failover.cluster, dry_run=settings.failover.dry_run)
    watchdog, code = Watchdog(), EXIT_FAULT
    try:
        while not stop.is_set():
            watchdog.ping()
            received = system.wait(system.AWAITED, min(1.0, watchdog.interval))
            if received is signal.SIGHUP:
                reload()
            elif received is not None:
                _log.info("stopping", signal=received.name)
                code = 0
                break
    finally:
        notify("STOPPING=1")
        stop.set()
        backend.bus.publish(Channel.LEASES)
        singleton.join(settings.worker.graceful_timeout)
        membership.leave()
    return EXIT_CUT_OFF if membership.cut_off else code


def _singleton(settings: Settings, backend: Backend, task: Failover, member: str, stop: threading.Event) -> Singleton:
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.singleton import Singleton

    clock, profile = SystemClock(), settings.lease.numbers()
    return Singleton(
        lambda: task,  # type: ignore[arg-type, return-value]  # it needs more of its leadership than others
        Election(task.name, member, store=backend.lease_store, clock=clock, profile=profile),
        keep=LeaseRenewer(profile, clock),
        profile=profile,
        bus=backend.bus,
        clock=clock,
        stop=stop,
    )
