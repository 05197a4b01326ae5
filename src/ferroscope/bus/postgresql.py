"""What brings other processes' changes to this one's bus: PostgreSQL's NOTIFY, SQLite's data_version.

MariaDB and MySQL can do neither; there one thread of each process looks often, with one statement
that is answered from indexes. New requests, released leases and, where the database tells of
them, changes of who may boot are what is worth waking up for.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final, Protocol

import msgspec
import structlog
from sqlalchemy.exc import DBAPIError

from ferroscope.bus.local import DATABASE, RABBITMQ, LocalBus
from ferroscope.bus.outage import Outage
from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.store import MAC_CHANNELS, Channel, StopFlag
from ferroscope.db import POLL_SECONDS
from ferroscope.db.engine import build_engine
from ferroscope.db.errors import described
from ferroscope.db.postgresql import NOTIFY_CHANNEL
from ferroscope.db.url import parse_url

_log = structlog.get_logger(__name__)

# Seconds between two looks at SQLite's data_version: at first after new requests, which come in bursts, and at most; it
# grows with each look without any.
_LOOK_SOON, _LOOK_LATE, _LOOK_LATER = 0.005, 0.1, 1.5
# Seconds between two questions: at first after news, and at most; it doubles with each answer without news.
_ASK_SOON, _ASK_LATE = 0.0125, 0.1
_FREE_LEASES: Final = "SELECT name, epoch FROM leases WHERE holder IS NULL"
# What a number is of: no lease has such a name.
_REQUESTS, _MACS = "(requests)", "(mac_changes)"
_NEWS: Final = (
    f"SELECT '{_REQUESTS}', MAX(id) FROM requests UNION ALL SELECT '{_MACS}', MAX(seq) FROM mac_changes "  # noqa: S608
    f"UNION ALL {_FREE_LEASES}"
)
_NUMBERS: Final = (
    "SELECT '(' || name || ')', seq FROM sqlite_sequence WHERE name IN ('requests', 'mac_changes') "  # noqa: S608
    f"UNION ALL {_FREE_LEASES}"
)
_NEW_LANES: Final = "SELECT DISTINCT lane FROM requests WHERE id > ?"
_RECONNECT_SECONDS: Final = 0.5
# Of the connection that listens: nothing else tells it that its server is gone.
_ALIVE: Final[dict[str, Any]] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "target_session_attrs": "primary",
    "application_name": "ferroscope wake-up",
}


def _note_outage(outage: Outage, why: str) -> None:
    if outage.begin(why):
        _log.warning("wake-up connection lost, polling until it is back", error=why)


def _note_recovery(outage: Outage) -> None:
    if outage.end():
        _log.info("wake-up connection is back")


class Watcher(Protocol):
    def run(self) -> None:
        """Publish what others changed, until the stop flag is set."""


def start_watcher(
    settings: DatabaseSettings, *, bus: LocalBus, stop: StopFlag, poll_seconds: float = POLL_SECONDS
) -> threading.Thread | None:
    """Start the watcher thread that suits the database, if there is one."""
    url = parse_url(settings.connection)
    family = url.get_backend_name()
    watcher: Watcher
    if family == "sqlite" and url.database and url.database != ":memory:":
        watcher = SqliteWatcher(url.database, bus=bus, stop=stop)
    elif family == "postgresql":
        watcher = PostgresqlWatcher(settings, bus=bus, stop=stop)
    elif family in ("mysql", "mariadb"):
        watcher = PollingWatcher(settings, bus=bus, stop=stop, poll_seconds=poll_seconds)
    else:
        return None
    thread = threading.Thread(target=watcher.run, name="wake-up", daemon=True)
    thread.start()
    return thread


class News:
    """What was there at the last look; publishes what is there only now."""

    def __init__(self, bus: LocalBus) -> None:
        self._bus = bus
        self.newest = 0
        self._macs = 0
        self._free: frozenset[tuple[str, int]] = frozenset()

    def look(
        self,
        newest: int,
        free: frozenset[tuple[str, int]],
        macs: int = 0,
        requests: Iterable[str] = (Channel.REQUESTS,),
    ) -> bool:
        """Publish the news and return whether there were new requests.

        ``newest`` is the newest request's number, ``free`` the name and epoch of each lease that is not held,
        ``macs`` the number of the newest change of the MACs that may boot, ``requests`` are the messages about new
        requests.
        """
        busy = newest > self.newest
        if busy:
            self.newest = newest
            for message in requests:
                self._bus.publish(message)
        if free - self._free:
            self._bus.publish(Channel.LEASES)
        self._free = free
        if macs > self._macs:
            self._macs = macs
            for channel in MAC_CHANNELS:
                self._bus.publish(channel)
        return busy


class SqliteWatcher:
    """``PRAGMA data_version`` moves when another connection commits; it costs microseconds."""

    def __init__(self, path: str, *, bus: LocalBus, stop: StopFlag) -> None:
        self._path = path
        self._bus = bus
        self._news = News(bus)
        self._stop = stop

    def run(self) -> None:
        with (
            closing(sqlite3.connect(self._path, timeout=1.0, isolation_level=None)) as connection,
            self._bus.hearing(DATABASE),
        ):
            seen, pause = 0, _LOOK_SOON
            while not self._stop.is_set():
                time.sleep(pause)  # half of what it costs to wait for the flag, so many times
                newest = self._news.newest
                seen = self._look(connection, seen)
                pause = _LOOK_SOON if self._news.newest > newest else min(_LOOK_LATER * pause, _LOOK_LATE)

    def _look(self, connection: sqlite3.Connection, seen: int) -> int:
        try:
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
            if version == seen:
                return seen
            numbers: dict[str, int] = dict(connection.execute(_NUMBERS).fetchall())
            newest, macs = numbers.pop(_REQUESTS, 0), numbers.pop(_MACS, 0)
            newest_before, lanes = self._news.newest, list[tuple[str]]()
            if newest > newest_before:
                lanes = connection.execute(_NEW_LANES, (newest_before,)).fetchall()
        except sqlite3.Error:
            return 0
        requests = [f"{Channel.REQUESTS} {lane}" for (lane,) in lanes]
        self._news.look(newest, frozenset(numbers.items()), macs, requests)
        return version


class PollingWatcher:
    """Asks often, on a connection of its own; when that breaks, others poll and it connects again.

    New requests come in bursts (a callback follows its power-on, the next operator's call the last one), so it asks
    soon again after each one, and ten times a second when nothing happens. While messages come from RabbitMQ, it asks
    only once in ``poll_seconds``, in case that one was lost.
    """

    def __init__(
        self, settings: DatabaseSettings, *, bus: LocalBus, stop: StopFlag, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._engine = build_engine(msgspec.structs.replace(settings, pool_size=2))
        self._relaxed = max(poll_seconds, _ASK_LATE)
        self._bus = bus
        self._news = News(bus)
        self._stop = stop
        self._outage = Outage()

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except DBAPIError as exc:
                _note_outage(self._outage, described(exc))
                self._stop.wait(_RECONNECT_SECONDS)

    def _watch(self) -> None:
        try:
            with self._engine.connect() as connection, self._bus.hearing(DATABASE):
                pause = _ASK_LATE
                while not self._stop.wait(pause):
                    rows = connection.exec_driver_sql(_NEWS).fetchall()
                    _note_recovery(self._outage)
                    numbers = {name: number or 0 for name, number in rows}
                    requests, macs = numbers.pop(_REQUESTS, 0), numbers.pop(_MACS, 0)
                    busy = self._news.look(requests, frozenset(numbers.items()), macs)
                    pause = _ASK_SOON if busy else min(2 * pause, _ASK_LATE)
                    if self._bus.hears_from(RABBITMQ):
                        pause = self._relaxed
        finally:
            self._engine.dispose()


class PostgresqlWatcher:
    """LISTEN on a connection of its own; when that breaks, polling goes on and it connects again."""

    def __init__(self, settings: DatabaseSettings, *, bus: LocalBus, stop: StopFlag) -> None:
        engine = build_engine(settings)
        url_parameters = engine.dialect.create_connect_args(engine.url)[1]  # what the URL says comes first
        self._parameters = {**_ALIVE, "connect_timeout": settings.connect_timeout, **url_parameters}
        self._bus = bus
        self._stop = stop
        self._outage = Outage()

    def run(self) -> None:
        import psycopg

        while not self._stop.is_set():
            try:
                self._listen()
            except psycopg.Error as exc:
                _note_outage(self._outage, next(iter(str(exc).splitlines()), "") or type(exc).__name__)
                self._stop.wait(_RECONNECT_SECONDS)

    def _listen(self) -> None:
        import psycopg

        with psycopg.connect(**self._parameters, autocommit=True) as connection:
            connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
            _note_recovery(self._outage)
            for channel in Channel:  # whatever came before we listened
                self._bus.publish(channel)
            with self._bus.hearing(DATABASE):
                while not self._stop.is_set():
                    for message in connection.notifies(timeout=0.5):
                        self._bus.publish(message.payload)
