"""Whatever is wrong with the database or its URL: one sentence that names it, no traceback, no credential."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pymysql
import pytest
from click.testing import CliRunner

from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit
from tests.support.processes import PATIENCE
from tests.support.servers import Server

_SECRET = "Hunter22"  # no secret at all
_NO_PORTS = {"OS_API__BARE_METAL_PORT": "0", "OS_API__INTROSPECTION_PORT": "0"}


def _refused(url: str, *command: str) -> str:
    """Return what our command says to this URL; a process of its own says the same, see ``_refused_at_start``."""
    done = CliRunner().invoke(main, [*(command or ("db", "upgrade")), "--database", url], env=_NO_PORTS)
    assert isinstance(done.exception, SystemExit), done.exception
    return _sentence(done.stderr, done.exit_code)


def _refused_at_start(url: str, *command: str, **environment: str) -> str:
    arguments: Sequence[str] = command or ("db", "upgrade")
    done = subprocess.run(
        [sys.executable, "-m", "ferroscope", *arguments, "--database", url],
        capture_output=True, text=True, check=False, timeout=PATIENCE, env={**os.environ, **_NO_PORTS, **environment},
    )  # fmt: skip
    return _sentence(done.stderr, done.returncode)


def _sentence(said: str, code: int) -> str:
    assert code == (Exit.CONFIGURATION if "invalid configuration" in said else Exit.FAILURE), said
    assert "Traceback" not in said
    assert _SECRET not in said
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    ("url", "identifier"),
    [
        (_SECRET, "postgresql://"),
        (f"foo://me:{_SECRET}@h/n", "'foo'"),
        (f"postgresql://me:{_SECRET}@h:{_SECRET}/n", "port"),
        (f"postgresql://me:x@{_SECRET}@127.0.0.1/n", "%40"),
        ("sqlite://", "sqlite:///"),
        ("sqlite:///:memory:", "sqlite:///"),
        ("sqlite:////nowhere/f.db", "/nowhere/f.db"),
        (f"postgresql://me:{_SECRET}@127.0.0.1:1/n", "Connection refused"),
        (f"mysql://me:{_SECRET}@127.0.0.1:1/n", "Connection refused"),
    ],
)
def test_a_url_that_leads_nowhere_is_explained(url: str, identifier: str) -> None:
    assert identifier in _refused(url)


def test_a_service_that_cannot_begin_says_it_in_a_sentence() -> None:
    assert "'foo'" in _refused_at_start("foo://h/n", "all")


@pytest.mark.parametrize(("family", "module"), [("postgresql", "psycopg"), ("mysql", "pymysql")])
def test_a_driver_that_is_not_installed_is_named_with_the_command(tmp_path: Path, family: str, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('no', name={module!r})")
    said = _refused_at_start(f"{family}://h/n", PYTHONPATH=str(tmp_path))
    assert f"in a checkout '.[{family}]'" in said
    assert f"-py3-none-any.whl[{family}]'" in said


def test_a_wrong_password_is_the_servers_own_word(shared_mariadb: Server) -> None:
    said = _refused(f"mysql://nobody-here:{_SECRET}@127.0.0.1:{shared_mariadb.port}/n")
    assert "Access denied for user" in said


def test_a_server_that_would_refuse_a_large_inventory_is_refused(mariadb_server: Server) -> None:
    with pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root", autocommit=True) as connection:
        connection.query("CREATE DATABASE small")
        connection.query("SET GLOBAL max_allowed_packet = 1048576")
    assert "set max_allowed_packet = 16M" in _refused(mariadb_server.url("small"))


def test_a_database_that_does_not_exist_is_named(shared_postgresql: Server) -> None:
    said = _refused(f"postgresql://ferroscope:{_SECRET}@127.0.0.1:{shared_postgresql.port}/missing")
    assert 'database "missing" does not exist' in said


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "f.db").write_text("no database at all" * 100)
    assert f"{tmp_path}/f.db" in _refused(f"sqlite:///{tmp_path}/f.db")


def test_a_file_that_is_mounted_without_its_directory_is_refused(tmp_path: Path) -> None:
    """As in a container: the log next to it would be removed with that, and with the log the last changes."""
    host, inside = tmp_path / "host.db", tmp_path / "in side" / "f.db"
    inside.parent.mkdir()
    for file in (host, inside):
        file.touch()
    script = 'mount --bind "$1" "$2" && exec "$3" -m ferroscope db upgrade --database "sqlite:///$2"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "-", host, inside, sys.executable],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert f"mount a directory at {inside.parent}" in done.stderr
    assert done.returncode == Exit.CONFIGURATION
    assert host.read_bytes() == b""


def test_a_full_disk_is_said_with_its_file_and_what_to_do(tmp_path: Path) -> None:
    environment = {**os.environ, **_NO_PORTS, "OS_DATABASE__CONNECTION": f"sqlite:///{tmp_path}/f.db"}
    script = """
        mount -t tmpfs -o size=3m none "$1" && "$2" -m ferroscope db upgrade && cat /dev/zero > "$1/fill"
        "$2" -m ferroscope doctor
        exec "$2" -m ferroscope all
    """
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "-", tmp_path, sys.executable],
        capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment,
    )  # fmt: skip
    error = f"disk I/O error ({tmp_path}/f.db: No space left on device); make room on its disk"
    assert done.returncode == Exit.FAILURE
    assert [error in said for said in (done.stdout, done.stderr)] == [True, True], done.stdout + done.stderr


def test_another_programs_database_is_said(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "f.db") as connection:
        connection.execute("CREATE TABLE nodes (x)")
    connection.close()
    assert "table nodes already exists" in _refused(f"sqlite:///{tmp_path}/f.db")


@pytest.mark.parametrize("command", [("db", "upgrade"), ("db", "current"), ("all",)])
def test_after_going_back_the_newer_schema_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    with sqlite3.connect(tmp_path / "f.db") as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0099')")
    connection.close()
    refused = _refused_at_start if command == ("all",) else _refused
    said = refused(f"sqlite:///{tmp_path}/f.db", *command)
    assert "0099" in said


def test_a_missing_schema_is_said_by_what_needs_it(tmp_path: Path) -> None:
    assert "ferroscope db upgrade" in _refused(f"sqlite:///{tmp_path}/f.db", "db", "rebuild-search-index")
    assert not (tmp_path / "f.db").exists()
