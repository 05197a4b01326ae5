"""SQLAlchemy engines over the simulated driver: its own dialects of PostgreSQL and MariaDB, nothing asked.

The dialects and their compiled statements are shared by all engines: they know of no database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import LRUCache

from tests.simulation.database import driver
from tests.simulation.database.statements import Family


class SimulatedPostgresql(PGDialect):
    driver = "simulated"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        return driver

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return connection is not None and (connection.broken or connection.closed)


class SimulatedMariadb(MariaDBDialect):
    driver = "simulated"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        return driver

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return connection is not None and (connection.broken or connection.closed)


def _mariadb() -> SimulatedMariadb:
    dialect = SimulatedMariadb(dbapi=driver, paramstyle="pyformat")
    dialect.server_version_info = (10, 11, 6)
    dialect.insert_returning = dialect.delete_returning = True
    return dialect


_DIALECTS: dict[Family, Any] = {
    "postgresql": SimulatedPostgresql(dbapi=driver, paramstyle="pyformat"),
    "mariadb": _mariadb(),
}
_COMPILED: dict[Family, Any] = {family: LRUCache(2000) for family in _DIALECTS}


class _Engine(Engine):
    """Nobody listens to what its connections do (to the pool's events they do), so none needs a list of who does."""

    def connect(self) -> Connection:
        return Connection(self, _has_events=False)


def engine(family: Family, connect: Callable[[], driver.Connection]) -> Engine:
    """Return an engine with a pool of its own whose connections ``connect`` makes."""
    pool = QueuePool(connect, pool_size=20, max_overflow=-1, reset_on_return=None, use_lifo=True)
    made = _Engine(pool, _DIALECTS[family], make_url(f"{family}://simulated"))
    made._compiled_cache = _COMPILED[family]
    return made
