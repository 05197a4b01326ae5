"""The schema's version: reading it is cheap; only an upgrade loads Alembic.

One process at a time upgrades a database, and a killed one leaves nothing that the next one cannot complete: SQLite and
PostgreSQL undo the whole upgrade, and on MariaDB each step can be repeated (``db.migrations.repeatable``).

Migrations only add tables and columns, so that processes of the previous release keep working during a rolling upgrade.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import Connection, Engine, Index, PrimaryKeyConstraint, UniqueConstraint, inspect, text
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db import trigrams
from ferroscope.db.connections import GALERA
from ferroscope.db.errors import classify, described, to_unavailable_error
from ferroscope.db.schema import metadata
from ferroscope.db.sqlite import waiting

_VERSIONS: Final = Path(__file__).parent / "migrations" / "versions"
# Where Alembic finds the migrations; tests let it find those of a next release, too.
SCRIPTS = "ferroscope.db:migrations"
# The newest migration; the file names begin with the numbers.
HEAD = max(file.name for file in _VERSIONS.glob("[0-9]*.py")).partition("_")[0]
# Prefix of the mark that is stored instead of the version while a copy is incomplete (``db.copying``).
COPYING: Final = "copying-"
# Seconds that an upgrade waits for SQLite's write lock: the other processes keep writing meanwhile.
_LOCK_TIMEOUT: Final = 30.0
# The lock of an upgrade. PostgreSQL's is valid within a database and ends with the transaction; MariaDB's is valid on
# the whole server and ends with the connection. Both end with the process.
_PG_TRY: Final = "SELECT pg_try_advisory_xact_lock(6384633391)"
_PG_WAIT: Final = "SELECT 1 FROM (SELECT pg_advisory_xact_lock(6384633391)) AS locked"
_MYSQL_WAIT: Final = "SELECT GET_LOCK(CONCAT('ferroscope-upgrade-', MD5(DATABASE())), {seconds})"
_LONGEST_WAIT: Final = 6 * 3600
_PG_INDEXES: Final = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"

_log = structlog.get_logger(__name__)


def current(engine: Engine) -> str | None:
    """Return the schema's version; None if the database is empty. ``StoreUnavailableError``."""
    try:
        with engine.connect() as connection, waiting(connection):
            if not inspect(connection).has_table("alembic_version"):
                return None
            version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return version
    except DBAPIError as exc:
        raise to_unavailable_error(engine.url, exc) from exc


def parts(engine: Engine) -> tuple[set[str], set[str]]:
    """Return the parts of this release's schema that are there, and those that are missing; ``StoreUnavailableError``.

    Parts are tables, and on PostgreSQL also indexes: backups of others create a table with its indexes.
    """
    wanted: set[str] = set(metadata.tables)
    try:
        with engine.connect() as connection, waiting(connection):
            present = set(inspect(connection).get_table_names())
            if engine.dialect.name == "postgresql":
                wanted |= {
                    str(schema_object.name)
                    for table in metadata.tables.values()
                    for schema_object in (*table.indexes, *table.constraints)
                    if isinstance(schema_object, Index | PrimaryKeyConstraint | UniqueConstraint)
                }
                wanted |= set(trigrams.index_names(engine.dialect.name))
                present |= set(connection.execute(text(_PG_INDEXES)).scalars())
    except DBAPIError as exc:
        raise to_unavailable_error(engine.url, exc) from exc
    return wanted & present, wanted - present


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Upgrade the schema to ``revision``; ``StoreUnavailableError`` with the database's message.

    SQLite and PostgreSQL upgrade in one transaction; MariaDB commits after each statement that changes the schema.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "READ COMMITTED"}
    try:
        with engine.connect().execution_options(**options) as connection, _alone(connection):
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except DBAPIError as exc:
        if classify(exc) == "unavailable":
            raise to_unavailable_error(engine.url, exc) from exc
        raise StoreUnavailableError(f"cannot upgrade the database schema: {described(exc)}") from exc


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Begin a transaction while no other process upgrades this database, and commit it at the end."""
    if connection.dialect.name != "sqlite":
        _lock(connection)
        yield
        connection.commit()
        return
    with waiting(connection, _LOCK_TIMEOUT):  # Alembic's own statements would not wait for the write lock
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        first, then = _PG_TRY, _PG_WAIT
    elif GALERA in connection.info:  # its nodes refuse GET_LOCK, which each would hold for itself
        return
    else:
        first, then = (_MYSQL_WAIT.format(seconds=seconds) for seconds in (0, _LONGEST_WAIT))
    if not connection.exec_driver_sql(first).scalar():
        _log.warning("another process is upgrading the schema of this database; waiting until it has ended")
        if not connection.exec_driver_sql(then).scalar():
            raise StoreUnavailableError(
                "another process is still upgrading the database schema; repeat the command later"
            )
