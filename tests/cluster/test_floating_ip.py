"""Two HAProxies with the floating IP of keepalived, configured as in deploy/, in a network namespace each."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bench.service import executable
from tests.cluster.balancer import SHIPPED, program
from tests.pxe import netns
from tests.pxe.netns import Netns
from tests.support.installation import Installation
from tests.support.processes import SLACK, until
from tests.support.web_servers import DEPLOY, changed

_FLOATING: Final = "192.0.2.10"
# What is promised, for a client that tries again at once; a busy machine may take longer.
_PROMISED: Final = 3.0


class Host(Installation):
    """One load balancer; ``number`` 0 or 1."""

    def __init__(self, directory: Path, number: int, space: Netns) -> None:
        super().__init__(directory)
        self.number, self.space = number, space

    def _start(self) -> None:
        directory = self.directory
        directory.mkdir()
        own, other = ("192.0.2.8", "192.0.2.9") if self.number == 0 else ("192.0.2.9", "192.0.2.8")
        config = directory / "keepalived.conf"
        config.write_text(
            changed(
                DEPLOY / "keepalived/keepalived.conf",
                {
                    "unicast_src_ip 192.0.2.8\n    unicast_peer {\n        192.0.2.9": (
                        f"unicast_src_ip {own}\n    unicast_peer {{\n        {other}"
                    ),
                    # The checkout may be in a directory of a user, which others may not enter.
                    "/etc/keepalived/check-haproxy": str(DEPLOY / "keepalived/check-haproxy"),
                    "    enable_script_security\n": "",
                    "user nobody": "user root",
                },
            )
        )
        keepalived = shutil.which("keepalived", path="/usr/sbin")
        if keepalived is None:
            raise RuntimeError("the tests need the Debian package keepalived; run: tools/setup.sh servers")
        pids = [word for option in "prc" for word in (f"-{option}", str(directory / f"{option}.pid"))]
        words = ["--dont-fork", "--log-console", "--vrrp", "--use-file", str(config), *pids]
        self.haproxy = self.play("haproxy", [*self.space.prefix, program(), "-db", "-f", str(SHIPPED)])
        self.keepalived = self.play("keepalived", [*self.space.prefix, keepalived, *words])

    @property
    def is_active(self) -> bool:
        return f" {_FLOATING}/" in self.space.ip("address", "show", "dev", "eth0")

    @property
    def state(self) -> str:
        """The state that keepalived has logged last."""
        return ("", *re.findall(r"Entering (\w+) STATE", self.keepalived.said()))[-1]


class Network(Installation):
    """Two load balancers, two api processes and a client on one network; the addresses are those of the examples."""

    def __init__(self, directory: Path, database: str) -> None:
        super().__init__(directory)
        self._database = database

    def _start(self) -> None:
        netns.need_root()
        netns.sweep()
        self._switch = self._space("switch")
        netns.bridge(self._switch, "br0")
        for number, address in ((1, "192.0.2.11"), (2, "192.0.2.12")):
            config = self.directory / f"api-{number}.conf"
            config.write_text(
                f"[database]\nconnection = {self._database}\n[api]\nhost = {address}\nallow_anonymous = true\n"
                "trusted_proxies = 192.0.2.8,192.0.2.9\n"
            )
            space = self._host(f"api{number}", address)
            self.play(f"api-{number}", [*space.prefix, executable(), "api", "-c", str(config)]).wait_ready()
        self.client = self._host("client", "192.0.2.100")
        self.hosts: list[Host] = []
        for number, address in enumerate(("192.0.2.8", "192.0.2.9")):
            host = Host(self.directory / f"host-{number}", number, self._host(f"lb{number}", address))
            self.hosts.append(self._ending.enter_context(host))

    def _space(self, tag: str) -> Netns:
        space = Netns(tag)
        self.after(space.close)
        return space

    def _host(self, tag: str, address: str) -> Netns:
        space = self._space(tag)
        netns.connect(space, "eth0", self._switch, tag)
        self._switch.ip("link", "set", tag, "master", "br0")
        space.ip("address", "add", f"{address}/24", "dev", "eth0")
        return space

    def active(self) -> Host:
        """Wait until one host has the address and the other one is ready to take it; return the first."""
        assert until(lambda: sum(host.is_active for host in self.hosts) == 1)
        assert until(lambda: {host.state for host in self.hosts} == {"MASTER", "BACKUP"})
        return next(host for host in self.hosts if host.is_active)


class Client(threading.Thread):
    """Calls the floating IP, and tries again at once; ``longest`` is the longest time without success."""

    def __init__(self, space: Netns) -> None:
        super().__init__(daemon=True)
        self._space = space
        self._ending = threading.Event()
        self.answered = 0
        self.longest = 0.0
        self.last = time.monotonic()

    def run(self) -> None:
        while not self._ending.wait(0.02):
            connection = http.client.HTTPConnection(_FLOATING, 6385, timeout=0.5)
            try:
                with self._space.entered():
                    connection.connect()
                connection.request("GET", "/v1/nodes?limit=1")
                if connection.getresponse().status != 200:
                    continue
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
            now = time.monotonic()
            self.longest, self.last = max(self.longest, now - self.last), now
            self.answered += 1

    def end(self) -> None:
        self._ending.set()
        self.join()

    def outage(self, fault: Callable[[], object]) -> float:
        """Return for how many seconds it had no success because of ``fault``."""
        self.longest = 0.0
        fault()
        began = time.monotonic()
        # It goes on when the fault is over; a fault that is noticed later, such as an expired timer, counts too.
        assert until(lambda: self.last > began + 4), "nobody has the address"
        return self.longest


def _kill_haproxy(host: Host) -> None:
    os.killpg(host.haproxy.pid, signal.SIGKILL)


def _freeze_haproxy(host: Host) -> None:
    host.haproxy.freeze()


def _kill_keepalived(host: Host) -> None:
    os.killpg(host.keepalived.pid, signal.SIGKILL)


def _unplug(host: Host) -> None:
    host.space.ip("link", "set", "eth0", "down")


def _repair(host: Host) -> None:
    host.haproxy.thaw()
    host.space.ip("link", "set", "eth0", "up")
    for played in (host.haproxy, host.keepalived):
        if not played.alive or not played.children():
            played.end()
            played.start()


FAULTS: Final = {
    "kill -9 of HAProxy": _kill_haproxy,
    "HAProxy frozen": _freeze_haproxy,
    "kill -9 of keepalived": _kill_keepalived,
    "host cut off": _unplug,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_a_client_that_tries_again_reaches_the_other_balancer_within_seconds(
    rounds: int, tmp_path: Path, sqlite_url: str
) -> None:
    with Network(tmp_path, sqlite_url) as network:
        network.active()
        assert "invalid" not in "".join(host.keepalived.said() for host in network.hosts)
        client = Client(network.client)
        client.start()
        try:
            assert until(lambda: client.answered > 20)
            for name, fault in FAULTS.items():
                outages = []
                for _ in range(rounds):
                    before = network.active()
                    outages.append(client.outage(lambda fault=fault, before=before: fault(before)))
                    assert until(
                        lambda before=before: any(host.is_active for host in network.hosts if host is not before)
                    )
                    _repair(before)
                    assert network.active() is not before
                print(f"{name}: {statistics.median(outages):.2f} s (median), {max(outages):.2f} s (worst of {rounds})")
                assert max(outages) < _PROMISED + SLACK
        finally:
            client.end()
