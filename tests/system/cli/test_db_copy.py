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

import pytest
from sqlalchemy import make_url

from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.support.processes import PATIENCE
from tests.support.upgrades import ended, forked


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
