"""The store, its queue and its wake-up, as one process uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from sqlalchemy import Engine

from ferroscope.bus.local import LocalBus
from ferroscope.bus.postgresql import start_watcher
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Bus, Clock, Queue, StopFlag
from ferroscope.contracts.store import Store
from ferroscope.db import migrate
from ferroscope.db.engine import DatabaseUrlError, build_engine
from ferroscope.db.queue import SqlQueue
from ferroscope.db.transaction import SqlStore
from ferroscope.runtime import member
from ferroscope.runtime.system import SetupError

# Longest time of one statement of a migration, in seconds.
_MIGRATION: Final = 6 * 3600.0


class SchemaError(SetupError):
    """The database's schema is not the one that this release works with."""


class Backend(msgspec.Struct, frozen=True):
    """One process's connections to the database.

    ``lease_store`` has connections of its own, so that heartbeats and renewals never wait for a
    busy pool.
    """

    engine: Engine
    store: Store
    lease_engine: Engine
    lease_store: Store
    queue: Queue
    bus: Bus

    def describe(self) -> tuple[str, str | None, str]:
        """Return the kind of database, its schema's version, and the one that is needed; ``StoreUnavailableError``."""
        return self.engine.dialect.name, migrate.current(self.engine), migrate.HEAD

    def close(self) -> None:
        self.bus.close()
        self.engine.dispose()
        self.lease_engine.dispose()


def open_backend(settings: Settings, *, clock: Clock, stop: StopFlag, listen: bool, meter: Meter = SILENT) -> Backend:
    """Build the backend; ``listen``: also be woken up by what other processes put on the queue. ``SetupError``."""
    database, leases = _limited(settings)
    with _explained():
        engine = build_engine(database)
    bus = LocalBus()
    store = SqlStore(engine, settings=database, bus=bus, clock=clock, stop=stop, meter=meter)
    queue = SqlQueue(store, engine, bus=bus, clock=clock, poll_interval=database.poll_interval)
    if listen:
        start_watcher(database, bus=bus, stop=stop)
    lease_engine = build_engine(leases)
    lease_store = SqlStore(lease_engine, settings=leases, bus=bus, clock=clock, stop=stop, meter=meter)
    return Backend(engine=engine, store=store, lease_engine=lease_engine, lease_store=lease_store, queue=queue, bus=bus)


def _limited(settings: Settings) -> tuple[DatabaseSettings, DatabaseSettings]:
    """Return the settings for the work's connections, and those for leases and heartbeats.

    A leader that is stopped inside its transaction must not block its successor, so no session
    waits for longer than a leader trusts its lease; and a renewal on a connection that has died
    has to fail while there is time for another one.
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
    """Check the schema, or bring it up to date; return its version.

    ``SetupError`` says what is wrong with the URL, ``SchemaError`` what to do where the schema is not
    the right one, ``StoreUnavailableError`` that the database cannot be reached, and why, ``OSError``
    that the directory of the default place cannot be made.
    """
    database = settings.database
    if upgrade:  # a migration takes the time that it takes
        member.make_directory(database)
        database = msgspec.structs.replace(database, statement_timeout=_MIGRATION)
    elif file := member.missing(database):
        raise SchemaError(f"the database's file {file} does not exist yet", "run: ferroscope db upgrade")
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
    """Whether a schema is none that this release could bring up to date."""
    return found is not None and not (found.isdigit() and found <= migrate.HEAD)


def schema_problem(found: str | None) -> tuple[str, str]:
    """Return what is wrong with a schema that is not this release's, and what to do."""
    if is_foreign(found):
        return (
            f"the database has the schema {found}, which is of a newer release; this one needs {migrate.HEAD}",
            "there is no way back: install the newer release again, or restore the backup from before the upgrade",
        )
    where = "is empty" if found is None else f"has the schema {found}"
    return f"the database {where}, this release needs {migrate.HEAD}", "run: ferroscope db upgrade"


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except DatabaseUrlError as exc:
        raise SetupError(f"[database] connection cannot be used: {exc.summary}", exc.advice) from exc
    except ImportError as exc:
        extra = "mysql" if exc.name == "pymysql" else "postgresql"
        raise SetupError(
            f"[database] connection needs the Python package {exc.name}, which is not installed",
            f"install Ferroscope with [{extra}], as in: pip install '.[{extra}]'",
        ) from exc
