"""The installation: HAProxy, api and worker processes, a simulated fleet in a process of its own, one database.

Processes are those of the installed command, each with its own configuration file, and die with the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec
import urllib3
from sqlalchemy import make_url

from bench.service import executable
from ferroscope.sim.client import FleetClient
from ferroscope.sim.enroll import enroll
from ferroscope.sim.roster import roster
from ferroscope.sim.settings import FleetSettings
from tests.cluster import network
from tests.cluster.balancer import Balancer
from tests.support.processes import free_port, signal_tree, spawn, tree, until

_READY: Final = 60.0


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


class Played:
    """One process of the service, which may be ended and started again."""

    def __init__(self, name: str, directory: Path, command: Sequence[str], net: network.Network | None = None) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.net = net
        self._command = command
        self._directory = directory
        self.starts = 0
        self.process: subprocess.Popen[bytes]
        self.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def start(self) -> None:
        """Start it; ``wait_ready`` tells when it is."""
        self._from = self.log.stat().st_size if self.log.exists() else 0
        self.process = spawn(self._command, user=None, directory=self._directory, log=self.log)
        self.starts += 1

    def wait_ready(self) -> None:
        """Return when it has logged that it is ready."""
        until(lambda: not self.alive or self.ready(), seconds=_READY)
        if not self.ready():
            raise RuntimeError(f"{self.name} did not become ready:\n{self.said()[-3000:]}")

    def ready(self) -> bool:
        return "ready" in self.said()

    def said(self) -> str:
        """Return what it has logged since it was last started."""
        return self.log.read_bytes()[self._from :].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL to the process alone."""
        self.process.kill()
        self.process.wait()

    def children(self) -> list[int]:
        return tree(self.pid)[1:]

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def freeze(self) -> None:
        signal_tree(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        signal_tree(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Whatever it does: it is over."""
        self.thaw()
        for pid in reversed(tree(self.pid)):
            if pid != self.pid:
                with_suppressed_kill(pid)
        self.kill()


def with_suppressed_kill(pid: int) -> None:
    """SIGKILL a process that may be gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Cluster:
    """``with Cluster(directory, url, plan) as cluster``: everything runs, and the fleet is enrolled."""

    def __init__(self, directory: Path, database_url: str, plan: Plan) -> None:
        self.directory = directory
        self.database_url = database_url
        self.plan = plan
        self.fleet_settings = FleetSettings(nodes=plan.nodes, special=plan.special)
        self.names = tuple(member.name for member in roster(self.fleet_settings))
        self._ending = ExitStack()
        self.apis: list[Played] = []
        self.workers: list[Played] = []

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    @property
    def url(self) -> str:
        """The Bare Metal API as clients see it."""
        return self.balancer.url

    def counters(self) -> FleetClient:
        """Return a connection to the fleet."""
        return FleetClient(self.fleet_address, timeout=30)

    def processes(self) -> list[Played]:
        return [*self.apis, *self.workers]

    def settle(self) -> None:
        """Wait until every process is ready."""
        for played in self.processes():
            played.wait_ready()

    def worker(self, number: int) -> Played:
        """Start one more worker and return it; it is not ready yet."""
        plan = self.plan
        net = self._network(number) if plan.isolated else None
        config = self._configure(f"worker-{number}", net)
        words = ["--processes", str(plan.supervised)] if plan.supervised else []
        command = [*(net.prefix if net else ()), executable(), "worker", "-c", str(config), *words]
        played = Played(f"worker-{number}", self.directory, command, net)
        self._ending.callback(played.end)
        self.workers.append(played)
        return played

    def _start(self) -> None:
        plan = self.plan
        ports = [(free_port(), free_port()) for _ in range(plan.apis)]
        self.balancer = Balancer(self.directory, ports)
        self._ending.callback(self.balancer.close)
        self._start_fleet()
        self._upgrade(self._configure("upgrade", None))
        for number, (bare_metal, introspection) in enumerate(ports, 1):
            extra = f"[api]\nhost = 127.0.0.1\nbare_metal_port = {bare_metal}\nintrospection_port = {introspection}\n"
            config = self._configure(f"api-{number}", None, extra)
            played = Played(f"api-{number}", self.directory, [executable(), "api", "-c", str(config)])
            self._ending.callback(played.end)
            self.apis.append(played)
        for number in range(1, plan.workers + 1):
            self.worker(number)
        self.balancer.wait_ready()
        self.settle()
        self._enroll()

    def _start_fleet(self) -> None:
        plan, port = self.plan, free_port()
        special = [word for name in plan.special for word in ("--special", name)]
        command = [
            executable(), "sim", "--nodes", str(plan.nodes), *special, "--port", str(port), "--api", self.url,
            "--boot-delay", str(plan.boot), "--boot-jitter", str(plan.boot / 2),
            "--bmc-delay", str(plan.bmc), "--bmc-jitter", str(plan.bmc / 2),
        ]  # fmt: skip
        log = self.directory / "fleet.log"
        process = spawn(command, user=None, directory=self.directory, log=log)
        self._ending.callback(process.wait)
        self._ending.callback(process.kill)
        self.fleet_pid = process.pid
        self.fleet_address = f"127.0.0.1:{port}"
        if not until(lambda: "machines at" in log.read_text(), seconds=_READY):
            raise RuntimeError(f"the fleet did not start: {log.read_text()}")

    def _network(self, number: int) -> network.Network:
        url = make_url(self.database_url)
        net = network.build(self.directory, number, database=f"{url.host}:{url.port}", bmcs=self.fleet_address)
        self._ending.callback(network.forget_routes)
        self._ending.callback(net.close)
        return net

    def _configure(self, name: str, net: network.Network | None, extra: str = "") -> Path:
        url = make_url(self.database_url)
        if net is not None:
            host, _, port = net.database.rpartition(":")
            url = url.set(host=host, port=int(port))
            # In its namespace nothing else listens there, and the BMCs are found where the nodes say.
        connection = url.render_as_string(hide_password=False)
        path = self.directory / f"{name}.conf"
        path.write_text(f"[database]\nconnection = {connection}\n{extra}{self.plan.options}")
        return path

    def _upgrade(self, config: Path) -> None:
        command = [executable(), "db", "upgrade", "-c", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ferroscope db upgrade: {done.stdout}{done.stderr}")

    def _enroll(self) -> None:
        done = enroll(roster(self.fleet_settings), api_url=self.url, sim_address=self.fleet_address)
        if done.failed:
            raise RuntimeError(f"could not enrol: {done.failed}")


def pool(size: int = 8) -> urllib3.PoolManager:
    """Return a client that never repeats anything by itself."""
    headers = {"X-OpenStack-Ironic-API-Version": "1.81"}
    return urllib3.PoolManager(maxsize=size, retries=False, timeout=30.0, headers=headers)
