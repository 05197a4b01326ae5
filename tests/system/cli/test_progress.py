"""The progress bar of long commands: on standard error if that is a terminal, and in no file or pipe."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support.processes import PATIENCE
from tests.system.cli.console import Shell
from tests.system.cli.test_top import environment

_NODES = "name,driver\n" + "".join(f"n{number},fake-hardware\n" for number in range(40))


def run(words: list[str], url: str, *, terminal: bool, check: int = 0, **variables: str) -> tuple[str, str]:
    """Return what a command has written to a pipe as standard output, and to standard error."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    read: list[bytes] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "ferroscope", *words], env=environment(url, COLUMNS="80", **variables),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    reader = threading.Thread(target=_read_all, args=(ours, read))
    reader.start()  # a terminal that nobody reads is full after some bars
    try:
        written = process.communicate(timeout=PATIENCE)[0].decode()
    finally:
        process.kill()
    reader.join()
    os.close(ours)
    errors = b"".join(read).decode()
    assert process.returncode == check, errors
    return written, errors


def _read_all(descriptor: int, read: list[bytes]) -> None:
    with contextlib.suppress(OSError):  # a terminal whose other end is closed
        while some := os.read(descriptor, 1 << 16):
            read.append(some)


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


@pytest.mark.parametrize("names", [("a1",), ("a1", "a2")])
def test_a_wait_says_on_a_terminal_what_for_and_how_long_yet(
    service: Service, shell: Shell, names: tuple[str, ...]
) -> None:
    words = ["node", "power", "on", "--all", "--wait", "--timeout", "1", "--yes"]  # nobody carries it out here
    for name in names:
        service.enrol(name=name)
    shown = run(words, shell.url, terminal=True, check=Exit.TIMED_OUT)[1]
    assert "a1 is still" in shown
    assert f"0/{len(names)}" in shown
    assert "still" not in run(words, shell.url, terminal=False, check=Exit.TIMED_OUT)[1]


@pytest.mark.parametrize(
    ("options", "variables"),
    [(["--plain"], {}), ([], {"FERROSCOPE_PLAIN": "1"}), ([], {"TERM": "dumb"})],
    ids=["option", "variable", "dumb"],
)
def test_who_wants_lines_gets_on_a_terminal_what_a_pipe_gets(
    service: Service, shell: Shell, tmp_path: Path, options: list[str], variables: dict[str, str]
) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(_NODES)
    run([*options, "node", "import", str(file)], shell.url, terminal=True, **variables)
    words = ["inspect", "n1", "n2", "--watch", "--timeout", "1", "-o", "json"]  # nobody carries it out here
    errors = run([*options, *words], shell.url, terminal=True, check=Exit.TIMED_OUT, **variables)[1]
    assert "0/2" in errors
    assert not {"\x1b", "━"} & set(errors)
