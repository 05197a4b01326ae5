"""The service manager's watchdog: notified in time, by the right process, and only while the HTTP loop runs."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ferroscope.config.options import ApiSettings
from ferroscope.http_server import server as http_server
from ferroscope.http_server.server import HttpServer, bind
from ferroscope.runtime.system import SystemdWatchdog
from tests.support.processes import PATIENCE, until


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """Return the socket of a service manager that expects a notification every 4 seconds."""
    path = str(tmp_path / "notify")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(path)
    manager.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    return manager


def _count(manager: socket.socket) -> int:
    count = 0
    while True:
        try:
            assert manager.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            return count
        count += 1


def test_it_is_notified_twice_in_its_time(heard: socket.socket) -> None:
    now = 100.0
    watchdog = SystemdWatchdog(lambda: now)
    assert watchdog.interval == 2.0
    counts = []
    for now in (100.0, 101.0, 102.0, 103.9, 104.1):  # noqa: B007  # the clock
        watchdog.ping()
        counts.append(_count(heard))
    assert counts == [1, 0, 1, 0, 1]
    heard.close()


@pytest.mark.parametrize(("pid", "expected"), [("", 1), ("own", 1), ("1", 0)])
def test_only_the_process_that_is_watched_notifies(
    heard: socket.socket, monkeypatch: pytest.MonkeyPatch, pid: str, expected: int
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    SystemdWatchdog().ping()
    assert _count(heard) == expected
    heard.close()


def test_a_server_whose_loop_hangs_is_not_responsive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_HANG_SECONDS", 2.0)
    released = threading.Event()
    certificates: Any = SimpleNamespace(refresh=lambda: released.wait(PATIENCE))  # the loop calls it once per second
    server = HttpServer(lambda *_: [], ApiSettings(), [bind("127.0.0.1", 0)], certificates=certificates)
    server.start()
    try:
        assert server.is_responsive()
        assert until(lambda: not server.is_responsive())
        released.set()
        assert until(server.is_responsive)
    finally:
        released.set()
        server.stop(5)
