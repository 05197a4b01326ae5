"""The process of a role that is one task: of all such processes one leads and runs it, the others wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import structlog

from ferroscope.config.options import Settings
from ferroscope.contracts.queue import Channel
from ferroscope.contracts.telemetry import SILENT
from ferroscope.runtime import system
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.metrics import build_metrics, serve_alone
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, SystemClock, notify
from ferroscope.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)


def metrics_of(settings: Settings) -> Metrics | None:
    """Return what the process counts with; None if it has no port for it."""
    return build_metrics() if settings.metrics.port else None


def serve(
    settings: Settings,
    backend: Backend,
    schema: str,
    *,
    role: str,
    name: str,
    build: Callable[[], Any],
    stop: Event,
    reload: Callable[[], Any],
    metrics: Metrics | None,
    start: Callable[[], object] = lambda: None,
) -> int:
    """Run the task (see ``periodic.singleton``) while leading, until SIGTERM or SIGINT; return the exit code.

    ``build`` makes the task of this name: a new one if a step of the last one hangs. ``start`` is called when the
    process has joined the members. ``SetupError``, ``OSError``: of the metrics port.
    """
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.singleton import Singleton

    clock, profile = SystemClock(), settings.lease.numbers()
    port = None if metrics is None else serve_alone(settings, metrics, backend.store, clock)
    membership = membership_of(settings, backend, schema, role=role, roles=(role,), clock=clock, stop=stop)
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
    membership.watch(role, lambda: singleton.status, lambda: singleton.problem)
    singleton.start()
    start()
    notify("READY=1")
    _log.info("ready", roles=[role], task=name)
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
