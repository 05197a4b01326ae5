"""Real processes that are asked to stop while BMCs do not answer: in time, and nothing is taken away or counted."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.installation import configuration
from tests.support.processes import HOURS, PATIENCE, free_port, until

_BMCS = 50
_GRACE = 6.0
# What a process needs to end, beside what it waits for: on a busy machine.


class Site:
    """Processes of one configuration, and BMCs that take connections and never say a word."""

    def __init__(self, directory: Path, *, grace: float, command: float) -> None:
        self.directory = directory
        self.port = free_port()
        more = (
            f"[drivers]\nbmc_networks = 127.0.0.0/8\nenabled = redfish\ncommand_timeout = {command}\n"
            f"[worker]\ngraceful_timeout = {grace}\nmember_ttl = 2\n"
        )
        (directory / "f.conf").write_text(configuration(directory, self.port, more))
        self._silent = socket.create_server(("0.0.0.0", 0), backlog=4 * _BMCS)  # each BMC has an address of 127/8
        self._taken: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()
        self._started: list[subprocess.Popen[bytes]] = []
        upgrade = [sys.executable, "-m", "ferroscope", "db", "upgrade", "-c", "f.conf"]
        subprocess.run(upgrade, cwd=directory, check=True, capture_output=True)

    def run(self, role: str) -> subprocess.Popen[bytes]:
        log = self.directory / f"log-{len(self._started)}"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "ferroscope", role, "-c", "f.conf"]
            process = subprocess.Popen(command, cwd=self.directory, stdout=output, stderr=output)
        self._started.append(process)
        assert until(lambda: "ready " in log.read_text()), log.read_text()
        return process

    def ask(self, bmcs: int) -> None:
        """Make nodes and let their BMCs be asked; return when all of them are."""
        for number in range(bmcs):
            name, address = f"n{number}", f"http://127.0.{number}.9:{self._silent.getsockname()[1]}"
            self._call("POST", "/v1/nodes", name=name, driver="redfish", driver_info={"redfish_address": address})
            self._call("PUT", f"/v1/nodes/{name}/states/provision", target="manage")
        assert until(lambda: [holder is None for holder, _ in self.requests()] == [False] * bmcs)

    def _call(self, method: str, path: str, **body: Any) -> None:
        headers = {"X-OpenStack-Ironic-API-Version": "1.95", "Content-Type": "application/json"}
        url, data = f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode()
        urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=PATIENCE).close()

    def requests(self) -> list[tuple[str | None, int]]:
        """Return holder and attempt of every request there is."""
        with contextlib.closing(sqlite3.connect(self.directory / "ferroscope.db", timeout=PATIENCE)) as database:
            return database.execute("SELECT holder, attempt FROM requests ORDER BY id").fetchall()

    def refuse(self) -> None:
        """Let the BMCs take no more connections, and close those that they have."""
        self._silent.shutdown(socket.SHUT_RDWR)
        for one in self._taken:
            one.close()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
        for one in (self._silent, *self._taken):
            one.close()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(self._silent.accept()[0])


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Give a site of these times."""
    built = Site(tmp_path, **request.param)
    yield built
    built.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to stop, and wait until it has."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("site", [{"grace": 2.0, "command": HOURS}], indirect=True)
def test_silent_bmcs_hold_a_stop_up_for_the_graceful_time_alone(site: Site) -> None:
    service = site.run("all")
    site.ask(_BMCS)
    stop(service)
    assert site.requests() == [(None, 0)] * _BMCS


@pytest.mark.parametrize("site", [{"grace": _GRACE, "command": HOURS}], indirect=True)
def test_calls_and_requests_have_one_deadline_and_nothing_is_begun_meanwhile(site: Site) -> None:
    service = site.run("all")
    site.ask(_BMCS)
    with socket.create_connection(("127.0.0.1", site.port)) as caller:
        caller.sendall(b"POST /v1/continue_inspection HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        stop(service)
    assert site.requests() == [(None, 0)] * _BMCS


@pytest.mark.parametrize("site", [{"grace": HOURS, "command": HOURS}], indirect=True)
def test_what_a_stopping_worker_works_at_is_not_taken_from_it(site: Site) -> None:
    site.run("api")
    first = site.run("worker")
    site.ask(5)
    holders = {holder for holder, _ in site.requests()}
    site.run("worker")
    first.send_signal(signal.SIGTERM)
    # For longer than a silent member counts as alive.
    assert not until(lambda: {holder for holder, _ in site.requests()} != holders, seconds=4)
    assert {attempt for _, attempt in site.requests()} == {1}
    site.refuse()
    assert first.wait(PATIENCE) == 0
