"""The installation: HAProxy, api and worker processes, a simulated fleet in a process of its own, one database.

Processes are those of the installed command, each with its own configuration file, and die with the test.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import urllib3
from sqlalchemy import make_url

from bench.service import executable
from ferroscope_sim.client import FleetClient
from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from tests.support.cluster import network
from tests.support.cluster.balancer import Balancer
from tests.support.installation import Installation, Played
from tests.support.processes import PATIENCE, free_port
from tests.support.speed import slowness


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is built. ``supervised`` worker processes run under a supervisor each, ``isolated`` ones can be cut off."""

    apis: int = 2
    workers: int = 3
    supervised: int = 0
    isolated: bool = False
    nodes: int = 100
    special: tuple[str, ...] = ()
    boot: float = 0.5
    bmc: float = 0.01
    options: str = ""


class Cluster(Installation):
    """``with Cluster(directory, url, plan) as cluster``: everything runs, and the fleet is enrolled.

    The database is migrated already.
    """

    def __init__(self, directory: Path, database_url: str, plan: Plan) -> None:
        super().__init__(directory)
        self.database_url = database_url
        self.plan = plan
        self.fleet_settings = FleetSettings(nodes=plan.nodes, special=plan.special)
        self.names = tuple(member.name for member in roster(self.fleet_settings))
        self.apis: list[Played] = []
        self.workers: list[Played] = []
        self.nets: dict[str, network.Network] = {}  # of isolated workers, by name

    @property
    def url(self) -> str:
        """The Bare Metal API as clients see it."""
        return self.balancer.url

    def counters(self) -> FleetClient:
        """Return a connection to the fleet."""
        return FleetClient(self.fleet_address, timeout=PATIENCE)

    def processes(self) -> list[Played]:
        return [*self.apis, *self.workers]

    def settle(self) -> None:
        """Wait until every process is ready."""
        for played in self.processes():
            played.wait_ready()

    def worker(self, number: int) -> Played:
        """Start one more worker and return it; it is not ready yet."""
        plan = self.plan
        name = f"worker-{number}"
        net = self._network(name, number) if plan.isolated else None
        config = self._configure(name, net)
        words = ["--processes", str(plan.supervised)] if plan.supervised else []
        command = [*(net.prefix if net else ()), executable(), "worker", "-c", str(config), *words]
        self.workers.append(self.play(name, command))
        return self.workers[-1]

    def _start(self) -> None:
        plan = self.plan
        ports = [(free_port(), free_port()) for _ in range(plan.apis)]
        self.balancer = Balancer(self.directory, ports)
        self.after(self.balancer.end)
        fleet = self._start_fleet()
        for number, (bare_metal, introspection) in enumerate(ports, 1):
            extra = f"[api]\nhost = 127.0.0.1\nbare_metal_port = {bare_metal}\nintrospection_port = {introspection}\n"
            config = self._configure(f"api-{number}", None, extra)
            self.apis.append(self.play(f"api-{number}", [executable(), "api", "-c", str(config)]))
        for number in range(1, plan.workers + 1):
            self.worker(number)
        fleet.wait_ready("calling back to")
        self.balancer.wait_listens()
        self.settle()
        self._enroll()

    def _start_fleet(self) -> Played:
        plan, port = self.plan, free_port()
        special = [word for name in plan.special for word in ("--special", name)]
        command = [
            executable(), "sim", "--nodes", str(plan.nodes), *special, "--port", str(port), "--api", self.url,
            "--boot-delay", str(plan.boot), "--boot-jitter", str(plan.boot / 2),
            "--bmc-delay", str(plan.bmc), "--bmc-jitter", str(plan.bmc / 2),
            "--subnet", "0",  # elsewhere than at 127.0.0.1 the port is that of forwarders
        ]  # fmt: skip
        fleet = self.play("fleet", command)
        self.fleet_address = f"127.0.0.1:{port}"
        return fleet

    def _network(self, name: str, number: int) -> network.Network:
        url = make_url(self.database_url)
        net = network.build(self.directory, number, database=f"{url.host}:{url.port}", bmcs=self.fleet_address)
        self.after(net.close)
        self.nets[name] = net
        return net

    def _configure(self, name: str, net: network.Network | None, extra: str = "") -> Path:
        url = make_url(self.database_url)
        if net is not None:
            host, _, port = net.database.rpartition(":")
            url = url.set(host=host, port=int(port))
        connection = url.render_as_string(hide_password=False)
        path = self.directory / f"{name}.conf"
        path.write_text(
            f"[database]\nconnection = {connection}\n[drivers]\nenabled = sim,fake-hardware\n{extra}{self.plan.options}"
        )
        return path

    def _enroll(self) -> None:
        done = enroll(roster(self.fleet_settings), api_url=self.url, sim_address=self.fleet_address)
        if done.failed:
            raise RuntimeError(f"could not enrol: {done.failed}")


def pool(size: int = 8) -> urllib3.PoolManager:
    """Return a client that never repeats anything by itself."""
    headers = {"X-OpenStack-Ironic-API-Version": "1.81"}
    return urllib3.PoolManager(maxsize=size, retries=False, timeout=30.0 * slowness(), headers=headers)
