"""What operators do: in the inventory with the product's own store, in the cluster, and to its controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ferroscope.contracts.errors import StoreError
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, MACHINE, PAUSED
from ferroscope.contrib.kubernetes.role import start_inspection
from ferroscope.runtime.backend import open_backend
from tests.simulation.kernel import Owner
from tests.simulation.kubernetes.places import Info
from tests.simulation.threads import Flag

if TYPE_CHECKING:
    from ferroscope.db import Transaction
    from tests.simulation.kubernetes.cluster import Cluster
    from tests.simulation.kubernetes.machines import Machine


def pause_all(tx: Transaction, cluster: str, why: str) -> None:
    """Stop all remediation, as ``ferroscope failover pause --why`` does."""
    tx.remediations.pause(cluster, why, "operator")


def resume_all(tx: Transaction, cluster: str) -> None:
    """Let it go on, as ``ferroscope failover resume`` does."""
    tx.remediations.resume(cluster)


class Desk:
    """The operators of one cluster. What they forbid and allow, the check is told as soon as it is in force."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kernel = cluster.kernel

    # The inventory.

    def write(self, work: Callable[[Transaction], object]) -> None:
        """Write to the database from a process of its own, until it is written."""
        kernel, world = self._kernel, self._cluster.world
        host, settings = self._cluster.hosts[0], world.settings_of(self._cluster.hosts[0])

        def attempt() -> bool:
            backend = open_backend(settings, clock=host.clock, stop=Flag(kernel), listen=False)
            try:
                backend.store.write(work)
            except StoreError:
                return False
            finally:
                backend.close()
            return True

        def run() -> None:
            while not attempt():
                kernel.sleep(1.0)

        task = kernel.spawn(Owner("operator", host=host), "operator", run)
        while not task.done:
            kernel.sleep(0.1)

    def change(self, machine: Machine, **fields: Any) -> None:
        """Change fields of the machine's entry."""
        self.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(machine.uuid, lock=True), **fields)))

    def set_address(self, machine: Machine, info: Info) -> None:
        machine.say(f"its entry has the BMC address {info}")
        self.change(machine, driver=next(iter(info)).removesuffix("_address"), driver_info=info)

    # The cluster.

    def annotate(self, name: str, key: str, value: str | None) -> None:
        """Set an annotation of the node, or remove it."""
        node = self._cluster.objects.get("nodes", name)
        if node is not None and node["metadata"]["annotations"].get(key) != value:
            self._kernel.say(f"annotation {key} of {name} is now {value}", "operator")
            node["metadata"]["annotations"].pop(key, None)
            if value is not None:
                node["metadata"]["annotations"][key] = value
            self._cluster.objects.put("nodes", node)

    def name_machine(self, name: str, machine: str | None) -> None:
        self.annotate(name, MACHINE, machine)

    def confirm_off(self, machine: Machine) -> None:
        node = self._cluster.node_of(machine)
        assert node is not None
        self.annotate(machine.node, CONFIRMED_OFF, node["status"]["nodeInfo"]["bootID"])

    def cordon(self, name: str, *, cordoned: bool) -> None:
        if (node := self._cluster.objects.get("nodes", name)) is not None:
            self._kernel.say(f"{name} is {'' if cordoned else 'un'}cordoned", "operator")
            node["spec"]["unschedulable"] = cordoned
            self._cluster.objects.put("nodes", node)

    def delete_node(self, name: str) -> None:
        self._kernel.say(f"node {name} is deleted", "operator")
        self._cluster.check.deleted.add(name)
        self._cluster.objects.remove("nodes", name)
        self._cluster.objects.remove("leases", name)

    def restart(self, **options: Any) -> None:
        """Restart the controllers of this cluster with these options; return when the last old one has ended."""
        self._kernel.say(f"the controllers are restarted with {options}", "operator")
        self._cluster.options |= options
        old = [one for one in self._cluster.world.running if one.host in self._cluster.hosts]
        for process in old:
            process.terminate()
        while not all(one.owner.dead for one in old):
            self._kernel.sleep(0.1)

    # Prohibitions.

    def forbid(self, kind: str, machine: Machine) -> None:
        """Forbid to power off the machine."""
        name = machine.node
        machine.say(f"an operator forbids to power it off: {kind}")
        if kind == "disable_power_off":
            self._set_attribute(machine, on=True)
        elif kind == "power_off = false":
            self.restart(power_off=False)
        elif kind == "paused":
            self.annotate(name, PAUSED, "true")
        elif kind == "maintenance":
            self.change(machine, maintenance=True)
        elif kind == "cordoned":
            self.cordon(name, cordoned=True)
        elif kind == "inspection":
            self._inspect(machine)
        else:
            self.write(lambda tx: pause_all(tx, self._cluster.name, "maintenance of the hall"))
        self._cluster.check.forbid(machine, kind)

    def allow(self, kind: str, machine: Machine) -> None:
        """Take the prohibition back, unless it is an inspection, which nobody carries out."""
        name = machine.node
        machine.say(f"an operator allows to power it off: {kind}")
        if kind == "disable_power_off":
            self._set_attribute(machine, on=False)
        elif kind == "power_off = false":
            self.restart(power_off=True)
        elif kind == "paused":
            self.annotate(name, PAUSED, None)
        elif kind == "maintenance":
            self.change(machine, maintenance=False)
        elif kind == "cordoned":
            self.cordon(name, cordoned=False)
        elif kind == "all paused":
            self.write(lambda tx: resume_all(tx, self._cluster.name))
        self._cluster.check.allow(machine, kind)

    def _set_attribute(self, machine: Machine, *, on: bool) -> None:
        def work(tx: Transaction) -> None:
            node = tx.nodes.get(machine.uuid, lock=True)
            attributes = {**node.attributes, "disable_power_off": on}
            tx.nodes.update(msgspec.structs.replace(node, attributes=attributes))

        self.write(work)

    def _inspect(self, machine: Machine) -> None:
        settings = self._cluster.world.settings_of(self._cluster.hosts[0])
        self.write(lambda tx: start_inspection(settings, {}, tx, machine.uuid))
