"""The process of a role that a package adds.

Of all processes with the role one leads and runs its task; the others wait. Everything but the task is here: signals,
the backend, the heartbeat, the lease, the metrics port.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import structlog

from ferroscope.api.service.metrics_port import serve_alone
from ferroscope.bus.checks import check_bus
from ferroscope.config.errors import SetupError, StartError
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.queue import Channel
from ferroscope.contracts.telemetry import SILENT
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime import preflight, system
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.roles import RoleContext, Work, role_of
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, Reload, Reread, SystemClock, notify, process_name
from ferroscope.telemetry.metrics import Metrics, build_metrics

_log = structlog.get_logger(__name__)


def run(name: str, settings: Settings, *, reread: Reread | None = None) -> int:
    """Run the role until SIGTERM or SIGINT; return the exit code. ``StartError`` if it cannot start."""
    preflight.check(settings, (name,))
    reload = Reload(settings, process_name(name), reread)
    signal.pthread_sigmask(signal.SIG_BLOCK, system.AWAITED)
    stop, clock = threading.Event(), SystemClock()
    try:
        schema = ensure_schema(settings, upgrade=False)
        check_bus(settings)
        metrics = build_metrics() if settings.metrics.port else None
        backend = open_backend(settings, clock=clock, stop=stop, listen=False, meter=metrics or SILENT)
        try:
            context = RoleContext(
                settings=settings,
                backend=backend,
                clock=clock,
                stop=stop,
                process=process_name(name),
                meter=metrics or SILENT,
            )
            with role_of(name).build(context) as work:
                return _serve(name, context, work, schema, reload, metrics, stop)
        finally:
            backend.close()
    except (SetupError, StoreUnavailableError, OSError) as exc:
        raise StartError(str(exc)) from exc


def _serve(
    role: str,
    context: RoleContext,
    work: Work,
    schema: str,
    reload: Callable[[], Any],
    metrics: Metrics | None,
    stop: threading.Event,
) -> int:
    """Run the task while leading, until a signal; return the exit code. ``SetupError``, ``OSError``: of the metrics."""
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.singleton import Singleton

    settings, backend, clock = context.settings, context.backend, context.clock
    profile = settings.lease.numbers()
    port = None if metrics is None else serve_alone(settings, metrics, backend.store, clock)
    membership = membership_of(settings, backend, schema, role=role, roles=(role,), clock=clock, stop=stop)
    membership.start()
    singleton = Singleton(
        work.make,
        Election(work.name, membership.member.id, store=backend.lease_store, clock=clock, profile=profile),
        keep=LeaseRenewer(profile, clock, meter=metrics or SILENT),
        profile=profile,
        bus=backend.bus,
        clock=clock,
        stop=stop,
    )
    membership.watch(role, lambda: singleton.status, lambda: singleton.problem)
    singleton.start()
    work.start()
    notify("READY=1")
    _log.info("ready", roles=[role], task=work.name)
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
