"""The role failover, the controller of failed Kubernetes nodes; and its plan, for the command line."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from ferroscope import node_boot, transition
from ferroscope.config.errors import SetupError, StartError
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, ForcesOff, Power, ShowsBoot, TellsMachines
from ferroscope.contracts.errors import BmcError, NotFoundError, StoreError, StoreUnavailableError
from ferroscope.contracts.store import StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.contrib.kubernetes import cluster
from ferroscope.contrib.kubernetes.api import Right
from ferroscope.contrib.kubernetes.cluster import ROLE
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.contrib.kubernetes.options import FailoverSettings, patience_of
from ferroscope.core import bmc_access
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.model import Node
from ferroscope.core.remediation import Pause, Remediation
from ferroscope.db import Store, Transaction
from ferroscope.hardware.machine_identity import MachineIdentity, identify
from ferroscope.remote.command_fence import fence_commands
from ferroscope.remote.resolver import UnresolvedError, resolve
from ferroscope.runtime import wiring
from ferroscope.runtime.backend import Backend, open_for_command
from ferroscope.runtime.externals import build_attached, build_drivers, close_drivers
from ferroscope.runtime.roles import RoleContext, SingletonTask
from ferroscope.runtime.system import SystemClock, process_name
from ferroscope.secrets.references import SecretReader
from ferroscope_client.core import bmc_place
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import new_token

if TYPE_CHECKING:
    from ferroscope.contrib.kubernetes.failover.client import Kubernetes
    from ferroscope.contrib.kubernetes.failover.controller import Failover
    from ferroscope.contrib.kubernetes.failover.protection import NodeCheck
    from ferroscope.contrib.kubernetes.failover.reading import NodePlan

T = TypeVar("T")

# The oldest server with the API versions that are used: Leases of kubelets, policy/v1beta1, storage/v1.
_OLDEST: Final = (1, 17)
# The newest one whose changes to these APIs were read.
_NEWEST: Final = (1, 34)
_POWER_ON_GAP_SECONDS: Final = 1.0  # between two machines, if [worker] reboot_throttle says no more
_MAX_SKEW_SECONDS: Final = 30.0  # seconds between two clocks of which one is wrong

_log = structlog.get_logger(__name__)


class BmcPower:
    """See ``contrib.kubernetes.failover.bmc_calls.MachinePower``: drivers, nodes and credentials of the store."""

    def __init__(self, settings: Settings, backend: Backend, drivers: Mapping[str, Bmc], secrets: SecretReader) -> None:
        self._networks = settings.drivers.bmc_networks
        self._timeout = settings.drivers.command_timeout
        self._store = backend.store
        self._drivers = drivers
        self._secrets = secrets

    def state(self, machine: str) -> tuple[Power, bool | None]:
        node, driver = self._of(machine)
        if not isinstance(driver, ShowsBoot):
            return Power.of(driver.get_power(node)), None
        power, booting = driver.power_and_boot(node)
        return Power.of(power), booting if isinstance(booting, bool) else None

    def addresses(self, machine: str) -> frozenset[str]:
        node, _ = self._of(machine)
        if bmc_access.is_unconfirmed(node):
            return frozenset()
        addresses: set[str] = set()
        for _, host in bmc_place.hosts(node.driver_info):
            if bmc_place.is_address(host):
                addresses.add(host)
                continue
            with suppress(UnresolvedError):
                addresses.update(resolve(host, self._timeout))
        return frozenset(addresses)

    def identity(self, machine: str) -> MachineIdentity | None:
        node, driver = self._of(machine)
        if not isinstance(driver, TellsMachines):
            return None
        report = driver.machine(node)
        return identify({"serial_number": report.get("serial")}, report.get("uuid"), ())

    def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        node, driver = self._of(machine)
        accepted = True
        with fence_commands(left):
            if not on and isinstance(driver, ForcesOff):
                accepted = driver.force_off(node)
            else:
                driver.set_power(node, Power.ON if on else Power.OFF)
        if accepted:
            _log.info("power command sent", node=machine, on=on)
        else:
            _log.info("power-off rejected by the BMC, which reports that the machine is off", node=machine)

    def _of(self, machine: str) -> tuple[Node, Bmc]:
        try:
            node = self._store.read(lambda tx: tx.nodes.get(machine))
        except (NotFoundError, StoreUnavailableError) as exc:
            raise BmcError(str(exc), transient=True) from exc
        driver = self._drivers.get(node.driver)
        if driver is None:
            message = f"driver {node.driver!r} is not enabled: add it to [drivers] enabled"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_UNKNOWN)
        if why := bmc_access.withheld_reason(node, networks=self._networks):
            raise BmcError(why, transient=False, reason=Reason.BMC_UNCONFIRMED)
        return self._secrets.reveal(node), driver


def start_inspection(settings: Settings, drivers: Mapping[str, Bmc], tx: Transaction, machine: str) -> None:
    """Request an inspection of the machine, as the API does; ``IllegalEventError`` or ``Refused``."""
    node = tx.nodes.get(machine, lock=True)
    delivery = node_boot.delivery(settings, node, drivers.get(node.driver))
    if delivery is Delivery.BOOT_SCRIPT and not node_boot.has_macs(tx, node):
        delivery = Delivery.NONE  # the script is found by a MAC address
    transition.start(
        tx,
        node,
        inspection=str(uuid.uuid4()),
        process=process_name(ROLE),
        secret=None if delivery is None else new_token(),
        secret_delivery=delivery,
    )


def rules_of(settings: FailoverSettings, *, second_hand: bool = False, throttle: float = 0.0) -> FailoverRules:
    """Return the options that decide.

    ``second_hand``: the power states are those of an attached Ironic. ``throttle``: ``[worker] reboot_throttle``.
    """
    return FailoverRules(
        mode=settings.mode,
        dwell=settings.dwell,
        dwell_reporting=settings.dwell_reporting,
        silence=settings.silence,
        proof_age=settings.proof_age,
        max_unhealthy=settings.max_unhealthy,
        storm_cooldown=settings.storm_cooldown,
        power_off=settings.power_off,
        power_on=settings.power_on,
        inspect=settings.inspect,
        labels=settings.label_selector,
        namespaces=settings.label_namespaces,
        label_force=settings.label_force,
        second_hand=second_hand,
        quorum=settings.quorum,
        patience=tuple(map(patience_of, settings.patience)),
        reset_hung=settings.reset_hung,
        max_power_offs=settings.max_power_offs,
        power_on_gap=max(throttle, _POWER_ON_GAP_SECONDS),
    )


def connect(settings: FailoverSettings) -> Kubernetes:
    """Return the client of the configured cluster; ``SetupError``. It sends nothing."""
    http = cluster.http_client(settings.kubeconfig, settings.context)
    from ferroscope.contrib.kubernetes.failover.client import Kubernetes

    return Kubernetes(http, timeout=settings.request_timeout)


def check_cluster(kube: Kubernetes, settings: FailoverSettings) -> list[str]:
    """Check version and rights; return what an operator should know. ``SetupError`` names the missing rules."""
    from ferroscope.contrib.kubernetes.failover.client import FORCING_RIGHTS, RIGHTS

    needed = list(RIGHTS + (() if settings.dry_run else FORCING_RIGHTS))
    if settings.mode == "label" and not (settings.dry_run or settings.label_force):
        needed.append(Right("create", "", "pods/eviction"))
    version = cluster.check(kube, needed, oldest=_OLDEST)
    return remarks(version, kube.skew())


def remarks(version: tuple[int, int], skew: float) -> list[str]:
    """Return what an operator should know about a cluster of this version, whose clock is ``skew`` seconds ahead."""
    from ferroscope.contrib.kubernetes.failover.reading import TAINT_SINCE

    name = f"Kubernetes {version[0]}.{version[1]}"
    texts = []
    if version == (0, 0):
        texts.append("the API server does not say its version: pods and volumes are deleted one by one, not by a taint")
    elif version < TAINT_SINCE:
        texts.append(f"{name} does not act on the out-of-service taint: pods and volumes are deleted one by one")
    elif version > _NEWEST:
        newest = f"{_NEWEST[0]}.{_NEWEST[1]}"
        texts.append(f"{name} is newer than {newest}, the newest that this release knows; try it with --dry-run first")
    if abs(skew) > _MAX_SKEW_SECONDS:
        side = "ahead of" if skew > 0 else "behind"
        texts.append(
            f"the API server's clock is {abs(skew):.0f} s {side} this host's: no decision compares them, but "
            "certificates, tokens and the times of Events do; correct the clock that is wrong"
        )
    return texts


def plan(settings: Settings) -> list[NodePlan]:
    """Return what would be done now about each failed node, and why not more; change nothing. ``StartError``."""
    return _ask_controller(settings, lambda task: task.plan())


def check(settings: Settings) -> list[NodeCheck]:
    """Return for every node whether its failure would be dealt with, and why not; change nothing. ``StartError``."""
    return _ask_controller(settings, lambda task: task.check())


def _ask_controller(settings: Settings, ask: Callable[[Failover], list[T]]) -> list[T]:
    try:
        with (
            open_for_command(settings) as backend,
            _controller(settings, backend, threading.Event(), dry_run=True) as (build, _),
        ):
            from ferroscope.contrib.kubernetes.failover.client import KubernetesError

            task = build()
            try:
                return ask(task)
            except KubernetesError as exc:
                raise cluster.unusable(exc) from exc
            finally:
                task.close()
    except (SetupError, StoreError, OSError) as exc:
        raise StartError(str(exc)) from exc


def history(settings: Settings, limit: int) -> tuple[Sequence[Remediation], Pause | None]:
    """Return the newest remediations of the cluster, and whether they are paused; ``StartError``."""
    cluster_name = settings.part(FailoverSettings).cluster
    with _store(settings) as store:
        return store.read(
            lambda tx: (tx.remediations.newest(cluster_name, limit), tx.remediations.pause_of(cluster_name))
        )


def pause(settings: Settings, why: str, by: str) -> Sequence[str]:
    """Stop all remediation in the cluster until ``resume``; return the clusters that have controllers. ``StartError``.

    Nothing is paused if this cluster is none of them: its name may be mistyped.
    """
    from ferroscope.contrib.kubernetes.failover.controller import LEASE

    cluster_name = settings.part(FailoverSettings).cluster
    with _store(settings) as store:
        led = [lease.name.removeprefix(LEASE) for lease in store.read(lambda tx: tx.leases.list(LEASE))]
        if cluster_name in led:
            store.write(lambda tx: tx.remediations.pause(cluster_name, why, by))
        return led


def resume(settings: Settings) -> bool:
    """End the pause of the cluster; return whether there was one. ``StartError``."""
    cluster_name = settings.part(FailoverSettings).cluster
    with _store(settings) as store:
        return store.write(lambda tx: tx.remediations.resume(cluster_name))


@contextmanager
def _store(settings: Settings) -> Iterator[Store]:
    try:
        with open_for_command(settings) as backend:
            yield backend.store
    except (SetupError, StoreError, OSError) as exc:
        raise StartError(str(exc)) from exc


@contextmanager
def _controller(
    settings: Settings,
    backend: Backend,
    stop: StopFlag,
    *,
    dry_run: bool,
    meter: Meter = SILENT,
    wake: threading.Event | None = None,
) -> Iterator[tuple[Callable[[], Failover], Kubernetes]]:
    """Give what makes the controller, with drivers and a client that are closed at the end."""
    from ferroscope.contrib.kubernetes.failover.controller import Failover

    options, clock = settings.part(FailoverSettings), SystemClock()
    kube = connect(options)
    try:
        for remark in check_cluster(kube, options):
            _log.warning(remark, cluster=options.cluster)
        attached = build_attached(settings, stop)
        drivers = build_drivers(settings, stop, attached)
        reader = SecretReader(backend.keys, wiring.build_resolver(settings, stop))
        build = partial(
            Failover,
            kube,
            BmcPower(settings, backend, drivers, reader),
            backend.store,
            rules_of(options, second_hand=attached is not None, throttle=settings.worker.reboot_throttle),
            cluster=options.cluster,
            clock=clock,
            api_servers=options.api_servers,
            dry_run=dry_run,
            process=process_name(ROLE),
            meter=meter,
            wake=wake,
            inspect=partial(start_inspection, settings, drivers),
        )
        try:
            yield build, kube
        finally:
            close_drivers(drivers)
    finally:
        kube.close()


class FailoverRole:
    """See ``runtime.roles.Role``."""

    drives_bmcs: Final = True

    def check(self, settings: Settings) -> None:
        options = settings.part(FailoverSettings)
        cluster.http_client(options.kubeconfig, options.context).close()

    @contextmanager
    def build(self, context: RoleContext) -> Iterator[SingletonTask]:
        from ferroscope.contrib.kubernetes.failover.controller import LEASE
        from ferroscope.contrib.kubernetes.failover.node_watch import NodeWatch

        settings, wake = context.settings, threading.Event()
        options = settings.part(FailoverSettings)
        with _controller(
            settings, context.backend, context.stop, dry_run=options.dry_run, meter=context.meter, wake=wake
        ) as (build, kube):
            watch = NodeWatch(kube, wake, context.stop)
            yield SingletonTask(name=LEASE + options.cluster, make=build, start=watch.start)


FAILOVER: Final = FailoverRole()
