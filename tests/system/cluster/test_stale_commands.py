"""Commands of workers that were replaced meanwhile: a BMC would obey them, so they must not be sent.

Between a worker and the BMC stands a proxy that freezes the worker in the one moment that matters: its claim is
confirmed, and what it has sent was lost, so that the driver is about to send it once more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.support.cluster import network
from tests.support.processes import PATIENCE, free_port, spawn, until
from tests.support.pxe.netns import need_root

_COMMAND: Final = """
import sys, time
from ferroscope.bmc import DriverOptions
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
