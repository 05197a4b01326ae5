"""The databases that the benchmarks run on: a file, or a private server with all its durability on.

The servers are the tests' own (``tests.support``): Debian's PostgreSQL and MariaDB on free ports, every
commit synced, gone when the benchmark ends.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.db.engine import build_engine
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import databases
from tests.support.servers import Server

_SIZE_OF_POSTGRESQL: Final = "SELECT pg_database_size(current_database())"
_LOG_OF_POSTGRESQL: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
_SIZE_OF_MARIADB: Final = (
    "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"
)
NAMES: Final = ("sqlite", "postgresql", "mariadb")


@contextmanager
def opened(url: str) -> Iterator[Backend]:
    """Give what uses the database, which is closed afterwards; it is up to date already."""
    settings = Settings(database=DatabaseSettings(connection=url))
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    try:
        yield backend
    finally:
        backend.close()


class Database(msgspec.Struct, frozen=True):
    """One empty database. ``server`` and its ``pid``: None where our own processes are the database."""

    name: str
    url: str
    pid: int | None = None
    server: Server | None = None

    def size(self) -> int:
        """Return the bytes of its tables and indexes; on MariaDB they are estimated."""
        if self.name == "sqlite":
            path = self.url.removeprefix("sqlite:///")
            return sum(Path(f"{path}{more}").stat().st_size for more in ("", "-wal") if Path(f"{path}{more}").exists())
        return self._asked(_SIZE_OF_POSTGRESQL if self.name == "postgresql" else _SIZE_OF_MARIADB)

    def logged(self) -> int:
        """Return the bytes that PostgreSQL has written to its write-ahead log; 0 for the others."""
        return self._asked(_LOG_OF_POSTGRESQL) if self.name == "postgresql" else 0

    def _asked(self, query: str) -> int:
        engine = build_engine(DatabaseSettings(connection=self.url))
        try:
            with engine.connect() as connection:
                return int(connection.exec_driver_sql(query).scalar_one())
        finally:
            engine.dispose()


@contextmanager
def database(name: str, directory: Path) -> Iterator[Database]:
    """Give an empty database of the kind ``name``, on the disk of ``directory``."""
    if name == "sqlite":
        yield Database(name, f"sqlite:///{directory / 'ferroscope.db'}")
        return
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        with databases.private(name, migrated=False) as (url, server):
            yield Database(name, url, server.pid, server)
    finally:
        tempfile.tempdir = before
