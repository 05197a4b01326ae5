"""Upgrades of the schema in processes that are killed in the middle, and what a database looks like afterwards."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from sqlalchemy import Boolean, Double, Engine, Integer, MetaData, event, insert, select

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.db import migrate
from ferroscope.db.prepare import ensure_schema
from tests.store.sql.test_schema import described
from tests.support.databases import opened

# The schema of this release, before tests add migrations.
THIS: Final = migrate.HEAD
_NUMBERS: Final = [f"{int(THIS) + number:04}" for number in (1, 2)]
_WRITES = ("CREATE", "ALTER", "INSERT", "UPDATE", "COMMIT")
# Migrations of a next release: all that a migration may do, in tables that have many rows.
_BEGINNING: Final = """
import sqlalchemy as sa
from alembic import op

revision = {own!r}
down_revision = {before!r}
branch_labels = None
depends_on = None

"""
_RACKS: Final = """
def upgrade():
    op.add_column("nodes", sa.Column("rack", sa.String(64)))
    op.add_column("nodes", sa.Column("unit", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_nodes_rack", "nodes", ["rack"])
    op.add_column("requests", sa.Column("cause", sa.String(64), nullable=False, server_default="unknown"))
    racks = op.create_table(
        "racks",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_racks"),
    )
    op.bulk_insert(racks, [{"name": "first", "height": 42}, {"name": "second", "height": 47}])
"""
_ROOMS: Final = """
def upgrade():
    op.create_table(
        "rooms",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("building", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_rooms"),
    )
    op.create_index("ix_rooms_building", "rooms", ["building"])
    op.add_column("racks", sa.Column("room", sa.String(64)))
    op.add_column("ports", sa.Column("cable", sa.String(64)))
    op.add_column("inspections", sa.Column("score", sa.Double(), nullable=False, server_default="1"))
"""


@contextmanager
def next_release(directory: Path) -> Iterator[None]:
    """Be the next release meanwhile: one with two more migrations, whose scripts are in this directory."""
    source, scripts = Path(migrate.__file__).parent / "migrations", directory / "migrations"
    shutil.copytree(source, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    for own, before, text in zip(_NUMBERS, [THIS, *_NUMBERS], (_RACKS, _ROOMS), strict=False):
        beginning = _BEGINNING.format(own=own, before=before)
        (scripts / "versions" / f"{own}_next.py").write_text(beginning + text)
    with mock.patch.multiple(migrate, SCRIPTS=str(scripts), HEAD=_NUMBERS[-1]):
        yield


def forked(work: Callable[[], object]) -> int:
    """Do it in another process; return its number."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


def ended(child: int) -> int:
    """Return the exit code of the process; negative if it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(url: str, after: int) -> str:
    """Upgrade in a process that kills itself after so many statements have changed something; return the last of them.

    The last of all is the commit, before which it is killed. Returns "" if it did not come to that.
    """
    reading, writing = os.pipe()

    def work() -> None:
        made = itertools.count(1)

        def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.lstrip().upper().startswith(_WRITES) and next(made) == after:
                os.write(writing, statement.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        with opened(url) as engine:
            event.listen(engine, "after_cursor_execute", count)
            event.listen(engine, "commit", lambda connection: count(connection, None, "COMMIT"))
            migrate.upgrade(engine)

    code = ended(forked(work))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        last = pipe.read().decode()
    assert code == (-signal.SIGKILL if last else 0)
    return last


def upgrade(url: str) -> None:
    """Do what ``ferroscope db upgrade`` does."""
    ensure_schema(Settings(database=DatabaseSettings(connection=url)), upgrade=True)


def fill(url: str) -> dict[str, list[Any]]:
    """Bring the database to the schema of this release, and put rows into each table; return all of them."""
    with opened(url) as engine:
        migrate.upgrade(engine, THIS)
        with engine.connect() as connection:
            for table in _tables(engine):
                # Whatever a migration has put there is kept.
                if not connection.execute(select(table)).first():
                    connection.execute(insert(table), [_row(table, number) for number in (1, 2, 3)])
    return rows(url)


def rows(url: str, of: dict[str, list[Any]] | None = None) -> dict[str, list[Any]]:
    """Return the rows of all tables; with ``of``, only of its tables and columns."""
    with opened(url) as engine, engine.connect() as connection:
        found = {}
        for table in _tables(engine):
            if of is None or table.name in of:
                names = list(table.c.keys()) if of is None else of[table.name][0]
                columns = [table.c[name] for name in names]
                found[table.name] = [names, sorted(map(repr, connection.execute(select(*columns))))]
        return found


def schema(url: str) -> dict[str, Any]:
    with opened(url) as engine, engine.connect() as connection:
        assert migrate.current(engine) == migrate.HEAD
        return described(connection)


def _tables(engine: Engine) -> list[Any]:
    metadata = MetaData()
    metadata.reflect(engine)
    return [table for name, table in sorted(metadata.tables.items()) if name != "alembic_version"]


def _row(table: Any, number: int) -> dict[str, Any]:
    return {column.name: _value(column, number) for column in table.columns}


def _value(column: Any, number: int) -> Any:
    if column.type.python_type is bytes:
        return bytes([number])
    if isinstance(column.type, Boolean) or str(column.type).startswith("TINYINT"):
        return False
    if isinstance(column.type, Integer | Double) or column.type.python_type in (int, float):
        return number
    return str(number)
