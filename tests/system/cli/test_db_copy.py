"""``ferroscope db copy`` as an operator runs it: after a crash, on a disk that is too small, at a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from ferroscope.cli.exits import Exit
from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import FleetThread
from tests.api.service import Service
from tests.fast.cli.running import run
from tests.support.installation import Played, configuration
from tests.support.processes import PATIENCE, free_port, until
from tests.support.upgrades import ended, forked
from tests.system.cli.console import Shell

_ALL = ("node", "list", "--fields", "name,provision_state,inspection_finished_at")


def _service(name: str, directory: Path, port: int, url: str) -> Played:
    file = directory / f"{name}.conf"
    file.write_text(configuration(directory, port, "[drivers]\nenabled = sim\n", database=url))
    played = Played(name, directory, [sys.executable, "-m", "ferroscope", "all", "-c", str(file)])
    played.wait_ready()
    return played


def test_inspections_of_a_service_that_was_killed_end_on_the_copy(
    sqlite_url: str, server_url: str, tmp_path: Path
) -> None:
    port = free_port()
    shell = Shell(f"http://127.0.0.1:{port}")
    callback = f"{shell.url}/v1/continue_inspection"
    fleet = FleetSettings(nodes=6, callback_url=callback, boot_delay=6.0, boot_jitter=5.0, time_scale=0.1)
    before = _service("before", tmp_path, port, sqlite_url)
    after = None
    try:
        with FleetThread(fleet) as running:
            members = roster(fleet)
            assert not enroll(members, api_url=shell.url, sim_address=running.address, wait=PATIENCE).failed
            shell("inspect", "sim-*", check=0)
            assert until(lambda: _states(shell)["inspect wait"] > 0)
            before.kill()
            refused = run("db", "copy", sqlite_url, server_url)
            assert refused.exit_code == Exit.FAILURE
            assert "the service is running on the source: all on" in refused.stderr
            copied: list[Any] = []

            def copy() -> bool:
                copied[:] = [run("db", "copy", sqlite_url, server_url)]
                return bool(copied[0].exit_code == 0)

            assert until(copy), copied[0].stderr
            assert "copied and verified" in copied[0].stdout
            after = _service("after", tmp_path, port, server_url)
            assert until(lambda: _states(shell)["manageable"] == 6)
            assert {node["inspection_finished_at"] is None for node in shell.json(*_ALL)} == {False}
    finally:
        before.end()
        if after is not None:
            after.end()


class _Counted(dict[str, int]):
    def __missing__(self, _state: str) -> int:
        return 0


def _states(shell: Shell) -> _Counted:
    found = _Counted()
    for node in shell.json("node", "list"):
        found[node["provision_state"]] += 1
    return found


def store_data(url: str, *, parts: int, size: int) -> None:
    with sqlite3.connect(make_url(url).database or "") as connection:
        for number in range(parts):
            values = (f"{number:04d}", "inventory", "n", "zlib", os.urandom(size), 0.5)
            connection.execute("INSERT INTO inspection_data VALUES (?, ?, ?, ?, ?, ?)", values)


def test_a_copy_that_fills_the_disk_is_repeated_when_there_is_space(sqlite_url: str, tmp_path: Path) -> None:
    store_data(sqlite_url, parts=60, size=100_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    to = f"sqlite:///{disk}/copy.db"
    ferroscope = f"{sys.executable} -m ferroscope db"
    script = f"""
        mount -t tmpfs -o size=3m none {disk}
        {ferroscope} copy {sqlite_url} {to}; echo "rc $?"
        {ferroscope} current --database {to}; echo "rc $?"
        mount -o remount,size=200m {disk}
        {ferroscope} copy {sqlite_url} {to} -o json > {tmp_path}/copied; echo "rc $?"
        {ferroscope} current --database {to}; echo "rc $?"
    """
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    codes = [line for line in done.stdout.splitlines() if line.startswith("rc")]
    assert codes == ["rc 1", "rc 1", "rc 0", "rc 0"], done.stdout + done.stderr
    assert "disk is full" in done.stderr
    assert "incomplete" in done.stderr
    copied = {one["name"]: one["rows"] for one in json.loads((tmp_path / "copied").read_text())["tables"]}
    assert copied["inspection_data"] == 60


def test_root_writes_no_database_that_somebody_else_has_put_where_all_may_create_files(
    sqlite_url: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o1777)
    theirs = tmp_path / "theirs.db"
    theirs.touch()
    os.chown(theirs, 65534, 65534)
    for words in (
        ["db", "copy", sqlite_url, f"sqlite:///{theirs}"],
        ["db", "upgrade", "--database", f"sqlite:///{theirs}"],
    ):
        result = run(*words)
        assert (result.exit_code, "runuser -u ferroscope" in result.stderr) == (Exit.FAILURE, True)
    assert theirs.read_bytes() == b""
    assert run("db", "copy", sqlite_url, f"sqlite:///{tmp_path}/ours.db").exit_code == 0


def test_what_sqlite_stores_and_no_other_does_is_found_by_a_dry_run(sqlite_url: str, tmp_path: Path) -> None:
    service = Service(sqlite_url)
    uuid = service.enrol(name="n1")
    service.close()
    to = tmp_path / "copy.db"
    wrong = {
        "version = 'Canary'": "column version: text, and an integer is expected",
        f"name = '{'Canary' * 50}'": "column name: text of 300 characters, and at most 255 fit",
        "last_error = x'00ff'": "column last_error: bytes, and text is expected",
        "last_error = CAST(x'43616e617279ff' AS TEXT)": "Could not decode to UTF-8 column 'last_error'",
    }
    for change, expected in wrong.items():
        with sqlite3.connect(make_url(sqlite_url).database or "") as connection:
            connection.execute("SAVEPOINT before")
            connection.execute(f"UPDATE nodes SET {change}")
            connection.execute("COMMIT")
        result = run("db", "copy", "--dry-run", sqlite_url, f"sqlite:///{to}")
        assert result.exit_code == Exit.FAILURE
        assert expected in result.stderr
        assert "Canary" not in result.stderr
        assert uuid in result.stderr or "UTF-8" in result.stderr
        with sqlite3.connect(make_url(sqlite_url).database or "") as connection:
            connection.execute("UPDATE nodes SET version = 1, name = 'n1', last_error = NULL")
    assert run("db", "copy", "--dry-run", sqlite_url, f"sqlite:///{to}").exit_code == 0
    assert not to.exists()


def test_memory_does_not_depend_on_what_is_copied(sqlite_url: str, tmp_path: Path) -> None:
    import resource

    store_data(sqlite_url, parts=150, size=700_000)
    grown = tmp_path / "grown"

    def work() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert run("db", "copy", sqlite_url, f"sqlite:///{tmp_path}/copy.db").exit_code == 0
        grown.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))

    assert ended(forked(work)) == 0
    assert int(grown.read_text()) < 60_000  # KiB; 105 MB were copied


def test_a_password_that_the_url_lacks_is_asked_for_at_a_terminal(sqlite_url: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ferroscope", "db", "copy", sqlite_url, "postgresql://nobody@127.0.0.1:9/nothing"]
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL, cwd=tmp_path)
    os.close(theirs)
    seen, given = b"", False
    with contextlib.suppress(OSError):  # its other end is closed
        while some := os.read(ours, 4096):
            seen += some
            if b"Password of the destination:" in seen and not given:
                given = bool(os.write(ours, b"Canary\n"))
    process.wait(PATIENCE)
    os.close(ours)
    assert given
    assert b"cannot open postgresql nothing at 127.0.0.1:9" in seen
    assert b"Canary" not in seen


@pytest.mark.parametrize("url", ["postgresql://h:port/n", "sqlite://", "oracle://a/b"])
def test_an_invalid_url_is_explained(url: str, sqlite_url: str) -> None:
    for pair in ((url, sqlite_url), (sqlite_url, url)):
        result = run("db", "copy", *pair)
        assert result.exit_code == Exit.FAILURE
        assert "the URL of the " in result.stderr
