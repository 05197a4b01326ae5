"""The schema's version: reading it is cheap; only an upgrade loads Alembic.

Migrations only add tables and columns, so that processes of the previous release keep working during a rolling upgrade.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db.engine import cannot_answer, described, waiting

_VERSIONS: Final = Path(__file__).parent / "migrations" / "versions"
# The newest migration; the file names begin with the numbers.
HEAD: Final = max(found.name for found in _VERSIONS.glob("[0-9]*.py")).partition("_")[0]
# Seconds that an upgrade waits for SQLite's write lock: the other processes keep writing meanwhile.
_LOCK_TIMEOUT: Final = 30.0


def current(engine: Engine) -> str | None:
    """Return the schema's version; None if the database is empty. ``StoreUnavailableError``."""
    try:
        with engine.connect() as connection, waiting(connection):
            if not inspect(connection).has_table("alembic_version"):
                return None
            version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return version
    except DBAPIError as exc:
        raise StoreUnavailableError(cannot_answer(engine.url, exc)) from exc


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Upgrade the schema to ``revision``; ``StoreUnavailableError`` with the database's message.

    SQLite and PostgreSQL upgrade in one transaction; MariaDB commits after each statement that changes the schema.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "ferroscope.db:migrations")
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "READ COMMITTED"}
    try:
        with engine.connect().execution_options(**options) as connection, _one_transaction(connection):
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except DBAPIError as exc:
        raise StoreUnavailableError(f"cannot upgrade the database schema: {described(exc)}") from exc


@contextmanager
def _one_transaction(connection: Connection) -> Iterator[None]:
    """Commit at the end. On SQLite take the write lock at once: Alembic's own statements do not wait for it."""
    if connection.dialect.name != "sqlite":
        yield
        connection.commit()
        return
    with waiting(connection, _LOCK_TIMEOUT):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")
