"""Engines: how to connect to a database. What differs between databases has a module for each: see ``executor``."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import NullPool

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.executor import database_of
from ferroscope.db.url import DatabaseUrlError, parse_url


def build_engine(settings: DatabaseSettings) -> Engine:
    """Return an engine with a timeout for every wait: connection pool, connect, statement and lock.

    ``DatabaseUrlError``; ``ImportError`` if the database's driver is not installed.

    Connections are in autocommit mode: the store sends BEGIN and COMMIT explicitly.
    """
    url = parse_url(settings.connection)
    family = url.get_backend_name()
    database = database_of(family)
    url, arguments = database.connect_arguments(url, settings)
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            connect_args=arguments,
            poolclass=NullPool,  # see ``connections``
            pool_reset_on_return=None,
            skip_autocommit_rollback=True,
        )
    except NoSuchModuleError:
        raise DatabaseUrlError(f"unknown driver in {url.drivername!r}", f"write {family}:// without a driver") from None
    database.listen(engine, settings)
    return engine
