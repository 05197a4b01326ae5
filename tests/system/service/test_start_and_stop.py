"""The start and the end of a real process: its address, a port that is taken, a terminal or a file that is gone."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.installation import configuration
from tests.support.processes import PATIENCE, free_port, until

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Give a function that starts ``ferroscope all`` on a host and port, in ``tmp_path``, with its log there."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(port: int, *before: str, host: str = "127.0.0.1", allowed: bool = True) -> subprocess.Popen[bytes]:
        text = configuration(tmp_path, port, "[worker]\nthreads = 1\n")
        host = f"host = {host}\nallow_anonymous = {allowed}\n" if host else ""
        (tmp_path / "f.conf").write_text(text.replace("host = 127.0.0.1\n", host))
        command = [*before, sys.executable, "-m", "ferroscope", "all", "-c", "f.conf"]
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def _log(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("host", "shown", "warned"),
    [("127.0.0.1", "127.0.0.1", False), ("localhost", "127.0.0.1", False), ("::", "[::]", True)],
)
def test_the_start_says_where_it_listens_and_warns_where_others_reach_it(
    start: Start, tmp_path: Path, host: str, shown: str, warned: bool
) -> None:
    port = free_port()
    start(port, host=host)
    assert until(lambda: "ready" in _log(tmp_path))
    assert f"bare_metal={shown}:{port}" in _log(tmp_path)
    assert ("authentication is disabled" in _log(tmp_path)) is warned


def test_by_default_this_host_alone_reaches_the_service(start: Start, tmp_path: Path) -> None:
    port = free_port()
    start(port, host="")
    assert until(lambda: "ready" in _log(tmp_path))
    places = re.findall(rf"(?:bare_metal=|,)(\S+?):{port}", _log(tmp_path))
    assert set(places) <= {"127.0.0.1", "[::1]"}
    for place in places:
        socket.create_connection((place.strip("[]"), port), timeout=PATIENCE).close()
    with socket.create_server(("127.0.0.2", port)):  # another address of this host is free: nobody listens on all
        pass


def test_a_port_that_is_taken_is_said_before_anything_else_begins(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = start(port)
        assert process.wait(PATIENCE) == 1
    said = _log(tmp_path)
    assert str(port) in said
    assert "Address already in use" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "ferroscope.db").exists()


@pytest.mark.parametrize("before", [("env", "--default-signal=HUP"), ("nohup",)], ids=" ".join)
def test_a_terminal_that_is_closed_does_not_end_the_service(
    start: Start, tmp_path: Path, before: tuple[str, ...]
) -> None:
    process = start(free_port(), *before)
    assert until(lambda: "ready" in _log(tmp_path))
    process.send_signal(signal.SIGHUP)
    assert until(lambda: "reloaded" in _log(tmp_path))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert "signal=SIGTERM" in _log(tmp_path)
    with sqlite3.connect(tmp_path / "ferroscope.db") as connection:
        alive = connection.execute("SELECT COUNT(*) FROM members WHERE expires_at > ?", (time.time(),))
        assert alive.fetchone() == (0,)  # one that has left is remembered for a while
    connection.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_file_that_is_gone_ends_the_service(start: Start, tmp_path: Path, replaced: bool) -> None:
    process = start(free_port())
    assert until(lambda: "ready" in _log(tmp_path))
    for file in tmp_path.glob("ferroscope.db*"):
        file.unlink()
    if replaced:
        (tmp_path / "ferroscope.db").touch()
    assert process.wait(PATIENCE) == 69
    assert str(tmp_path / "ferroscope.db") in _log(tmp_path)
    assert "Traceback" not in _log(tmp_path)
