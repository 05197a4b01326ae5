"""The progress bar of long commands: on standard error if that is a terminal, and in no file or pipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.api.service import Service
from tests.integration.cli.console import Shell
from tests.integration.cli.test_top import environment

_NODES = "name,driver\n" + "".join(f"n{number},fake-hardware\n" for number in range(40))


def run(words: list[str], url: str, *, terminal: bool, **settings: str) -> tuple[str, str]:
    """Return what a command has written to a pipe as standard output, and to standard error."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    done = subprocess.run(
        [sys.executable, "-m", "ferroscope", *words], env=environment(url, COLUMNS="80", **settings),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=60,
    )  # fmt: skip
    os.set_blocking(ours, False)
    try:
        errors = os.read(ours, 1 << 20)
    except BlockingIOError:
        errors = b""
    os.close(ours)
    os.close(theirs)
    return done.stdout.decode(), errors.decode()


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_an_import_and_an_export_have_a_bar_on_a_terminal_only(
    service: Service, shell: Shell, tmp_path: Path, terminal: bool
) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(_NODES)
    written, errors = run(["node", "import", str(file), "-o", "json"], shell.url, terminal=terminal)
    assert len(json.loads(written)) == 40
    assert ("40/40" in errors) is terminal
    written, errors = run(["node", "export", "--all"], shell.url, terminal=terminal)
    assert "n39" in written
    assert ("Exporting" in errors) is terminal
    if not terminal:
        assert errors == ""


def test_the_service_itself_is_not_needed_to_show_one(sqlite_url: str, service: Service) -> None:
    service.enrol(name="one")
    words = ["db", "rebuild-search-index", "--database", sqlite_url]
    written, errors = run(words, "http://127.0.0.1:9", terminal=True)
    assert written.count("\n") == 1
    assert "Rebuilding" in errors
    assert run(words, "http://127.0.0.1:9", terminal=False) == (written, "")


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_a_scan_counts_the_addresses(shell: Shell, terminal: bool) -> None:
    words = ["bmc", "scan", "127.0.200.0/29", "--dry-run", "--timeout", "0.3", "-o", "json"]
    written, errors = run(words, shell.url, terminal=terminal)
    assert json.loads(written) == []
    assert ("Scanning" in errors and "6/6" in errors) is terminal
    if not terminal:
        assert errors == ""


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_moving_data_between_storage_backends_has_a_bar(sqlite_url: str, service: Service, terminal: bool) -> None:
    service.enrol(name="one")
    store = {"ENDPOINT": "http://127.0.0.1:9", "BUCKET": "b", "ACCESS_KEY": "a", "SECRET_KEY": "s"}
    settings = {f"OS_S3__{name}": value for name, value in store.items()}
    words = ["db", "move-data", "--from", "database", "--to", "s3", "--database", sqlite_url]
    written, errors = run(words, "http://127.0.0.1:9", terminal=terminal, **settings)
    assert written.count("\n") == 1
    assert ("Moving" in errors) is terminal
    if not terminal:
        assert errors == ""
