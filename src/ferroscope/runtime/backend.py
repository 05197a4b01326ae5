"""A process's connections to the database: the store, its queue and its bus."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from sqlalchemy import Engine

from ferroscope.bus.local import LocalBus
from ferroscope.bus.postgresql import start_watcher
from ferroscope.config.errors import SetupError
from ferroscope.config.followed import FileError
from ferroscope.config.messaging_options import Broker
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.queue import Bus, Clock, Publisher, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.db import migrate
from ferroscope.db.engine import build_engine
from ferroscope.db.queue import Queue
from ferroscope.db.replication import Memory
from ferroscope.db.store import Store
from ferroscope.db.url import DatabaseUrlError, checked
from ferroscope.runtime import database_file
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import KeyRing, place

if TYPE_CHECKING:
    from ferroscope.bus.rabbitmq import RabbitmqBus

_log = structlog.get_logger(__name__)

# Time limit of one statement of a migration, in seconds.
_MIGRATION: Final = 6 * 3600.0


class SchemaError(SetupError):
    """The database's schema does not match this release."""


class Backend(msgspec.Struct, frozen=True):
    """One process's connections to the database.

    ``lease_store`` has separate connections, so that heartbeats and renewals never wait for a busy pool. ``bus`` is for
    this process's threads; what the stores publish goes to ``rabbitmq``, too, if there is one.
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


def open_backend(settings: Settings, *, clock: Clock, stop: StopFlag, listen: bool, meter: Meter = SILENT) -> Backend:
    """Build the backend; ``listen``: receive notifications from other processes. ``SetupError``."""
    database, leases = _limited(settings)
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
    queue = Queue(store, engine, bus=bus, clock=clock, poll_interval=database.poll_interval)
    if listen:
        start_watcher(database, bus=bus, stop=stop)
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
    """Return the other side of ``[bus]``, None if it is not configured; ``SetupError``."""
    broker = settings.bus.broker()
    if broker is None:
        return None
    from ferroscope.bus.rabbitmq import RabbitmqBus

    require_kombu("[bus] transport_url")
    return RabbitmqBus(broker, settings.bus.exchange, local=local, stop=stop)


def require_kombu(option: str) -> None:
    """``SetupError`` naming the option if the extra for RabbitMQ is not installed."""
    try:
        import kombu  # noqa: F401
    except ImportError as exc:
        raise SetupError(
            f"{option} needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [rabbitmq], for example: pip install '.[rabbitmq]'",
        ) from exc


def check_bus_setup(broker: Broker) -> None:
    """Check the package and the files that RabbitMQ needs; ``SetupError``."""
    from ferroscope.remote.rabbitmq import check_files

    require_kombu("[bus] transport_url")
    try:
        check_files(broker)
    except OSError as exc:  # also ssl.SSLError
        reason = "no valid certificate or key" if isinstance(exc, ssl.SSLError) else exc.strerror
        raise SetupError(
            f"[bus] a file for TLS cannot be used: {reason}",
            "correct tls_ca_file, tls_certificate_file and tls_key_file",
        ) from exc


def check_bus(settings: Settings) -> None:
    """Check that RabbitMQ, if configured, accepts us; ``SetupError``. It may be down for now."""
    broker = settings.bus.broker()
    if broker is None:
        return
    from ferroscope.remote.rabbitmq import BrokerError, check

    check_bus_setup(broker)
    try:
        unavailable = check(broker)
    except BrokerError as exc:
        raise SetupError(
            f"[bus] transport_url: RabbitMQ refuses the connection: {exc}", "see ferroscope doctor"
        ) from exc
    if unavailable is not None:
        _log.warning("RabbitMQ is unavailable; polling until it is back", error=str(unavailable))


def check_url(settings: Settings) -> None:
    """Check ``[database] connection``, and the package that it needs, without connecting; ``SetupError``."""
    with explained():
        build_engine(settings.database).dispose()


def key_ring(settings: Settings) -> KeyRing:
    """Return the keys of ``[secrets] key_file``; ``SetupError``: without its keys, a process must not start."""
    name = settings.secrets.key_file
    try:
        return KeyRing(place(name) if name else None)
    except FileError as exc:
        raise SetupError(str(exc), exc.advice) from exc


@contextmanager
def opened(settings: Settings) -> Iterator[Backend]:
    """Open the backend for a command, on a schema that is up to date; errors as of ``ensure_schema``."""
    ensure_schema(settings, upgrade=False)
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    try:
        yield backend
    finally:
        backend.close()


def _limited(settings: Settings) -> tuple[DatabaseSettings, DatabaseSettings]:
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


def ensure_schema(settings: Settings, *, upgrade: bool) -> str:
    """Check the schema, or upgrade it; return its version.

    ``SetupError``: the URL is invalid. ``SchemaError``: the schema does not match. ``StoreUnavailableError``: the
    database cannot be reached. ``OSError``: the default directory cannot be created.
    """
    database = settings.database
    if upgrade:  # a migration may take long
        database_file.make_directory(database)
        database = msgspec.structs.replace(database, statement_timeout=_MIGRATION)
    elif file := database_file.missing(database):
        raise SchemaError(f"the database file {file} does not exist", "run: ferroscope db upgrade")
    with explained():
        engine = build_engine(database)
    try:
        found = migrate.current(engine)
        if found == migrate.HEAD:
            return found
        if not upgrade or is_foreign(found):
            raise SchemaError(*schema_problem(found))
        migrate.upgrade(engine)
        return migrate.HEAD
    finally:
        engine.dispose()


def prepared(connection: str, ask_password: Callable[[], str]) -> str:
    """Return the URL, with a password if it lacks one, after the tables were created on a database server.

    SQLite's file is left to the service, whose user must own it. Raises what ``ensure_schema`` raises.
    """
    with explained():
        url = checked(connection)
    if url.get_backend_name() == "sqlite":
        return connection
    if url.username and url.password is None:
        url = url.set(password=ask_password() or None)
    complete = url.render_as_string(hide_password=False)
    ensure_schema(Settings(database=DatabaseSettings(connection=complete)), upgrade=True)
    return complete


def is_foreign(found: str | None) -> bool:
    """Whether this release cannot upgrade the schema, because a newer one created it."""
    return found is not None and not (found.isdigit() and found <= migrate.HEAD)


def schema_problem(found: str | None) -> tuple[str, str]:
    """Return what is wrong with a schema of another release, and what to do."""
    if found is not None and found.startswith(migrate.COPYING):
        return (
            "the database holds an incomplete copy of another one",
            "repeat 'ferroscope db copy', which starts over; it may still be running",
        )
    if is_foreign(found):
        return (
            f"the database has schema {found}, which belongs to a newer release; this release needs {migrate.HEAD}",
            "a downgrade is not supported: install the newer release, or restore the backup from before the upgrade",
        )
    where = "is empty" if found is None else f"has schema {found}"
    return f"the database {where}, this release needs {migrate.HEAD}", "run: ferroscope db upgrade"


@contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except DatabaseUrlError as exc:
        raise SetupError(f"invalid [database] connection: {exc.summary}", exc.advice) from exc
    except ImportError as exc:
        extra = "mysql" if exc.name == "pymysql" else "postgresql"
        raise SetupError(
            f"[database] connection needs the Python package {exc.name}, which is not installed",
            f"install Ferroscope with [{extra}], for example: pip install '.[{extra}]'",
        ) from exc
