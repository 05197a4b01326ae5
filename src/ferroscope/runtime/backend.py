"""A process's connections to the database: the store, its queue and its bus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import structlog
from sqlalchemy import Engine

from ferroscope.bus.checks import require_kombu
from ferroscope.bus.local import LocalBus
from ferroscope.bus.postgresql import start_watcher
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.store import Bus, Clock, Publisher, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.db import POLL_SECONDS, Queue, Store, migrate
from ferroscope.db.connections import Memory
from ferroscope.db.engine import build_engine
from ferroscope.db.prepare import ensure_schema, explained
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import KeyRing, key_ring

if TYPE_CHECKING:
    from ferroscope.bus.rabbitmq import RabbitmqBus

_log = structlog.get_logger(__name__)


class Backend(msgspec.Struct, frozen=True):
    """One process's connections to the database.

    ``lease_store`` has separate connections, so that heartbeats and renewals never wait for a busy pool. ``bus`` is for
    this process's threads. The stores also publish to ``rabbitmq``, if there is one.
    """

    engine: Engine
    store: Store
    lease_engine: Engine
    lease_store: Store
    queue: Queue
    bus: Bus
    keys: KeyRing
    memory: Memory
    rabbitmq: RabbitmqBus | None = None

    def describe(self) -> tuple[str, str | None, str]:
        """Return the database kind, its schema version, and the required version; ``StoreUnavailableError``."""
        return self.engine.dialect.name, migrate.current(self.engine), migrate.HEAD

    def close(self) -> None:
        self.bus.close()
        if self.rabbitmq is not None:
            self.rabbitmq.close()
        self.engine.dispose()
        self.lease_engine.dispose()


def open_backend(
    settings: Settings,
    *,
    clock: Clock,
    stop: StopFlag,
    listen: bool,
    meter: Meter = SILENT,
    poll_seconds: float = POLL_SECONDS,
) -> Backend:
    """Build the backend; ``listen``: receive notifications from other processes. ``SetupError``."""
    database, leases = _limit_timeouts(settings)
    with explained():
        engine = build_engine(database)
    bus, keys, memory = LocalBus(), key_ring(settings), Memory(clock)
    memory.watch(engine)
    rabbitmq = _rabbitmq(settings, bus, stop)
    published: Publisher = bus if rabbitmq is None else rabbitmq.publisher
    store = Store(
        engine,
        settings=database,
        bus=published,
        clock=clock,
        stop=stop,
        meter=meter,
        keys=keys,
        subscriptions=settings.notifications.subscriptions(),
        memory=memory,
    )
    queue = Queue(store, engine, bus=bus, clock=clock, poll_seconds=poll_seconds)
    if listen:
        start_watcher(database, bus=bus, stop=stop, poll_seconds=poll_seconds)
        if rabbitmq is not None:
            rabbitmq.listen()
    lease_engine = build_engine(leases)
    memory.watch(lease_engine)
    lease_store = Store(
        lease_engine, settings=leases, bus=published, clock=clock, stop=stop, meter=meter, memory=memory
    )
    return Backend(
        engine=engine,
        store=store,
        lease_engine=lease_engine,
        lease_store=lease_store,
        queue=queue,
        bus=bus,
        keys=keys,
        rabbitmq=rabbitmq,
        memory=memory,
    )


def _rabbitmq(settings: Settings, local: LocalBus, stop: StopFlag) -> RabbitmqBus | None:
    """Return the connection to ``[bus]``, None if it is not configured; ``SetupError``."""
    broker = settings.bus.broker()
    if broker is None:
        return None
    from ferroscope.bus.rabbitmq import RabbitmqBus

    require_kombu("[bus] transport_url")
    return RabbitmqBus(broker, settings.bus.exchange, local=local, stop=stop)


@contextmanager
def open_for_command(settings: Settings) -> Iterator[Backend]:
    """Open the backend for a command, on a schema that is up to date; errors as of ``ensure_schema``."""
    ensure_schema(settings, upgrade=False)
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    try:
        yield backend
    finally:
        backend.close()


def _limit_timeouts(settings: Settings) -> tuple[DatabaseSettings, DatabaseSettings]:
    """Return the settings of the work's connections, and those of the connections for leases and heartbeats.

    A leader that is stopped inside a transaction must not block its successor, so no session waits longer than a leader
    trusts its lease. A renewal on a dead connection must fail while there is time for another one.
    """
    database, profile = settings.database, settings.lease.numbers()
    work = min(database.statement_timeout, max(1.0, profile.ttl - profile.margin))
    renewal = min(work, max(1.0, profile.ttl / 3))
    return msgspec.structs.replace(database, statement_timeout=work), msgspec.structs.replace(
        database,
        pool_size=2,
        statement_timeout=renewal,
        connect_timeout=min(database.connect_timeout, max(2, int(renewal))),
    )
