"""A process's connections to the database: the store, its queue and its bus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from sqlalchemy import Engine

from ferroscope.bus.local import LocalBus
from ferroscope.bus.postgresql import start_watcher
from ferroscope.config.followed import FileError
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Bus, Clock, Queue, StopFlag
from ferroscope.contracts.store import Store
from ferroscope.db import migrate
from ferroscope.db.engine import DatabaseUrlError, build_engine
from ferroscope.db.queue import SqlQueue
from ferroscope.db.transaction import SqlStore
from ferroscope.runtime import member
from ferroscope.runtime.system import SetupError, SystemClock
from ferroscope.secrets.keys import KeyRing, place

# Time limit of one statement of a migration, in seconds.
_MIGRATION: Final = 6 * 3600.0


class SchemaError(SetupError):
    """The database's schema does not match this release."""


class Backend(msgspec.Struct, frozen=True):
    """One process's connections to the database.

    ``lease_store`` has separate connections, so that heartbeats and renewals never wait for a busy pool.
    """

    engine: Engine
    store: Store
    lease_engine: Engine
    lease_store: Store
    queue: Queue
    bus: Bus
    keys: KeyRing

    def describe(self) -> tuple[str, str | None, str]:
        """Return the database kind, its schema version, and the required version; ``StoreUnavailableError``."""
        return self.engine.dialect.name, migrate.current(self.engine), migrate.HEAD

    def close(self) -> None:
        self.bus.close()
        self.engine.dispose()
        self.lease_engine.dispose()


def open_backend(settings: Settings, *, clock: Clock, stop: StopFlag, listen: bool, meter: Meter = SILENT) -> Backend:
    """Build the backend; ``listen``: receive notifications from other processes. ``SetupError``."""
    database, leases = _limited(settings)
    with _explained():
        engine = build_engine(database)
    bus, keys = LocalBus(), key_ring(settings)
    store = SqlStore(
        engine,
        settings=database,
        bus=bus,
        clock=clock,
        stop=stop,
        meter=meter,
        keys=keys,
        subscriptions=[one.subscription for one in settings.notifications.webhooks()],
    )
    queue = SqlQueue(store, engine, bus=bus, clock=clock, poll_interval=database.poll_interval)
    if listen:
        start_watcher(database, bus=bus, stop=stop)
    lease_engine = build_engine(leases)
    lease_store = SqlStore(lease_engine, settings=leases, bus=bus, clock=clock, stop=stop, meter=meter)
    return Backend(
        engine=engine,
        store=store,
        lease_engine=lease_engine,
        lease_store=lease_store,
        queue=queue,
        bus=bus,
        keys=keys,
    )


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
        member.make_directory(database)
        database = msgspec.structs.replace(database, statement_timeout=_MIGRATION)
    elif file := member.missing(database):
        raise SchemaError(f"the database file {file} does not exist", "run: ferroscope db upgrade")
    with _explained():
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


def is_foreign(found: str | None) -> bool:
    """Whether this release cannot upgrade the schema, because a newer one created it."""
    return found is not None and not (found.isdigit() and found <= migrate.HEAD)


def schema_problem(found: str | None) -> tuple[str, str]:
    """Return what is wrong with a schema of another release, and what to do."""
    if is_foreign(found):
        return (
            f"the database has schema {found}, which belongs to a newer release; this release needs {migrate.HEAD}",
            "a downgrade is not supported: install the newer release, or restore the backup from before the upgrade",
        )
    where = "is empty" if found is None else f"has schema {found}"
    return f"the database {where}, this release needs {migrate.HEAD}", "run: ferroscope db upgrade"


@contextmanager
def _explained() -> Iterator[None]:
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
