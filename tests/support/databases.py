"""A fresh database for every test: a copy of one that was migrated once.

PostgreSQL copies a template; MariaDB, which has none, gets the tables of a migrated database
as it describes them itself; SQLite's file is copied. What a test leaves with its schema intact
is emptied for the next one, after everybody was thrown out: that takes a tenth of the time.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql

from ferroscope.adapters.sql import dialect, migrate
from ferroscope.config.options import DatabaseSettings
from tests.support.servers import Server, memory_directory, run_directory

_TEMPLATE: Final = "template_migrated"
_COLUMNS: Final = (
    "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2"
)
_numbers = itertools.count(1)
_spare: dict[str, list[str]] = {}


def upgrade(url: str) -> None:
    """Bring the schema of the database to the newest version."""
    engine = dialect.build_engine(DatabaseSettings(connection=url))
    try:
        migrate.upgrade(engine)
    finally:
        engine.dispose()


def sqlite(directory: Path) -> str:
    """Return the URL of a new, migrated SQLite database in ``directory``."""
    path = directory / "ferroscope.db"
    shutil.copyfile(_sqlite_template(), path)
    return f"sqlite:///{path}"


@cache
def _sqlite_template() -> Path:
    """Return a migrated database, made once for all processes of the test run."""
    template = memory_directory() / "migrated.db"
    with template.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            half = template.with_suffix(".half")
            upgrade(f"sqlite:///{half}")
            half.rename(template)
    return template


@contextmanager
def fresh(server: Server, *, migrated: bool = True) -> Iterator[str]:
    """Give the URL of an empty database on the server; afterwards nobody can use it any more."""
    admin = _Postgresql(server) if server.kind == "postgresql" else _Mariadb(server)
    spare = _spare.setdefault(server.name, []) if migrated else []
    name = spare.pop() if spare else _make(server, admin, migrated=migrated)
    yield server.url(name)
    if server.pid is None:
        return
    admin.disconnect(name)
    if migrated and _empty(server, admin, name):
        spare.append(name)
    else:
        admin.run("", f"DROP DATABASE {name}")


class _Postgresql:
    """How databases of a PostgreSQL are made and cleared."""

    def __init__(self, server: Server) -> None:
        self._conninfo = f"host=127.0.0.1 port={server.port} user=ferroscope connect_timeout=30"

    def run(self, database: str, *statements: str, values: tuple[Any, ...] | None = None) -> list[Any]:
        """Run the statements, each for itself, and return the rows of the last one."""
        with psycopg.connect(f"{self._conninfo} dbname={database or 'postgres'}", autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def create(self, name: str, *, migrated: bool) -> None:
        self.run("", f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if migrated else 'template0'}")

    def disconnect(self, name: str) -> None:
        """Cut every connection to the database; return when they are gone."""
        terminate = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
        self.run("", terminate, values=(name,))

    def columns(self, name: str) -> list[Any]:
        """Return table, column and type of everything in the database."""
        return self.run(name, _COLUMNS, values=("public",))


class _Mariadb:
    """How databases of a MariaDB are made and cleared."""

    def __init__(self, server: Server) -> None:
        self._port = server.port

    def run(self, database: str, *statements: str, values: tuple[Any, ...] | None = None) -> list[Any]:
        """Run the statements, each for itself, and return the rows of the last one."""
        account = {"host": "127.0.0.1", "port": self._port, "user": "root", "autocommit": True}
        with pymysql.connect(database=database or None, **account) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, values)
            return list(cursor.fetchall())

    def create(self, name: str, *, migrated: bool) -> None:
        self.run("", f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        if migrated:
            tables = sorted({row[0] for row in self.columns(_TEMPLATE)})
            made = [self.run(_TEMPLATE, f"SHOW CREATE TABLE {table}")[0][1] for table in tables]
            self.run(name, *made, *(f"INSERT INTO {table} SELECT * FROM {_TEMPLATE}.{table}" for table in tables))

    def disconnect(self, name: str) -> None:
        """Cut every connection to the database; what they wrote without a commit is undone."""
        for (number,) in self.run("", "SELECT id FROM information_schema.processlist WHERE db = %s", values=(name,)):
            with suppress(pymysql.err.OperationalError):  # gone by itself
                self.run("", f"KILL {number}")

    def columns(self, name: str) -> list[Any]:
        """Return table, column and type of everything in the database."""
        return self.run("", _COLUMNS, values=(name,))


_Admin = _Postgresql | _Mariadb


def _make(server: Server, admin: _Admin, *, migrated: bool) -> str:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    if migrated:
        _prepare_template(server, admin)
    admin.create(name, migrated=migrated)
    return name


def _prepare_template(server: Server, admin: _Admin) -> None:
    """Migrate one database of the server, once for all processes of the test run."""
    done = _mark(server)
    with (run_directory() / f"{server.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            admin.create(_TEMPLATE, migrated=False)
            upgrade(server.url(_TEMPLATE))
            done.write_text(_schema(admin, _TEMPLATE))


def _empty(server: Server, admin: _Admin, name: str) -> bool:
    """Delete every row but the schema's version; False where the schema is not that of the template."""
    # Nobody may look at the template itself: PostgreSQL does not copy one that is in use.
    if _schema(admin, name) != _mark(server).read_text():
        return False
    tables = sorted({row[0] for row in admin.columns(name)} - {"alembic_version"})
    admin.run(name, "BEGIN", *(f"DELETE FROM {table}" for table in tables), "COMMIT")
    return True


def _schema(admin: _Admin, name: str) -> str:
    """Return the schema's version and all columns, to compare them."""
    return repr((admin.run(name, "SELECT version_num FROM alembic_version"), admin.columns(name)))


def _mark(server: Server) -> Path:
    """Return the file that exists once the server's template does; it contains the schema."""
    return run_directory() / f"{server.name}.schema"
