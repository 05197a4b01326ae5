"""The process of a role that a package adds.

Of all processes with the role one leads and runs its task; the others wait.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from ferroscope.api.service.metrics_port import serve_alone
from ferroscope.bus.checks import check_bus
from ferroscope.config.options import Settings
from ferroscope.contracts.store import Channel
from ferroscope.contracts.telemetry import SILENT
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime import preflight
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.process import ServiceProcess
from ferroscope.runtime.roles import RoleContext, role_of
from ferroscope.runtime.system import Reload, Reread, process_name
from ferroscope.telemetry.metrics import build_metrics


def run(name: str, settings: Settings, *, reread: Reread | None = None) -> int:
    """Run the role until SIGTERM or SIGINT; return the exit code. ``StartError`` if it cannot start."""
    preflight.check(settings, (name,))
    return RoleProcess(settings, (name,), reload=Reload(settings, process_name(name), reread)).run()


class RoleProcess(ServiceProcess):
    """Has one role, which a package adds, instead of those of the service."""

    def _start(self) -> None:
        from ferroscope.leadership import Election, LeaseRenewer
        from ferroscope.periodic.singleton import Singleton

        settings, clock, stop, role = self._settings, self._clock, self._stop, self._role
        schema = ensure_schema(settings, upgrade=False)
        check_bus(settings)
        metrics = build_metrics() if settings.metrics.port else None
        meter = metrics or SILENT
        backend = open_backend(settings, clock=clock, stop=stop, listen=False, meter=meter)
        self._ending.append(backend.close)
        context = RoleContext(
            settings=settings, backend=backend, clock=clock, stop=stop, process=self.name, meter=meter
        )
        resources = ExitStack()
        work = resources.enter_context(role_of(role).build(context))
        self._ending.append(resources.close)
        if metrics is not None:
            port = serve_alone(settings, metrics, backend.store, clock)
            self._ending.append(lambda: port.stop(0))
        membership = membership_of(settings, backend, schema, role=role, roles=(role,), clock=clock, stop=stop)
        self._membership = membership
        membership.start()
        self._ending.append(membership.leave)
        profile = settings.lease.numbers()
        singleton = Singleton(
            work.make,
            Election(work.name, membership.member.id, store=backend.lease_store, clock=clock, profile=profile),
            keep=LeaseRenewer(profile, clock, meter=meter),
            profile=profile,
            bus=backend.bus,
            clock=clock,
            stop=stop,
            meter=meter,
        )
        membership.watch(role, lambda: singleton.status)
        membership.watch_problems(role, lambda: singleton.problems)
        singleton.start()
        self._ending.append(lambda: singleton.join(self._grace()))
        work.start()
        self._ending.append(partial(backend.bus.publish, Channel.LEASES))
        self._described = {"task": work.name}
