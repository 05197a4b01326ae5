"""One process with one or more roles, from start to graceful stop.

Signals are blocked and waited for, so no handler runs at an arbitrary point of the main thread.
"""

from __future__ import annotations

import gc
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import structlog

from ferroscope.affinity import Keeper
from ferroscope.api.service.metrics_port import serve as serve_metrics
from ferroscope.bus.checks import check_bus
from ferroscope.config.errors import SetupError, StartError
from ferroscope.config.options import ApiSettings, Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import StoreError
from ferroscope.contracts.store import Channel, Clock
from ferroscope.contracts.telemetry import Meter
from ferroscope.db import location
from ferroscope.db.prepare import ensure_schema
from ferroscope.http_server import tls
from ferroscope.http_server.server import (
    BACKLOG_CONNECTIONS,
    HttpServer,
    addresses,
    check_anonymous,
    enabled_apis,
    listeners,
)
from ferroscope.http_server.tls import Certificates
from ferroscope.http_server.wsgi import Application
from ferroscope.liveness.service import build_party_watch
from ferroscope.liveness.service import check as check_coordination
from ferroscope.runtime import periodic_tasks, preflight, system, wiring
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.externals import Attached, build_attached, build_drivers, close_drivers
from ferroscope.runtime.member import Membership, membership_of
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, Reload, Reread, SystemClock, notify, process_name
from ferroscope.telemetry.key_check import KeyCheck
from ferroscope.telemetry.metrics import Metrics, build_metrics
from ferroscope.telemetry.tracing import build_tracer
from ferroscope_client.core.finding import Finding

if TYPE_CHECKING:
    from ferroscope.periodic.singleton import Singleton

Role = Literal["api", "worker", "periodic"]

_log = structlog.get_logger(__name__)


class ServiceProcess:
    """Runs ``roles`` until SIGTERM or SIGINT; ``run`` returns the exit code. SIGHUP: ``reload``."""

    def __init__(
        self,
        settings: Settings,
        roles: tuple[str, ...],
        *,
        upgrade: bool = False,
        member: str = "",
        sockets: Sequence[socket.socket] | None = None,
        reload: Callable[[], object] = lambda: None,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings = settings
        self._roles = roles
        self._stop = threading.Event()  # start nothing new
        self._answered = threading.Event()  # running API calls must not wait any more, for example for an object store
        self._clock: Clock = SystemClock()
        self._ends_at: float | None = None
        self._draining = threading.Event()
        self._ending: list[Callable[[], object]] = []
        self._role = _name(roles)
        self.name = process_name(self._role)
        self._reload = reload
        self._ready = ready
        self._upgrade = upgrade
        self._member = member
        self._sockets = sockets
        self._membership: Membership | None = None
        self._server: HttpServer | None = None
        self._attached: Attached | None = None
        self._described: dict[str, str] = {}  # what the log says besides the roles

    def run(self) -> int:
        """Start, wait for a signal, stop: no new requests, running ones finish, leave the members.

        API calls, periodic steps and requests share one deadline, ``[worker] graceful_timeout``.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, system.AWAITED)
        try:
            self._start_or_explain()
            # Keep what exists now out of garbage collection, so that collections during large requests are short.
            gc.collect()
            gc.freeze()
            notify("READY=1")
            _log.info("ready", roles=list(self._roles), **self._described)
            self._ready()
            return self._wait()
        finally:
            notify("STOPPING=1")
            self._end()

    def _wait(self) -> int:
        if system.wait_for_stop(
            self._stop, self._reload, works=lambda: self._server is None or self._server.is_responsive()
        ):
            return 0
        membership = self._membership
        if membership is not None and membership.cut_off:
            return EXIT_CUT_OFF
        if membership is not None:
            membership.failed = True
        return EXIT_FAULT

    def _start_or_explain(self) -> None:
        try:
            self._start()
        except (StoreError, SetupError, OSError) as exc:
            raise StartError(str(exc)) from exc

    def _start(self) -> None:
        """Start what others depend on first; ``_end`` stops in reverse order."""
        settings, clock = self._settings, self._clock
        check_anonymous(settings, api="api" in self._roles)
        check_coordination(settings)
        sockets = self._sockets  # fail on a port in use before anything is started
        if sockets is None:
            sockets = listeners(settings.api) if "api" in self._roles else []
        certificates = tls.certificates(settings.api) if sockets or settings.metrics.port else None
        schema = ensure_schema(settings, upgrade=self._upgrade, completes=False)
        if not self._member:  # otherwise the supervisor has done this
            location.announce(settings.database, _log)
            check_bus(settings)
        meter = build_metrics()
        if settings.tracing.endpoint:
            meter.tracer = tracer = build_tracer(settings.tracing, self.name)
            self._ending.append(tracer.close)
        if certificates is not None:
            meter.certificate(settings.api.tls_certificate_file, lambda: certificates.expires.timestamp())
        backend = open_backend(settings, clock=clock, stop=self._stop, listen="worker" in self._roles, meter=meter)
        self._ending.append(backend.close)
        self._attached = build_attached(settings, self._stop)
        drivers = build_drivers(settings, self._stop, self._attached)
        self._ending.append(lambda: close_drivers(drivers))
        if settings.metrics.port:
            metrics = serve_metrics(settings, meter, backend.store, clock, certificates)
            self._ending.append(lambda: metrics.stop(0))
        membership = self._join_party(backend, schema, clock)
        if "worker" in self._roles:
            self._play_worker(backend, drivers, membership, clock, meter)
        if "periodic" in self._roles:
            self._play_periodic(backend, membership, clock, meter)
        self._ending.append(self._answered.set)
        if "api" in self._roles:
            self._play_api(backend, drivers, membership, meter, sockets, certificates)
            if self._sockets is None:  # otherwise the supervisor has logged it
                _announce(settings.api)
        for channel in (Channel.REQUESTS, Channel.LEASES):  # wake up the waiting threads
            self._ending.append(partial(backend.bus.publish, channel))

    def _join_party(self, backend: Backend, schema: str, clock: Clock) -> Membership:
        membership = membership_of(
            self._settings,
            backend,
            schema,
            role=self._role,
            roles=self._roles,
            clock=clock,
            stop=self._stop,
            ident=self._member,
        )
        self._membership = membership
        membership.watch_problem("secrets", KeyCheck(backend.lease_store, backend.keys, clock))
        membership.start()
        self._ending.append(membership.leave)
        return membership

    def _play_worker(
        self, backend: Backend, drivers: Mapping[str, Bmc], membership: Membership, clock: Clock, meter: Meter
    ) -> None:
        settings = self._settings
        pool = wiring.build_pool(
            settings,
            backend,
            drivers,
            clock=clock,
            stop=self._stop,
            member=membership.member.id,
            process=self.name,
            claim_valid_for=membership.claim_valid_for,
            meter=meter,
            attached=self._attached,
        )
        pool.start()
        for name, status in pool.loops().items():
            membership.watch(name, status, pool.problems()[name])
        membership.publish("lanes", pool.lanes)
        membership.publish("drivers", lambda: sorted(drivers))
        self._ending.append(lambda: pool.join(self._grace()))

    def _play_periodic(self, backend: Backend, membership: Membership, clock: Clock, meter: Meter) -> None:
        settings, member = self._settings, membership.member.id
        party = build_party_watch(settings, backend.bus, member=member, clock=clock, stop=self._stop)
        singletons = periodic_tasks.build_singletons(
            settings,
            backend,
            clock=clock,
            stop=self._stop,
            member=member,
            process=self.name,
            meter=meter,
            not_now=membership.in_doubt,
            attached=self._attached,
            party=party,
        )
        if party is not None:
            party.start()
            membership.watch("coordination", lambda: party.status, lambda: party.problem)
            membership.publish("party", lambda: party.member_count)
            self._ending.append(lambda: party.join(settings.coordination.session_timeout))
        for singleton in singletons:
            singleton.start()
            membership.watch(singleton.task.name, _status_of(singleton), _problem_of(singleton))
        self._ending.append(lambda: self._join(singletons))

    def _play_api(
        self,
        backend: Backend,
        drivers: Mapping[str, Bmc],
        membership: Membership,
        meter: Metrics,
        sockets: Sequence[socket.socket],
        certificates: Certificates | None,
    ) -> None:
        settings = self._settings
        app = self._build_app(backend, drivers, membership, meter)
        server = HttpServer(
            app,
            settings.api,
            sockets,
            certificates=certificates,
            failed=self._stop.set,
            decides=settings.api.auth_strategy != "noauth",
        )
        server.start()
        membership.watch(
            "http",
            lambda: "draining: waiting for load balancers" if self._draining.is_set() else "serving requests",
            lambda: None if certificates is None else certificates.problem(),
        )
        self._ending.append(lambda: server.stop(self._grace()))
        self._server = server

    def _build_app(
        self, backend: Backend, drivers: Mapping[str, Bmc], membership: Membership, meter: Metrics
    ) -> Application:
        return wiring.build_app(
            self._settings,
            backend,
            drivers,
            process=self.name,
            draining=self._draining,
            meter=meter,
            stop=self._answered,
            heartbeat_failure=membership.read_write_failure,
            attached=self._attached,
        )

    def _drain(self, server: HttpServer) -> None:
        """Fail the health check, and serve until load balancers have noticed; a second signal ends it."""
        self._draining.set()
        server.drain()
        if not self._stop.is_set():
            system.wait(system.STOPS, self._settings.api.drain_delay)

    def _grace(self) -> float:
        """Return the seconds left of the graceful timeout, which is shared by everything that is running."""
        now = self._clock.monotonic()
        if self._ends_at is None:
            self._ends_at = now + self._settings.worker.graceful_timeout
        return max(0.0, self._ends_at - now)

    def _join(self, singletons: Sequence[Singleton]) -> None:
        for singleton in singletons:  # one that hangs longer than its lease no longer leads
            singleton.join(min(self._settings.lease.numbers().ttl, self._grace()))

    def _end(self) -> None:
        if self._server is not None and self._settings.api.drain_delay:
            self._drain(self._server)
        self._stop.set()
        while self._ending:
            self._ending.pop()()


def run(
    settings: Settings,
    roles: tuple[Role, ...],
    *,
    upgrade: bool = False,
    processes: int = 0,
    reread: Reread | None = None,
    ready: Callable[[], object] = lambda: None,
) -> int:
    """Run ``roles`` in this process, or in ``processes`` children under a supervisor; return the exit code.

    ``reread`` as in ``Reload``; ``ready`` is called once the only process is. ``StartError`` if it cannot start.
    """
    preflight.check(settings, roles)
    if not processes:
        return _play(settings, roles, reread, upgrade=upgrade, ready=ready)
    from ferroscope.runtime.supervisor import Supervisor

    reload = Reload(settings, process_name(f"{roles[0]} supervisor"), reread)
    try:
        sockets = listeners(settings.api) if "api" in roles else []
        ensure_schema(settings, upgrade=upgrade, completes=False)
        location.announce(settings.database, _log)
        check_bus(settings)
    except (StoreError, SetupError, OSError) as exc:
        raise StartError(str(exc)) from exc
    if sockets:
        for listener in sockets:  # clients that connect while no child runs are served by the next one
            listener.listen(BACKLOG_CONNECTIONS)
        _announce(settings.api)
    wiring.preload(roles)

    def play(member: str) -> int:
        return _play(reload.settings, roles, reread, member=member, sockets=sockets)

    return Supervisor(settings, processes, play, reload).run()


def _play(
    settings: Settings,
    roles: tuple[Role, ...],
    reread: Reread | None,
    *,
    ready: Callable[[], object] = lambda: None,
    **options: Any,
) -> int:
    reload, ended = Reload(settings, process_name(_name(roles)), reread), threading.Event()

    def start_keeper() -> None:
        Keeper(ended).start()  # not before: its thread, too, must leave the signals to the main one
        ready()

    try:
        return ServiceProcess(settings, roles, reload=reload, ready=start_keeper, **options).run()
    finally:
        ended.set()


def _name(roles: tuple[str, ...]) -> str:
    return "all" if len(roles) == 3 else roles[0]


def _status_of(loop: Singleton) -> Callable[[], str]:
    return lambda: loop.status


def _problem_of(singleton: Singleton) -> Callable[[], Finding | None]:
    return lambda: singleton.problem


def _announce(settings: ApiSettings) -> None:
    """Log where the APIs listen, and warn if other hosts can reach them without authentication."""
    hosts = [f"[{host}]" if ":" in host else host for host in addresses(settings.host)]
    places = {name: ",".join(f"{host}:{port}" for host in hosts) for _, name, port in enabled_apis(settings)}
    _log.info("listens", **places)
    if page := settings.page_url:
        _log.info("web page", url=page)
    if places and not settings.loopback_only and settings.auth_strategy == "noauth":
        _log.warning(
            "authentication is disabled: any client that can reach these ports has full control; "
            "set [api] auth_strategy",
            host=",".join(settings.host),
        )
