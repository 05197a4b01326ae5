"""A cluster with a dead node, its machine and a BMC, for the controller: a small API server and the shipped store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError, LeaseLostError
from ferroscope.contrib.kubernetes.failover.client import Kubernetes
from ferroscope.contrib.kubernetes.failover.controller import Failover
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.core.model import LeaseClaim
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope_client.core.finding import Finding
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.support import examples
from tests.support.faulty_kubernetes import FaultyKubernetes
from tests.support.manual_clock import ManualClock
from tests.support.stores import open_store


class Leading:
    """A leadership; ``lost`` after that many calls of ``keep_alive``."""

    def __init__(self, lease: LeaseClaim, lost: int = 1_000_000) -> None:
        self._lease = lease
        self.calls_left = lost

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def seconds_left(self) -> float:
        return 5.0

    def keep_alive(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise LeaseLostError("killed")

    def fence(self, tx: Transaction) -> None:
        self.keep_alive()
        tx.leases.hold(self._lease)


class Bmcs:
    """A BMC. Commands take effect at once."""

    def __init__(self) -> None:
        self.off = False
        self.silent = False
        self.commands: list[bool] = []
        self.identities: dict[str, MachineIdentity] = {}
        self.addresses_of: dict[str, frozenset[str]] = {}
        self.identity_of: MachineIdentity | None = MachineIdentity(uuid=SYSTEM_UUID)

    def identity(self, machine: str) -> MachineIdentity | None:
        return self.identities.get(machine, self.identity_of)

    def addresses(self, machine: str) -> frozenset[str]:
        return self.addresses_of.get(machine, frozenset())

    def state(self, machine: str) -> tuple[Power, bool | None]:
        if self.silent:
            raise BmcError("timed out", transient=True)
        return Power.OFF if self.off else Power.ON, None

    def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        assert left() > 0
        self.commands.append(on)
        self.off = not on


class Site:
    def __init__(self, api: FaultyKubernetes, kube: Kubernetes) -> None:
        self.api, self.kube, self.clock, self.power = api, kube, ManualClock(), Bmcs()
        self.store = open_store(clock=self.clock)
        identity = {"serial": None, "uuid": SYSTEM_UUID, "macs": []}
        self.machine = examples.node(name="m1", internal={machine_identity.IDENTITY: identity})
        self.store.write(lambda tx: tx.nodes.add(self.machine))
        self.tasks: list[Failover] = []
        for name in ("n2", "n3"):
            api.put("nodes", node_document(name))
        self.fail()

    def fail(self) -> None:
        dead = node_document("n1", "Unknown")
        dead["status"]["nodeInfo"]["systemUUID"] = SYSTEM_UUID
        self.api.put("nodes", dead)
        self.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": "t1"}})
        self.api.put("pods", pod_document("db-0"))
        self.api.put("attachments", {"metadata": {"name": "va"}, "spec": {"attacher": "x", "nodeName": "n1"}})

    def second(self) -> None:
        """Have another node, n2, fail at the same time; it has a machine of its own."""
        other_uuid = SYSTEM_UUID.replace("4c4c", "5d5d")
        identity = {"serial": None, "uuid": other_uuid, "macs": []}
        machine = examples.node(name="m2", internal={machine_identity.IDENTITY: identity})
        self.power.identities[machine.uuid] = MachineIdentity(uuid=other_uuid)
        self.store.write(lambda tx: tx.nodes.add(machine))
        dead = node_document("n2", "Unknown")
        dead["status"]["nodeInfo"]["systemUUID"] = other_uuid
        self.api.put("nodes", dead)
        self.api.put("leases", {"metadata": {"name": "n2"}, "spec": {"renewTime": "t1"}})
        self.api.put("pods", pod_document("db-1", "n2"))

    def task(self, **options: Any) -> Failover:
        options = {"cluster": "c", "clock": self.clock} | options
        task = Failover(self.kube, self.power, self.store, options.pop("rules", FailoverRules()), **options)
        self.tasks.append(task)
        return task

    def lead(self, lost: int = 1_000_000) -> Leading:
        """Win the lease, whoever had it: time passes until it is free."""
        self.clock.now += 7.0
        return Leading(self.store.write(lambda tx: tx.leases.acquire("failover/c", "me", 6.5)), lost)

    def led(self, number: int, **options: Any) -> tuple[Failover, Leading]:
        """Return a controller that leads, after so many passes."""
        task, leading = self.task(**options), self.lead()
        self.passes(task, leading, number)
        return task, leading

    def passes(self, task: Failover, leading: Leading, number: int, every: float = 5.5) -> str:
        said = ""
        for _ in range(number):
            self.clock.now += every
            said = task.step(leading)
        return said

    @staticmethod
    def problems(task: Failover) -> list[Finding]:
        """Return the problems but that the ready nodes n2 and n3 have no machines."""
        return [problem for problem in task.problems if problem.code != "failover-not-protected"]

    def records(self) -> list[Any]:
        return list(self.store.read(lambda tx: tx.remediations.newest("c", 10)))
