"""How the product gets the simulation's clock, threads, signals, database and BMCs for the time of a run.

Everything is put where the product takes it from (a module's name, a default argument) and taken
back afterwards. No line of the product is replaced but those that start threads, read clocks, open
sockets or wait for signals.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import structlog

import ferroscope.bus.local
import ferroscope.contracts.errors
import ferroscope.contrib.boot.pxe_filter.backends.base
import ferroscope.contrib.boot.pxe_filter.backends.nftables
import ferroscope.contrib.boot.pxe_filter.leader
import ferroscope.contrib.boot.pxe_filter.process
import ferroscope.contrib.kubernetes.api
import ferroscope.contrib.kubernetes.cluster
import ferroscope.contrib.kubernetes.failover.bmc_calls
import ferroscope.contrib.kubernetes.failover.client
import ferroscope.contrib.kubernetes.failover.controller
import ferroscope.contrib.kubernetes.failover.node_watch
import ferroscope.contrib.kubernetes.role
import ferroscope.db.connections
import ferroscope.db.engine
import ferroscope.db.mariadb
import ferroscope.db.postgresql
import ferroscope.db.store
import ferroscope.db.transaction
import ferroscope.hooks.pipeline
import ferroscope.leadership
import ferroscope.periodic.singleton
import ferroscope.periodic.timeouts
import ferroscope.runtime.backend
import ferroscope.runtime.member
import ferroscope.runtime.periodic_tasks
import ferroscope.runtime.process
import ferroscope.runtime.role_process
import ferroscope.runtime.supervisor
import ferroscope.runtime.system
import ferroscope.telemetry.members
import ferroscope.worker.loop
import ferroscope.worker.pool
import ferroscope.worker.slots
from ferroscope.config.options import DatabaseSettings, InspectorSettings, Settings
from ferroscope.db import migrate
from ferroscope.db.executor import database_of
from ferroscope.db.session import CompiledStatements
from ferroscope_client.core import values
from tests.simulation import ledger
from tests.simulation.cluster import HttpServer
from tests.simulation.database import dialects, driver
from tests.simulation.database.driver import Timeouts
from tests.simulation.database.sessions import Limits
from tests.simulation.kubernetes.bmc import drivers_of
from tests.simulation.kubernetes.cluster import cluster_of
from tests.simulation.machines import SimulatedBmc
from tests.simulation.pxe_filters import SimulatedNft
from tests.simulation.threads import Executor, Flag, NoMasks, Threading, Time, waiting

if TYPE_CHECKING:
    from tests.simulation.world import World

_product: Any = ferroscope
# Compiled statements depend on the dialect alone, and the dialects are the same in all runs.
_statements: dict[str, CompiledStatements] = {}
_from_settings = ferroscope.hooks.pipeline.from_settings


@functools.lru_cache(maxsize=8)
def _encoded_pipeline(settings: bytes) -> Any:
    return _from_settings(msgspec.json.decode(settings, type=InspectorSettings))


def _pipeline(settings: InspectorSettings) -> Any:
    """Return the pipeline of these settings, one for all runs: settings hold dicts, which no cache takes."""
    return _encoded_pipeline(msgspec.json.encode(settings))


@contextmanager
def installed(world: World) -> Iterator[None]:
    """Let the product run in ``world``."""
    kernel, threading = world.kernel, Threading(world.kernel)
    runtime, db, boot, kubernetes = _product.runtime, _product.db, _product.contrib.boot, _product.contrib.kubernetes
    with ExitStack() as stack:

        def put(where: Any, name: str, what: Any) -> None:
            stack.enter_context(mock.patch.object(where, name, what))

        def default(function: Any, **values: Any) -> None:
            stack.enter_context(mock.patch.dict(function.__kwdefaults__, values))

        for module in (
            _product.bus.local,
            _product.periodic.singleton,
            _product.worker.pool,
            _product.worker.slots,
            _product.leadership,
            runtime.member,
            runtime.process,
            runtime.supervisor,
            boot.pxe_filter.process,
            boot.pxe_filter.leader,
            kubernetes.role,
            kubernetes.failover.controller,
            kubernetes.failover.node_watch,
        ):
            put(module, "threading", threading)
        for module in (
            db.store,
            _product.leadership,
            boot.pxe_filter.backends.base,
            _product.worker.slots,
        ):
            put(module, "random", kernel.rng("product"))
        for module in (db.store, kubernetes.api, kubernetes.failover.client, runtime.member):
            put(module, "time", Time(kernel))
        put(db.store, "CompiledStatements", _compiled_once)
        # A new one, so that no task waits for another's.
        put(db.connections.ConnectionPool, "_wait", lambda _connections: None)
        put(db.store, "database_of", _simulated)
        put(_product.telemetry.members, "fingerprints", _fingerprints_once())
        for module in (runtime.process, boot.pxe_filter.process):
            put(module, "signal", NoMasks())
        for module in (runtime.process, boot.pxe_filter.process, runtime.role_process):
            put(module, "ensure_schema", lambda _settings, **_options: migrate.HEAD)
        put(runtime.system, "wait", world.signals.wait)
        for module in (boot.pxe_filter.process, runtime.role_process):
            put(module, "membership_of", _member(world, runtime.member.membership_of))
        nft = lambda _program, *, package, timeout: SimulatedNft(world, _here(world), timeout)  # noqa: E731
        put(boot.pxe_filter.backends.nftables, "HostCommand", nft)
        for module in (runtime.process, boot.pxe_filter.process, runtime.system, kubernetes.role):
            put(module, "SystemClock", lambda: kernel.me().owner.host.clock)
        for module in (runtime.process, runtime.role_process, kubernetes.role):
            put(module, "process_name", lambda _role: kernel.me().owner.name)
        put(runtime.system, "boot_id", lambda: kernel.me().owner.host.boot)
        put(runtime.process, "listeners", lambda _settings: [])
        put(runtime.process, "HttpServer", lambda app, _settings, _sockets, **_: HttpServer(world, _here(world), app))
        drivers = lambda _settings, _stop=None, _attached=None: {"sim": SimulatedBmc(world, _here(world))}  # noqa: E731
        put(runtime.process, "build_drivers", drivers)
        if world.clusters:
            put(runtime.role_process, "Reload", lambda *_: None)
            put(runtime.role_process, "check_bus", lambda _settings: None)
            put(kubernetes.role, "resolve", lambda host, _seconds: world.places.resolve(host))
            put(kubernetes.role, "build_drivers", lambda *_: drivers_of(world, _here(world).host))
            http = lambda *_, **__: cluster_of(world, _here(world).host).client(_here(world).host)  # noqa: E731
            put(kubernetes.cluster, "http_client", http)
            put(kubernetes.failover.bmc_calls, "ThreadPoolExecutor", lambda **_: Executor(kernel, "bmc"))
            put(kubernetes.failover.bmc_calls, "wait", waiting(kernel))
        put(runtime.periodic_tasks, "build_senders", lambda _settings, _stop: {})
        put(runtime.backend, "build_engine", lambda settings: _engine(world, settings))
        put(runtime.backend, "start_watcher", lambda _settings, *, bus, stop, poll_seconds: world.listen(bus))
        if world.scenario.ledgers:
            build, period = runtime.periodic_tasks.build_singletons, world.scenario.ledger_period
            put(runtime.periodic_tasks, "build_singletons", ledger.instead(build, world.scenario.ledgers, period))
        for error in (_product.contracts.errors.ClaimLostError, _product.contracts.errors.LeaseLostError):
            put(error, "__init__", _counted(world, error))
        put(_product.hooks.pipeline, "from_settings", _pipeline)
        default(_product.periodic.singleton.Singleton.__init__, new_flag=lambda: Flag(kernel))
        default(runtime.backend.open_backend, poll_seconds=world.scenario.queue_poll_seconds)
        default(_product.worker.services.Services.__init__, power_poll_seconds=world.scenario.power_poll_seconds)
        default(boot.pxe_filter.leader.PxeFilter.__init__, guard_seconds=world.scenario.filter_guard_seconds)
        for kept in (boot.pxe_filter.leader.PxeFilter, boot.pxe_filter.leader.FilterLease):
            default(kept.__init__, new_flag=lambda: Flag(kernel), new_thread=threading.Thread)
        default(_product.leadership.LeaseRenewer.__init__, new_flag=lambda: Flag(kernel), leave=lambda: _leave(world))
        put(uuid, "uuid4", _uuids(world))
        put(values, "urandom", kernel.rng("identifiers").randbytes)
        put(_product.worker.loop.Worker, "carry_out", _taken_over(world, _product.worker.loop.Worker.carry_out))
        put(_product.leadership.Leadership, "__init__", _watched(world, _product.leadership.Leadership.__init__))
        step, looked = _product.periodic.timeouts.Timeouts.step, world.checks.leaders.stepped
        put(_product.periodic.timeouts.Timeouts, "step", lambda task, lease: looked(step(task, lease)))
        stack.enter_context(_logging(world))
        yield


def _fingerprints_once() -> Callable[[Settings], dict[str, str]]:
    """A run has one ``Settings`` for all its processes."""
    fingerprints, known = _product.telemetry.members.fingerprints, list[tuple[Settings, dict[str, str]]]()

    def look(settings: Settings) -> dict[str, str]:
        if not known or known[0][0] is not settings:
            known[:] = [(settings, fingerprints(settings))]
        return known[0][1]

    return look


def _compiled_once(engine: Any) -> CompiledStatements:
    return _statements.setdefault(engine.dialect.name, CompiledStatements(engine))


def _simulated(family: str) -> Any:
    """Return what begins and ends transactions of the database; statements go to the simulated server."""
    real = database_of(family)
    return SimpleNamespace(opening=real.opening, closing=real.closing, send=driver.send)


def _here(world: World) -> Any:
    return world.process_of[world.kernel.me().owner]


def _member(world: World, membership: Any) -> Callable[..., Any]:
    """The filter's process joins under the name that the simulation has given it."""
    return lambda *arguments, **options: membership(*arguments, **options, ident=_here(world).member)


def _leave(world: World) -> None:
    """``os._exit(75)``."""
    world.count("processes that left because of lost leadership")
    _here(world).exit(75)
    world.kernel.park()


def _taken_over(world: World, carry_out: Callable[..., Any]) -> Callable[..., Any]:
    """A dispatcher claims; whoever carries the request out has its claim from then on."""

    def carried_out(self: Any, claim: Any, *arguments: Any) -> Any:
        world.checks.claims.taken_over(claim.token, kernel.me())
        return carry_out(self, claim, *arguments)

    kernel = world.kernel
    return carried_out


def _uuids(world: World) -> Callable[[], uuid.UUID]:
    rng = world.kernel.rng("identifiers")
    return lambda: uuid.UUID(int=rng.getrandbits(128), version=4)


def _counted(world: World, error: type[Exception]) -> Callable[..., None]:
    begin = error.__init__

    def counting(self: Exception, *arguments: Any) -> None:
        world.count("stale writes refused")
        begin(self, *arguments)

    return counting


def _watched(world: World, begin: Callable[..., None]) -> Callable[..., None]:
    def watched(leadership: Any, *arguments: Any, **options: Any) -> None:
        begin(leadership, *arguments, **options)
        world.checks.leaders.takes_leadership(leadership)

    return watched


def _engine(world: World, settings: DatabaseSettings) -> Any:
    """Return an engine as ``dialect.build_engine`` does, with the time-outs that it would ask for."""
    owner = world.kernel.me().owner
    limits, timeouts = limits_of(world.scenario.family, settings, owner.rate)
    world.connections += 1
    connect = driver.connector(
        world.server,
        world.kernel,
        owner=owner,
        link=owner.host.link,
        limits=limits,
        timeouts=timeouts,
        name=owner.name,
    )
    return dialects.engine(world.scenario.family, connect)


def limits_of(family: str, settings: DatabaseSettings, rate: float) -> tuple[Limits, Timeouts]:
    """Return what the product's own connection arguments ask of the server and of the client."""
    if family == "postgresql":
        arguments = _product.db.postgresql.session_arguments(settings)
        said = {name: int(value) / 1000 for name, value in re.findall(r"-c (\w+)=(\d+)", arguments["options"])}
        keepalive = arguments["keepalives_idle"] + arguments["keepalives_interval"] * arguments["keepalives_count"]
        return (
            Limits(
                lock=min(said["lock_timeout"], said["statement_timeout"]),
                idle=said["idle_in_transaction_session_timeout"],
            ),
            Timeouts(
                unsent=arguments["tcp_user_timeout"] / 1000 / rate,
                unanswered=keepalive / rate,
                connect=arguments["connect_timeout"] / rate,
            ),
        )
    arguments = _product.db.mariadb.session_arguments(settings)
    command = arguments["init_command"]
    lock = re.search(r"innodb_lock_wait_timeout=(\d+)", command)
    idle = re.search(r"idle_(?:write_)?transaction_timeout=(\d+)", command)
    return (
        Limits(lock=float(lock[1]) if lock else 50.0, idle=float(idle[1]) if idle else 0.0),
        Timeouts(
            unsent=arguments["write_timeout"] / rate,
            unanswered=arguments["read_timeout"] / rate,
            connect=arguments["connect_timeout"] / rate,
        ),
    )


@contextmanager
def _logging(world: World) -> Iterator[None]:
    """What the product logs becomes lines of the transcript."""

    def keep(_logger: object, method: str, event: Any) -> Any:
        if world.kernel.lines is not None and method not in ("debug", "info"):
            rest = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("event", "exc_info"))
            world.kernel.say(f"log {method}: {event.get('event')} {rest}".rstrip())
        if event.get("exc_info"):
            world.note_exception(event["exc_info"])
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[keep],
        wrapper_class=structlog.make_filtering_bound_logger(0 if world.kernel.lines is not None else 30),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
