"""The process that keeps Machine objects of Kubernetes and nodes in step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from ferroscope.config.options import MachinesSettings, Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.telemetry import SILENT
from ferroscope.remote.kubernetes import KubernetesError
from ferroscope.runtime import controllers, system, wiring
from ferroscope.runtime.backend import Backend, check_bus, ensure_schema, open_backend
from ferroscope.runtime.externals import build_drivers, build_registry, close_drivers
from ferroscope.runtime.system import Reload, Reread, SetupError, StartError, SystemClock, process_name

if TYPE_CHECKING:
    from ferroscope.machines.client import MachineClient
    from ferroscope.machines.nodes import Nodes
    from ferroscope.telemetry.metrics import Metrics

ROLE: Final = "machines"
# The oldest server with custom resources as they are declared here: apiextensions.k8s.io/v1.
_OLDEST: Final = (1, 16)
_APPLY: Final = "kubectl apply -k deploy/kubernetes/crds"


def connect(settings: MachinesSettings) -> MachineClient:
    """Return the client of the configured cluster; ``SetupError``. It sends nothing."""
    http = controllers.http_client(settings.kubeconfig, settings.context, section=ROLE)
    from ferroscope.machines.client import MachineClient

    return MachineClient(http, timeout=settings.request_timeout)


def check_cluster(kube: MachineClient, settings: MachinesSettings) -> None:
    """Check version, rights and custom resources; ``SetupError`` says what is missing, and how to add it."""
    from ferroscope.machines.client import METAL3, rights
    from ferroscope.machines.objects import GROUP, PLURAL

    controllers.check(kube, rights(settings), oldest=_OLDEST, section=ROLE)
    try:
        if not kube.is_served(GROUP, PLURAL):
            raise SetupError(f"Kubernetes does not know the custom resource {PLURAL}.{GROUP}", f"install it: {_APPLY}")
        if settings.hardware_data and not kube.is_served(METAL3, "hardwaredata"):
            raise SetupError(
                f"Kubernetes does not know the custom resource hardwaredata.{METAL3}",
                "install it from Metal3, or set [machines] hardware_data to false",
            )
    except KubernetesError as exc:
        raise controllers.unusable(exc, ROLE) from exc


@contextmanager
def open_nodes(settings: Settings, backend: Backend, stop: threading.Event) -> Iterator[Nodes]:
    """Give access to the nodes, through the routes of the API in this process; ``SetupError``."""
    from ferroscope.api.auth.authentication import Authentication
    from ferroscope.api.auth.policy import NoPolicy
    from ferroscope.api.http.rate_limit import Callers
    from ferroscope.machines.nodes import Nodes

    registry = build_registry(settings, stop)
    drivers = build_drivers(settings, stop, registry)
    # Rights are those that Kubernetes gives to whoever writes Machines.
    context = wiring.build_context(
        settings,
        backend,
        drivers,
        Authentication(None, Callers(settings.api), SystemClock()),
        NoPolicy(),
        process=process_name(ROLE),
        stop=stop,
        registry=registry,
    )
    try:
        yield Nodes(context, settings.machines.cluster)
    finally:
        close_drivers(drivers)


def run(settings: Settings, *, reread: Reread | None = None) -> int:
    """Run the controller until SIGTERM or SIGINT; return the exit code. ``StartError`` if it cannot start."""
    reload = Reload(settings, process_name(ROLE), reread)
    signal.pthread_sigmask(signal.SIG_BLOCK, system.AWAITED)
    stop, wanted = threading.Event(), settings.machines
    try:
        kube = connect(wanted)
        try:
            check_cluster(kube, wanted)
            schema = ensure_schema(settings, upgrade=False)
            check_bus(settings)
            metrics = controllers.metrics_of(settings)
            backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=False, meter=metrics or SILENT)
            try:
                with open_nodes(settings, backend, stop) as nodes:
                    return _serve(settings, backend, schema, kube, nodes, stop, reload, metrics)
            finally:
                backend.close()
        finally:
            kube.close()
    except (SetupError, StoreUnavailableError, OSError) as exc:
        raise StartError(str(exc)) from exc


def _serve(
    settings: Settings,
    backend: Backend,
    schema: str,
    kube: MachineClient,
    nodes: Nodes,
    stop: threading.Event,
    reload: Reload,
    metrics: Metrics | None,
) -> int:
    from ferroscope.machines.client import Machines, MachineWatch
    from ferroscope.machines.controller import LEASE, MachineController

    wanted, machines = settings.machines, Machines()
    watches = [
        MachineWatch(kube, namespace, machines, stop, resync=wanted.resync) for namespace in wanted.namespaces or ("",)
    ]
    build = partial(MachineController, kube, nodes, machines, wanted, clock=SystemClock(), meter=metrics or SILENT)

    def start() -> None:
        for one in watches:
            one.start()

    return controllers.serve(
        settings, backend, schema, role=ROLE, name=LEASE + wanted.cluster, build=build, stop=stop, reload=reload,
        metrics=metrics, start=start,
    )  # fmt: skip
