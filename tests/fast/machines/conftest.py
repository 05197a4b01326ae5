"""A controller of Machines on a small API server and the shipped store, stepped by the test."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.config.options import DatabaseSettings, DriverSettings, MachinesSettings, Settings
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Lease, Node
from ferroscope.core.reasons import Reason
from ferroscope.machines.client import Machines, MachineWatch
from ferroscope.machines.controller import MachineController
from ferroscope.runtime import machines as role
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import databases
from tests.support.faulty_machines import FaultyMachines
from tests.support.servers import memory_directory

BMC = {"driver": "redfish", "address": "https://192.0.2.10", "credentialsSecret": "bmc"}
MAC = "52:54:00:00:00:01"


class Clock:
    """The host's clock, plus what the test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return SystemClock().time() + self.ahead

    def monotonic(self) -> float:
        return SystemClock().monotonic() + self.ahead


class Led:
    """A leadership; it is lost after that many calls of ``keep_alive``."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.epoch = lease.epoch

    def keep_alive(self) -> None:
        pass


class Stage:
    """``settle``: steps until nothing is left to do, with what a watch would have told."""

    def __init__(self, api: FaultyMachines, directory: Path, **options: Any) -> None:
        self.api = api
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }))  # fmt: skip
        options = {"kubeconfig": str(kubeconfig), "request_timeout": 2.0, **options}
        self.settings = Settings(
            database=DatabaseSettings(connection=databases.sqlite(directory)),
            drivers=DriverSettings(enabled=("redfish", "fake-hardware")),
            machines=MachinesSettings(**options),
        )
        self.stop, self.clock = threading.Event(), Clock()
        self.kube = role.connect(self.settings.machines)
        self.backend: Backend = open_backend(self.settings, clock=SystemClock(), stop=self.stop, listen=False)
        self.lead()
        self._nodes = role.open_nodes(self.settings, self.backend, self.stop)
        self.nodes = self._nodes.__enter__()
        self.restart()

    def lead(self) -> None:
        """Become the leader, whoever leads."""

        def take(tx: Transaction) -> Lease:
            for lease in tx.leases.list("machines/default"):
                tx.leases.release(msgspec.structs.replace(lease, token=self.leading.lease.token))
            return tx.leases.acquire("machines/default", "me", 600.0)

        self.leading = Led(self.backend.store.write(take))

    def restart(self) -> None:
        """Begin anew, as another process."""
        self.machines = Machines()
        wanted = self.settings.machines
        self.watch = MachineWatch(self.kube, "", self.machines, self.stop, resync=wanted.resync)
        self.task = MachineController(self.kube, self.nodes, self.machines, wanted, clock=self.clock)

    def step(self, *, ahead: float = 2.0) -> str:
        """Step once, with all Machines as they are."""
        self.clock.ahead += ahead
        self.machines.replace("", self.kube.machines("")[0])
        return self.task.step(self.leading)

    def settle(self, steps: int = 4) -> str:
        return [self.step() for _ in range(steps)][-1]

    def close(self) -> None:
        self.stop.set()
        self._nodes.__exit__(None, None, None)
        self.backend.close()
        self.kube.close()

    # What the tests look at.

    def every(self) -> list[Node]:
        return list(self.backend.store.read(lambda tx: tx.nodes.list(Query())))

    def node(self, name: str = "a") -> Node:
        found: Node = self.backend.store.read(lambda tx: tx.nodes.get(name))
        return found

    def macs(self, name: str = "a") -> list[str]:
        uuid = self.node(name).uuid
        ports = self.backend.store.read(lambda tx: tx.ports.list(Query(filters={"node": uuid})))
        return sorted(port.address for port in ports)

    def change(self, name: str, **fields: Any) -> None:
        """Change a node elsewhere."""

        def work(tx: Transaction) -> None:
            node = tx.nodes.get(name, lock=True)
            for field, value in fields.items():
                setattr(node, field, value)
            tx.nodes.update(node)

        self.backend.store.write(work)

    def end_inspection(self, name: str = "a") -> None:
        """Have the inspection of a node fail."""

        def work(tx: Transaction) -> None:
            node, inspection = tx.nodes.locked(self.node(name).uuid)
            transition.fail(tx, node, Fail(Reason.BMC_UNREACHABLE, "timed out"), inspection)

        self.backend.store.write(work)

    def written(self) -> list[tuple[str, str, str, str]]:
        """Return what was written to Kubernetes since the last call."""
        found, self.api.writes = self.api.writes, []
        return found


@pytest.fixture
def api() -> Iterator[FaultyMachines]:
    with FaultyMachines() as found:
        found.secret("bmc", username="root", password="correct horse")
        yield found


@pytest.fixture
def stage(api: FaultyMachines, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Give a stage; ``@pytest.mark.parametrize("stage", [{...}], indirect=True)`` sets its options."""
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        found = Stage(api, Path(directory), **getattr(request, "param", {}))
        yield found
        api.released.set()
        found.close()
