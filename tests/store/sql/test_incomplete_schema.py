"""A process that starts while a backup is being restored neither works with half of it nor gets in its way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.db import migrate
from ferroscope.db.engine import build_engine
from ferroscope.db.prepare import SchemaError, ensure_schema

# What a restore has not done yet; of an index, only PostgreSQL's.
LATER = ["DROP TABLE web_sessions", "DROP TABLE requests"]
INDEXES = [
    "DROP INDEX ix_bmc_addresses_trigrams",
    "DROP INDEX ix_nodes_created_at",
    "ALTER TABLE requests DROP CONSTRAINT uq_requests_claimed_node",
]


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database=DatabaseSettings(connection=database_url))


@pytest.fixture
def run(settings: Settings) -> Callable[[str], None]:
    def run_statement(statement: str) -> None:
        engine = build_engine(settings.database)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()

    return run_statement


@pytest.mark.parametrize("upgrade", [True, False])
def test_a_database_that_lacks_a_part_of_its_schema_is_not_used(
    settings: Settings, run: Callable[[str], None], database_kind: str, upgrade: bool
) -> None:
    assert ensure_schema(settings, upgrade=False) == migrate.HEAD
    for statement in [*(INDEXES if database_kind == "postgresql" else ()), *LATER]:
        run(statement)
        for completes in (True, False):
            with pytest.raises(SchemaError, match="the database is incomplete") as caught:
                ensure_schema(settings, upgrade=upgrade, completes=completes)
            assert "restore" in caught.value.advice


@pytest.mark.parametrize("upgrade", [True, False])
def test_a_database_of_a_release_before_the_first_one_is_called_so(
    settings: Settings, run: Callable[[str], None], upgrade: bool
) -> None:
    """Its number is higher than ours, as that of a newer release is, but that would have all of our tables."""
    run("UPDATE alembic_version SET version_num = '0021'")
    run("DROP TABLE failover_nodes")
    with pytest.raises(SchemaError, match="schema 0021, which belongs to a release before 1"):
        ensure_schema(settings, upgrade=upgrade)


@pytest.mark.parametrize("statement", ["DELETE FROM alembic_version", "DROP TABLE alembic_version"])
def test_tables_without_a_version_are_left_to_those_who_make_them(
    settings: Settings, run: Callable[[str], None], statement: str
) -> None:
    run(statement)
    run("DROP TABLE requests")
    with pytest.raises(SchemaError, match="the database is incomplete") as caught:
        ensure_schema(settings, upgrade=True, completes=False)
    assert "ferroscope db upgrade" in caught.value.advice
    with pytest.raises(SchemaError, match="incomplete"):
        ensure_schema(settings, upgrade=False)


def test_an_empty_database_is_filled(empty_database_url: str) -> None:
    empty = Settings(database=DatabaseSettings(connection=empty_database_url))
    with pytest.raises(SchemaError, match="empty"):
        ensure_schema(empty, upgrade=False)
    assert ensure_schema(empty, upgrade=True, completes=False) == migrate.HEAD
    assert ensure_schema(empty, upgrade=False) == migrate.HEAD
