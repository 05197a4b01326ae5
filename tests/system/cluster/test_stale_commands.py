"""Commands of workers that were replaced meanwhile: a BMC would obey them, so they must not be sent.

Between a worker and the BMC stands a proxy that freezes the worker in the one moment that matters: its claim is
confirmed, and what it has sent was lost, so that the driver is about to send it once more.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import engine
from tests.support.cluster import network
from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.processes import PATIENCE, free_port, spawn, until
from tests.support.pxe.netns import need_root

_OPTIONS: Final = """
[worker]
member_ttl = 3
get_timeout = 1
[inspector]
timeout = 20
timeout_period = 1
"""
_NAME: Final = "sim-slow-1"
_HOLDER: Final = text("SELECT m.pid FROM requests r JOIN members m ON m.id = r.holder")
_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.95"}


class Freezer:
    """Passes the lines of BMC drivers on to the fleet; the first power-off is lost, and its worker frozen by then."""

    def __init__(self, fleet: str, database: str) -> None:
        host, _, port = fleet.rpartition(":")
        self._fleet = host, int(port)
        self._engine = engine.build_engine(DatabaseSettings(connection=database))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.frozen = 0
        self.commands: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self._engine.dispose()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, socket.create_connection(self._fleet) as fleet:
            lines, answers = connection.makefile("rb"), fleet.makefile("rb")
            for line in lines:
                if b"set_power" in line and b"power off" in line:
                    if not self.frozen:
                        self._freeze()
                        return  # the connection is closed without an answer
                    self.commands.append(line)
                fleet.sendall(line)
                connection.sendall(answers.readline())

    def _freeze(self) -> None:
        with self._engine.connect() as connection:
            pid = connection.execute(_HOLDER).scalar_one()
        os.kill(pid, signal.SIGSTOP)
        self.frozen = pid


@contextmanager
def freezer(cluster: Cluster) -> Iterator[Freezer]:
    between = Freezer(cluster.fleet_address, cluster.database_url)
    try:
        yield between
    finally:
        between.close()


def test_a_power_off_that_a_frozen_worker_was_about_to_send_does_not_come_after_its_successors_power_on(
    postgresql_url: str, tmp_path: Path
) -> None:
    plan = Plan(apis=1, workers=2, nodes=0, special=(_NAME,), boot=8.0, options=_OPTIONS)
    with Cluster(tmp_path, postgresql_url, plan) as cluster, freezer(cluster) as between, cluster.counters() as fleet:
        http, node = pool(1), f"{cluster.url}/v1/nodes/{cluster.names[0]}"
        fleet.call("set_power", node=cluster.names[0], power="power on")  # so that the start has to switch it off
        patch = [{"op": "replace", "path": "/driver_info/sim_address", "value": between.address}]
        assert http.request("PATCH", node, json=patch, headers=_VERSION).status == 200
        begin = http.request("PUT", f"{node}/states/provision", json={"target": "inspect"}, headers=_VERSION)
        assert begin.status == 202

        def state() -> Any:
            return http.request("GET", node, headers=_VERSION).json()["provision_state"]

        assert until(lambda: state() == "inspect wait"), "nobody took over"
        assert between.frozen
        assert len(between.commands) == 1
        os.kill(between.frozen, signal.SIGCONT)
        assert until(lambda: state() not in ("inspecting", "inspect wait"))
        counters = fleet.status().nodes[cluster.names[0]].counters
        timeline = http.request("GET", f"{node}/timeline", headers=_VERSION).json()
    assert state_of(timeline) == "finished", timeline
    assert (counters.power_ons, counters.pxe_boots, counters.ramdisks_interrupted) == (2, 1, 0)


def state_of(timeline: dict[str, Any]) -> str:
    """Return how the newest inspection ended."""
    return str(timeline["inspections"][0]["state"])


_COMMAND: Final = """
import sys, time
from ferroscope.bmc.drivers import DriverOptions
from ferroscope.bmc.sim.driver import SimBmc
from ferroscope.core.model import Node
from ferroscope.remote.command_fence import fence_commands
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
node = Node(uuid="n", driver="sim", driver_info={"sim_address": sys.argv[1], "sim_node": sys.argv[2]})
bmc = SimBmc(DriverOptions(command_timeout=4.0))
print(bmc.get_power(node), flush=True)
sys.stdin.readline()
until = time.monotonic() + 2.0
with fence_commands(lambda: until - time.monotonic()):
    try:
        bmc.set_power(node, Power.OFF)
    except BmcError as exc:
        print(exc, flush=True)
sys.stdin.readline()
"""


def test_a_command_that_a_cut_network_held_back_is_not_delivered_when_it_heals(tmp_path: Path) -> None:
    """The kernel would go on repeating what was written to the connection, for many minutes."""
    need_root()
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "ferroscope",
        "sim",
        "--nodes",
        "1",
        "--port",
        str(port),
        "--api",
        "http://127.0.0.1:1",
    ]
    fleet = spawn([*command, "--subnet", "0"], user=None, directory=tmp_path, log=tmp_path / "fleet.log")
    try:
        assert until(lambda: "calling back to" in (tmp_path / "fleet.log").read_text())
        from ferroscope_sim.client import FleetClient

        with FleetClient(f"127.0.0.1:{port}", timeout=PATIENCE) as machines:
            (name,) = machines.status().nodes
            machines.call("set_power", node=name, power="power on")
            net = network.Namespace(tmp_path, 9, database=f"127.0.0.1:{port}", bmcs=f"127.0.0.1:{port}")
            try:
                _cut_off(net, name)
                assert machines.status().nodes[name].counters.power_offs == 0
            finally:
                net.close()
    finally:
        fleet.kill()
        fleet.wait()


def _cut_off(net: network.Namespace, name: str) -> None:
    """Command a power-off over the link to the "database", which a namespace can cut; return long after it healed."""
    worker = subprocess.Popen(
        [*net.prefix, sys.executable, "-c", _COMMAND, net.database, name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline() == "power on\n"
        net.cut()
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert "failed" in worker.stdout.readline()
        net.heal()
        time.sleep(10.0)  # the kernel repeats after 0.2, 0.4, 0.8, 1.6, 3.2 and 6.4 s
    finally:
        worker.kill()
        worker.wait()
        worker.stdin.close()
        worker.stdout.close()
