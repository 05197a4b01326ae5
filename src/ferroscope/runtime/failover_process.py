"""The failover process without what it does: leading, the HTTP client, and checking the API server.

Of all processes of a cluster one leads and runs the task; the others wait. The HTTP client follows a kubeconfig; the
API server's version and the rights there are checked before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from typing import Any, Final

import structlog

from ferroscope.config.options import Settings
from ferroscope.config.setup_error import SetupError
from ferroscope.contracts.queue import Channel
from ferroscope.contracts.telemetry import SILENT
from ferroscope.remote.kubernetes import KubernetesClient, KubernetesError, Right
from ferroscope.runtime import system
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.metrics import build_metrics, serve_alone
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, SystemClock, notify
from ferroscope.telemetry.metrics import Metrics

ROLE: Final = "failover"

_log = structlog.get_logger(__name__)


def metrics_of(settings: Settings) -> Metrics | None:
    """Return what the process counts with; None if it has no port for it."""
    return build_metrics() if settings.metrics.port else None


def serve(
    settings: Settings,
    backend: Backend,
    schema: str,
    *,
    name: str,
    build: Callable[[], Any],
    stop: Event,
    reload: Callable[[], Any],
    metrics: Metrics | None,
    start: Callable[[], object],
) -> int:
    """Run the task (see ``periodic.singleton``) while leading, until SIGTERM or SIGINT; return the exit code.

    ``build`` makes the task of this name: a new one if a step of the last one hangs. ``start`` is called when the
    process has joined the members. ``SetupError``, ``OSError``: of the metrics port.
    """
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.singleton import Singleton

    clock, profile = SystemClock(), settings.lease.numbers()
    port = None if metrics is None else serve_alone(settings, metrics, backend.store, clock)
    membership = membership_of(settings, backend, schema, role=ROLE, roles=(ROLE,), clock=clock, stop=stop)
    membership.start()
    singleton = Singleton(
        build,
        Election(name, membership.member.id, store=backend.lease_store, clock=clock, profile=profile),
        keep=LeaseRenewer(profile, clock, meter=metrics or SILENT),
        profile=profile,
        bus=backend.bus,
        clock=clock,
        stop=stop,
    )
    membership.watch(ROLE, lambda: singleton.status, lambda: singleton.problem)
    singleton.start()
    start()
    notify("READY=1")
    _log.info("ready", roles=[ROLE], task=name)
    try:
        code = 0 if system.wait_for_stop(stop, reload) else EXIT_FAULT
    finally:
        notify("STOPPING=1")
        stop.set()
        backend.bus.publish(Channel.LEASES)
        singleton.join(settings.worker.graceful_timeout)
        membership.leave()
        if port is not None:
            port.stop(0)
    return EXIT_CUT_OFF if membership.cut_off else code


def http_client(kubeconfig: str, context: str) -> Any:
    """Return the HTTP client of the cluster that the configuration names; it sends nothing yet.

    Without a kubeconfig: that of the pod's service account, or the usual one. ``SetupError``.
    """
    try:
        from lightkube import KubeConfig
        from lightkube.config import client_adapter
        from lightkube.core.exceptions import ConfigError
    except ImportError as exc:
        raise SetupError(
            f"the role {ROLE} needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [kubernetes], for example: pip install '.[kubernetes]'",
        ) from exc
    from yaml import YAMLError

    try:
        found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        one = None if context and context not in found.contexts else found.get(context_name=context or None)
        http = None if one is None else client_adapter.Client(one, client_adapter.ConnectionParams())
    except (ConfigError, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        where = kubeconfig or "the default kubeconfig"
        why = " ".join(str(exc).split()) or type(exc).__name__  # YAML's errors have several lines
        raise SetupError(f"{where} cannot be used: {why}", "correct [failover] kubeconfig") from exc
    if http is None:
        raise SetupError(f"the kubeconfig has no context {context!r}", "correct [failover] context")
    return http


def check(kube: KubernetesClient, rights: Iterable[Right], *, oldest: tuple[int, int]) -> tuple[int, int]:
    """Check version and rights, and return the version; ``SetupError`` names the missing rights and their rules."""
    try:
        version = kube.version()
        if (0, 0) < version < oldest:
            needed = ".".join(map(str, oldest))
            raise SetupError(f"Kubernetes {version[0]}.{version[1]} is too old: {needed} or newer is needed")
        missing = kube.missing(rights)
    except KubernetesError as exc:
        raise unusable(exc) from exc
    if missing:
        forbidden = ", ".join(dict.fromkeys(f"{one.verb} {one.resource}{_where(one)}" for one in missing))
        roles = {"a Role there" if one.namespace else "the ClusterRole" for one in missing}
        rules = ", ".join(dict.fromkeys(one.rule for one in missing))
        raise SetupError(
            f"Kubernetes forbids to {forbidden}", f"add to {' and '.join(sorted(roles))} of the controller: {rules}"
        )
    return version


def _where(right: Right) -> str:
    return f" in namespace {right.namespace}" if right.namespace else ""


def unusable(exc: KubernetesError) -> SetupError:
    """Return the error of a cluster that cannot be used."""
    if exc.status == 401:
        return SetupError("Kubernetes rejected the credentials", "correct [failover] kubeconfig")
    return SetupError(f"cannot use the Kubernetes API: {exc}", "correct [failover] kubeconfig")
