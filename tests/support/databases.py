"""A fresh database for every test: a copy of one that was migrated once.

PostgreSQL copies a template; MariaDB, which has none, gets the tables of a migrated database
as it describes them itself; SQLite's file is copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql

from ferroscope.adapters.sql import dialect, migrate
from ferroscope.config.settings import DatabaseSettings
from tests.support.servers import Server, run_directory

_TEMPLATE: Final = "template_migrated"
_numbers = itertools.count(1)


def upgrade(url: str) -> None:
    """Bring the schema of the database to the newest version."""
    engine = dialect.build_engine(DatabaseSettings(connection=url))
    try:
        migrate.upgrade(engine)
    finally:
        engine.dispose()


@contextmanager
def fresh(server: Server, *, migrated: bool = True) -> Iterator[str]:
    """Give the URL of a new database on the server; drop it afterwards, whoever still uses it."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    make, drop = (_postgresql, _drop_postgresql) if server.kind == "postgresql" else (_mariadb, _drop_mariadb)
    if migrated:
        _prepare_template(server)
    make(server, name, migrated=migrated)
    yield server.url(name)
    if server.pid is not None:
        drop(server, name)


def sqlite(directory: Path, template: Path) -> str:
    """Return the URL of a new, migrated SQLite database in ``directory``."""
    if not template.exists():
        upgrade(f"sqlite:///{template}")
    path = directory / "ferroscope.db"
    shutil.copyfile(template, path)
    return f"sqlite:///{path}"


def _prepare_template(server: Server) -> None:
    """Migrate one database of the server, once for all processes of the test run."""
    done = run_directory() / f"{server.name}.migrated"
    with (run_directory() / f"{server.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make = _postgresql if server.kind == "postgresql" else _mariadb
            make(server, _TEMPLATE, migrated=False)
            upgrade(server.url(_TEMPLATE))
            done.touch()


def _postgresql(server: Server, name: str, *, migrated: bool) -> None:
    template = _TEMPLATE if migrated else "template0"
    with psycopg.connect(_conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")


def _drop_postgresql(server: Server, name: str) -> None:
    with psycopg.connect(_conninfo(server), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _conninfo(server: Server) -> str:
    return f"host=127.0.0.1 port={server.port} user=ferroscope dbname=postgres connect_timeout=30"


def _mariadb(server: Server, name: str, *, migrated: bool) -> None:
    with _mariadb_cursor(server) as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        if not migrated:
            return
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (_TEMPLATE,))
        tables = [row[0] for row in cursor.fetchall()]
        cursor.execute(f"USE {name}")
        for table in tables:
            cursor.execute(f"SHOW CREATE TABLE {_TEMPLATE}.{table}")
            cursor.execute(cursor.fetchone()[1])
            cursor.execute(f"INSERT INTO {table} SELECT * FROM {_TEMPLATE}.{table}")


def _drop_mariadb(server: Server, name: str) -> None:
    with _mariadb_cursor(server) as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
        for (number,) in cursor.fetchall():
            with contextlib.suppress(pymysql.err.OperationalError):  # gone by itself
                cursor.execute(f"KILL {number}")
        cursor.execute(f"DROP DATABASE {name}")


@contextmanager
def _mariadb_cursor(server: Server) -> Iterator[Any]:
    with (
        pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor
