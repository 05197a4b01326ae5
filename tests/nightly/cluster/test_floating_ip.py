"""Two HAProxies with the floating IP of keepalived, configured as in deploy/, in a network namespace each."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bench.service import executable
from tests.support.cluster.hosts import BALANCERS, FLOATING_IP, LoadBalancer, Network
from tests.support.processes import until
from tests.support.pxe.netns import Netns


class Site(Network):
    """Two load balancers, two api processes and a client on one network."""

    def __init__(self, directory: Path, database: str) -> None:
        super().__init__(directory)
        self._database = database

    def _start(self) -> None:
        super()._start()
        for number, address in ((1, "192.0.2.11"), (2, "192.0.2.12")):
            config = self.directory / f"api-{number}.conf"
            config.write_text(
                f"[database]\nconnection = {self._database}\n[api]\nhost = {address}\nallow_anonymous = true\n"
                f"trusted_proxies = {','.join(BALANCERS)}\n"
            )
            space = self.host(f"api{number}", address)
            self.play(f"api-{number}", [*space.prefix, executable(), "api", "-c", str(config)]).wait_ready()
        self.client = self.host("client", "192.0.2.100")
        self.balance()


class Client(threading.Thread):
    """Calls the floating IP, and tries again at once; ``answered`` counts its successes."""

    def __init__(self, space: Netns) -> None:
        super().__init__(daemon=True)
        self._space = space
        self._ending = threading.Event()
        self.answered = 0

    def run(self) -> None:
        while not self._ending.wait(0.02):
            connection = http.client.HTTPConnection(FLOATING_IP, 6385, timeout=0.5)
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
            self.answered += 1

    def end(self) -> None:
        self._ending.set()
        self.join()

    def outlives(self, *, moved: Callable[[], bool]) -> None:
        """Wait until it has answers after a fault that nobody has repaired: the address has moved."""
        assert until(moved), "nobody else has the address"
        before = self.answered
        assert until(lambda: self.answered > before + 20), "nobody answers at the address"


FAULTS: Final[tuple[Callable[[LoadBalancer], object], ...]] = (
    LoadBalancer.kill_haproxy,
    lambda host: host.haproxy.freeze(),
    LoadBalancer.kill_keepalived,
    lambda host: host.space.ip("link", "set", "eth0", "down"),
)


@pytest.mark.timeout(900)
def test_a_client_that_tries_again_reaches_the_other_balancer(tmp_path: Path, sqlite_url: str) -> None:
    with Site(tmp_path, sqlite_url) as network:
        network.active()
        assert "invalid" not in "".join(host.keepalived.output() for host in network.balancers)
        client = Client(network.client)
        client.start()
        try:
            assert until(lambda: client.answered > 20)
            for fault in FAULTS:
                before = network.active()
                fault(before)
                client.outlives(
                    moved=lambda before=before: any(  # type: ignore[misc]
                        host.is_active for host in network.balancers if host is not before
                    ),
                )
                before.repair()
                assert network.active() is not before
        finally:
            client.end()
