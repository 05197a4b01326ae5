"""``db.schema`` says the same as the migrations make, on every database."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from sqlalchemy import Connection, Inspector, inspect, text

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import migrate, schema
from ferroscope.db.engine import build_engine

# What SQLAlchemy does not tell of a table: on SQLite whether it gives a number twice, elsewhere how it is stored.
_STORAGE: Final = {
    "sqlite": "SELECT name, sql LIKE '%AUTOINCREMENT%' FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT relname, CAST(reloptions AS text) FROM pg_class WHERE relkind = 'r'",
    "mysql": "SELECT table_name, concat(engine, ' ', table_collation) FROM information_schema.tables "
    "WHERE table_schema = database()",
}


def described(connection: Connection) -> dict[str, Any]:
    """Return all that the database knows of its tables; the order of columns does not matter."""
    found = inspect(connection)
    storage: dict[str, Any] = dict(connection.execute(text(_STORAGE[connection.dialect.name])).all())
    names = set(found.get_table_names()) - {"alembic_version"}
    return {name: {"storage": storage[name], **_table(found, name)} for name in sorted(names)}


def _table(found: Inspector, name: str) -> dict[str, Any]:
    return {
        "columns": {
            column["name"]: (repr(column["type"]), column["nullable"], column["default"], column.get("autoincrement"))
            for column in found.get_columns(name)
        },
        "key": found.get_pk_constraint(name),
        "unique": sorted((one["name"], one["column_names"]) for one in found.get_unique_constraints(name)),
        "indexes": sorted((one["name"], one["column_names"], one["unique"]) for one in found.get_indexes(name)),
        "foreign": found.get_foreign_keys(name),
    }


def declare(connection: Connection) -> None:
    """Create all tables as ``db.schema`` declares them, and what only SQL can create."""
    schema.metadata.create_all(connection)
    look_ups = import_module("ferroscope.db.migrations.versions.0006_fleet_look_ups")
    for statement in look_ups.create_trigrams(connection.dialect.name):
        connection.exec_driver_sql(statement)


def test_the_declared_schema_is_the_migrated_one(empty_database_url: str) -> None:
    engine = build_engine(DatabaseSettings(connection=empty_database_url))
    with engine.connect() as connection:
        declare(connection)
        declared = described(connection)
        schema.metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE IF EXISTS trigrams")
    migrate.upgrade(engine)
    with engine.connect() as connection:
        assert described(connection) == declared
    assert migrate.current(engine) == migrate.HEAD
    engine.dispose()
