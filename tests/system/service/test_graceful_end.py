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
from pathlib import Path
from typing import Any

from tests.support.installation import configuration
from tests.support.processes import HOURS, PATIENCE, free_port, until

_BMCS = 50


class Site:
    """Processes of one configuration, and BMCs that take connections and never say a word."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        more = (
            f"[drivers]\nbmc_networks = 127.0.0.0/8\nenabled = redfish\ncommand_timeout = {HOURS}\n"
            f"[worker]\ngraceful_timeout = 2\nmember_ttl = 2\n"
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


def test_silent_bmcs_hold_a_stop_up_for_the_graceful_time_alone(tmp_path: Path) -> None:
    with contextlib.closing(Site(tmp_path)) as site:
        service = site.run("all")
        site.ask(_BMCS)
        service.send_signal(signal.SIGTERM)
        assert service.wait(PATIENCE) == 0
        assert site.requests() == [(None, 0)] * _BMCS
