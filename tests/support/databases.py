"""A fresh database for every test: a copy of one that was migrated once.

PostgreSQL copies a template; MariaDB, which has none, gets the tables of a migrated database
as it describes them itself; SQLite's file is copied. What a test leaves with its schema intact
is emptied for the next one, after everybody was thrown out: that takes a tenth of the time.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

import psycopg
import pymysql
from sqlalchemy import Engine

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import migrate
from ferroscope.db.engine import build_engine
from tests.support.servers import KeeperProcess, Server, made_once, run_directory

_TEMPLATE: Final = "template_migrated"
# One line for all columns: what it costs to compare them is paid after every test.
_POSTGRESQL_SCHEMA: Final = (
    "SELECT md5(string_agg(concat_ws(' ', c.relname, a.attname, a.atttypid, a.attnotnull), ',' "
    "ORDER BY c.relname, a.attname)) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
    "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped"
)
_MARIADB_SCHEMA: Final = (
    "SELECT md5(group_concat(concat_ws(' ', table_name, column_name, column_type, is_nullable) "
    "ORDER BY table_name, column_name)) FROM information_schema.columns WHERE table_schema = database()"
)
# A test may be the next release while a template is made, which all tests share.
_SCRIPTS, _HEAD = migrate.SCRIPTS, migrate.HEAD
_numbers = itertools.count(1)
_spare: dict[str, list[str]] = {}


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """Give the database's engine until the end of the block."""
    engine = build_engine(DatabaseSettings(connection=url))
    try:
        yield engine
    finally:
        engine.dispose()


def upgrade(url: str) -> None:
    """Bring the schema of the database to the newest version."""
    with opened(url) as engine:
        migrate.upgrade(engine)


def upgrade_template(url: str) -> None:
    """Bring the schema of the database to the version of this release, whichever the test is."""
    with mock.patch.multiple(migrate, SCRIPTS=_SCRIPTS, HEAD=_HEAD):
        upgrade(url)


def sqlite(directory: Path) -> str:
    """Return the URL of a new, migrated SQLite database in ``directory``."""
    path = directory / "ferroscope.db"
    shutil.copyfile(_sqlite_template(), path)
    return f"sqlite:///{path}"


@cache
def _sqlite_template() -> Path:
    """Return a migrated database."""
    return made_once("migrated.db", lambda path: upgrade_template(f"sqlite:///{path}"))


@contextmanager
def fresh(server: Server, *, migrated: bool = True) -> Iterator[str]:
    """Give the URL of an empty database on the server.

    A migrated one is used again by the next test, and emptied only then: a test's processes may outlive its database by
    a moment, as fixtures end in reverse order, and must not write to the next test's.
    """
    admin = _Postgresql(server) if server.kind == "postgresql" else _Mariadb(server)
    spare = _spare.setdefault(server.name, []) if migrated else []
    name = None
    while spare and name is None:
        name = spare.pop()
        if not _reset(server, admin, name):
            admin.run("", f"DROP DATABASE {name}")
            name = None
    if name is None:
        name = _make(server, admin, migrated=migrated)
    yield server.url(name)
    if server.pid is None:
        return
    if migrated:
        spare.append(name)
        return
    with admin.connect(name) as connection, connection.cursor() as cursor:
        admin.disconnect_others(cursor)
    admin.run("", f"DROP DATABASE {name}")


@contextmanager
def private(kind: str, *, migrated: bool = True) -> Iterator[tuple[str, Server]]:
    """Give the URL of an empty database, and its server, which only the caller has."""
    with closing(KeeperProcess()):
        server = Server(kind, kind)
        with fresh(server, migrated=migrated) as url:
            yield url, server


class _Postgresql:
    """How databases of a PostgreSQL are made and cleared."""

    schema = _POSTGRESQL_SCHEMA
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"

    def __init__(self, server: Server) -> None:
        self._conninfo = f"host=127.0.0.1 port={server.port} user=ferroscope connect_timeout=30"

    def connect(self, database: str) -> Any:
        """Return a connection, each of whose statements is a transaction."""
        return psycopg.connect(f"{self._conninfo} dbname={database or 'postgres'}", autocommit=True)

    def run(self, database: str, *statements: str) -> None:
        """Run the statements, each for itself."""
        with self.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)

    def create(self, name: str, *, migrated: bool) -> None:
        self.run("", f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if migrated else 'template0'}")

    def disconnect_others(self, cursor: Any) -> None:
        """Cut every other connection to the cursor's database; return when they are gone."""
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


class _Mariadb:
    """How databases of a MariaDB are made and cleared."""

    schema = _MARIADB_SCHEMA
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"

    def __init__(self, server: Server) -> None:
        self._port = server.port

    def connect(self, database: str) -> Any:
        """Return a connection, each of whose statements is a transaction."""
        return pymysql.connect(
            host="127.0.0.1", port=self._port, user="root", database=database or None, autocommit=True
        )

    def run(self, database: str, *statements: str) -> None:
        """Run the statements, each for itself."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def create(self, name: str, *, migrated: bool) -> None:
        self.run("", f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        if not migrated:
            return
        with self.connect(_TEMPLATE) as connection, connection.cursor() as cursor:
            made = []
            for table in _rows(cursor, self.tables):
                cursor.execute(f"SHOW CREATE TABLE {table}")
                made += [cursor.fetchone()[1], f"INSERT INTO {table} SELECT * FROM {_TEMPLATE}.{table}"]
        self.run(name, *made)

    def disconnect_others(self, cursor: Any) -> None:
        """Cut every other connection to the cursor's database; what they wrote without a commit is undone."""
        others = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
        for number in _rows(cursor, others):
            with suppress(pymysql.err.OperationalError):  # gone by itself
                cursor.execute(f"KILL {number}")


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
            upgrade_template(server.url(_TEMPLATE))
            # Nobody may look at it later on: PostgreSQL does not copy a database that is in use.
            with admin.connect(_TEMPLATE) as connection, connection.cursor() as cursor:
                tables = sorted(set(_rows(cursor, admin.tables)) - {"alembic_version"})
                done.write_text(json.dumps([_schema(admin, cursor), tables]))


def _reset(server: Server, admin: _Admin, name: str) -> bool:
    """Close all connections and delete every row but the schema's version; False if the schema has changed."""
    with admin.connect(name) as connection, connection.cursor() as cursor:
        admin.disconnect_others(cursor)
        expected, tables = json.loads(_mark(server).read_text())
        if _schema(admin, cursor) != expected:
            return False
        cursor.execute("BEGIN")
        for table in tables:
            cursor.execute(f"DELETE FROM {table}")
        cursor.execute("COMMIT")
    return True


def _schema(admin: _Admin, cursor: Any) -> list[str]:
    """Return the schema's version and a digest of all columns, to compare them; nothing where there is no version."""
    if "alembic_version" not in _rows(cursor, admin.tables):
        return []
    return [*_rows(cursor, "SELECT version_num FROM alembic_version"), *_rows(cursor, admin.schema)]


def _rows(cursor: Any, query: str) -> list[Any]:
    """Return the first column of what the query answers."""
    cursor.execute(query)
    return [row[0] for row in cursor.fetchall()]


def _mark(server: Server) -> Path:
    """Return the file that exists once the server's template does; it has the schema and the tables."""
    return run_directory() / f"{server.name}.schema"
