"""Roles that packages add with an entry point in the group ``ferroscope.roles``: a process of its own for each.

Its value is a ``Role``. Of all processes with the role one leads and runs its task; the others wait. Everything else is
here: signals, the backend, the heartbeat, the lease, the metrics port.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
import structlog

from ferroscope.config.added import added
from ferroscope.config.options import Settings
from ferroscope.config.plugins import PluginError
from ferroscope.config.setup_error import SetupError
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.queue import Channel, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.runtime import preflight, system
from ferroscope.runtime.backend import Backend, check_bus, ensure_schema, open_backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.metrics import build_metrics, serve_alone
from ferroscope.runtime.system import (
    EXIT_CUT_OFF,
    EXIT_FAULT,
    Reload,
    Reread,
    StartError,
    SystemClock,
    notify,
    process_name,
)
from ferroscope.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)


class RoleContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a role is built of. ``stop`` is set when the process stops, and interrupts everything that waits."""

    settings: Settings
    backend: Backend
    clock: Clock
    stop: StopFlag
    process: str
    meter: Meter = SILENT


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """``name``: of the lease of which one process has to be the holder. ``make``: makes the task of this name (see
    ``periodic.singleton``), and a new one if a step of the last one hangs. ``start``: called once the process is a
    member.
    """

    name: str
    make: Callable[[], Any]
    start: Callable[[], object] = lambda: None


class Role(Protocol):
    """What a process with this role does."""

    drives_bmcs: bool
    """Whether it needs the drivers, and what resolves their secrets, to be in order."""

    def check(self, settings: Settings) -> None:
        """Reject settings that cannot be used, before anything is opened; ``SetupError``."""

    def build(self, context: RoleContext) -> AbstractContextManager[Work]:
        """Give the work, and close at the end what it needs; ``SetupError``, ``StoreUnavailableError``, ``OSError``."""


class AddTasks(Protocol):
    """What a package adds to the periodic tasks, with an entry point in the group ``ferroscope.tasks``."""

    def __call__(self, context: RoleContext, /) -> Iterable[Callable[[], Any]]:
        """Yield what makes each task (see ``periodic.singleton``); none if nothing is to be done."""


def role_of(name: str) -> Role:
    """Return the role that a package adds; ``SetupError``."""
    try:
        found: Role | None = added("ferroscope.roles").get(name)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    if found is None:
        raise SetupError(f"no installed package has the role {name!r}", "install the package that adds it")
    return found


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
