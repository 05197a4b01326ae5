"""The schema's version: reading it is cheap; only an upgrade loads Alembic.

Migrations only add tables and columns, so that processes of the previous release keep working during a rolling upgrade.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db.engine import cannot_answer, described, waiting

_VERSIONS: Final = Path(__file__).parent / "migrations" / "versions"
# The newest migration; the file names begin with the numbers.
HEAD: Final = max(found.name for found in _VERSIONS.glob("[0-9]*.py")).partition("_")[0]


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
    """Upgrade the schema to ``revision``; ``StoreUnavailableError`` with the database's message."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "ferroscope.db:migrations")
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "READ COMMITTED"}
    try:
        with engine.connect().execution_options(**options) as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            connection.commit()
    except DBAPIError as exc:
        raise StoreUnavailableError(f"cannot upgrade the database schema: {described(exc)}") from exc
