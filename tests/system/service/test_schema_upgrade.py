"""Upgrading the schema while the service writes, or when it fails: it waits, and it is done whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db import migrate
from ferroscope.db.engine import build_engine
from tests.support import databases, upgrades
from tests.support.servers import Server


@pytest.fixture(autouse=True)
def next_release(tmp_path: Path) -> Iterator[None]:
    with upgrades.next_release(tmp_path):
        yield


def _tables(engine: Engine) -> dict[str, int]:
    found = inspect(engine)
    return {name: len(found.get_columns(name)) for name in found.get_table_names()}


def test_an_upgrade_waits_for_processes_that_write(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "f.db"
    engine = build_engine(DatabaseSettings(connection=f"sqlite:///{file}"))
    migrate.upgrade(engine, upgrades.THIS)
    writer = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.5, lambda: writer.execute("COMMIT"))
    timer.start()
    migrate.upgrade(engine)
    timer.join()
    writer.close()
    assert migrate.current(engine) == migrate.HEAD
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):  # type: ignore[no-untyped-def]
    """Give an empty database of a kind that can roll back changes of the schema."""
    if request.param == "sqlite":
        found = build_engine(DatabaseSettings(connection=f"sqlite:///{tmp_path}/f.db"))
        yield found
        found.dispose()
        return
    server: Server = request.getfixturevalue("postgresql_server")
    with databases.fresh(server) as url:
        found = build_engine(DatabaseSettings(connection=url))
        with found.connect() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        yield found
        found.dispose()


def test_an_upgrade_that_fails_changes_nothing_and_can_be_repeated(engine: Engine) -> None:
    migrate.upgrade(engine, upgrades.THIS)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE rooms (id INTEGER)")
    before = _tables(engine)
    with pytest.raises(StoreUnavailableError, match="rooms"):
        migrate.upgrade(engine)
    assert migrate.current(engine) == upgrades.THIS
    assert _tables(engine) == before
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP TABLE rooms")
    migrate.upgrade(engine)
    assert migrate.current(engine) == migrate.HEAD
