"""What goes wrong in the cluster, drawn one after the other from the seed, and how it is mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.kubernetes.objects import ready

if TYPE_CHECKING:
    from tests.simulation.kubernetes.cluster import Cluster
    from tests.simulation.kubernetes.machines import Machine


class Mishaps:
    """``work`` lets them happen until the scenario's active time is over; ``stop`` mends everything.

    Every second mishap, if there is a choice, befalls a node that has failed already: alone, it would mean little.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kernel = cluster.kernel
        self._rng = cluster.kernel.rng("mishaps")
        self._promised: set[Machine] = set()  # spares that replace a node's machine, or will
        self.active = True
        self.stopped_at = 1e9

    def work(self) -> None:
        site = self._cluster.site
        if not site.mishaps:
            return
        self._kernel.sleep(20.0)
        while self.active:
            kind = self._rng.choice(site.mishaps)
            self._cluster.world.count(f"mishap: {kind}")
            getattr(self, "_" + kind.replace(" ", "_"))()
            self._kernel.sleep(min(self._rng.expovariate(1 / site.mean), 4 * site.mean))

    def stop(self) -> None:
        """No more mishaps: what is cut is mended, what hangs is started again, and operators come."""
        cluster = self._cluster
        self._say("no more mishaps")
        self.active, self.stopped_at = False, self._kernel.now
        cluster.is_api_on, cluster.api_loss, cluster.api_slowness = True, 0.0, 1.0
        cluster.away.clear()
        for machine in cluster.machines:
            machine.bmc.mend()
            machine.cut = machine.hung = machine.broken = machine.unwell = False
            if machine.node and not machine.on and (machine.crossed or not machine.switched_off_by_us):
                machine.power(on=True, why="by an operator")
            machine.boot_again()
            machine.restart_kubelet()
        for node in cluster.objects.all("nodes"):
            if node["spec"].pop("unschedulable", None):
                cluster.objects.put("nodes", node)

    # Who it befalls.

    def _any(self) -> Machine:
        joined = [one for one in self._cluster.machines if one.node]
        failed = [one for one in joined if not one.works or one.node in self._cluster.not_ready_since]
        return self._rng.choice(failed if failed and self._rng.random() < 0.5 else joined)

    def _for(self, low: float, high: float, act: Callable[..., object], *arguments: Any) -> None:
        self._kernel.at(self._rng.uniform(low, high), self._if_active, act, *arguments)

    def _if_active(self, act: Callable[..., object], *arguments: Any) -> None:
        if self.active:
            act(*arguments)

    def _set(self, where: object, name: str, value: object) -> None:
        setattr(where, name, value)

    # Nodes.

    def _kubelet_hangs(self) -> None:
        machine = self._any()
        machine.hung = True
        machine.say("its kubelet hangs")
        if self._rng.random() < 0.4:
            self._for(10.0, 120.0, self._set, machine, "hung", False)

    def _partition(self) -> None:
        machine = self._any()
        self._cut(machine, self._rng.uniform(10.0, 150.0))

    def _cut(self, machine: Machine, span: float) -> None:
        machine.cut = True
        machine.say(f"cannot reach the API server for {span:.0f} s")
        self._kernel.at(span, self._if_active, self._set, machine, "cut", False)

    def _storm(self) -> None:
        """A switch fails: many nodes are cut off in the same moment."""
        joined = [one for one in self._cluster.machines if one.node]
        number = self._rng.randint(2, max(2, len(joined) - 1))
        span = self._rng.uniform(30.0, 120.0)
        for machine in self._rng.sample(joined, number):
            self._cut(machine, span)

    def _machine_dies(self) -> None:
        machine = self._any()
        machine.broken = True
        machine.power(on=False, why="its power supply fails")
        self._for(60.0, 200.0, self._repair, machine)

    def _repair(self, machine: Machine) -> None:
        machine.broken = False
        machine.say("is repaired")
        if machine.node and not machine.on and not machine.switched_off_by_us:
            machine.power(on=True, why="by who repaired it")
        machine.boot_again()

    def _machine_crashes(self) -> None:
        machine = self._any()
        machine.broken = self._rng.random() < 0.4
        machine.crash()
        self._for(60.0, 200.0, self._repair, machine)

    def _unwell(self) -> None:
        """The container runtime fails, say: the kubelet reports that its node is not ready."""
        machine = self._any()
        machine.unwell = True
        machine.say("its kubelet says that it is not ready")
        self._for(20.0, 120.0, self._set, machine, "unwell", False)

    def _control_plane_dies(self) -> None:
        """The kubelets of control planes die together, as if their certificates ended."""
        own = [one for one in self._cluster.machines if one.node.startswith("cp")]
        for machine in self._rng.sample(own, self._rng.randint(1, len(own))):
            machine.hung = True
            machine.say("its kubelet dies")
            self._for(100.0, 200.0, self._set, machine, "hung", False)

    def _hardware_replaced(self) -> None:
        """The disks of a node are moved to a spare machine, and the old one is used for something else."""
        cluster = self._cluster
        machine = self._any()
        spares = [one for one in cluster.machines if not one.node and one.booted and one not in self._promised]
        spare = next(iter(spares), None)
        if spare is None or machine.node.startswith("cp") or self._cluster.is_witness(machine):
            return
        self._promised.add(spare)
        name = machine.node
        machine.power(on=False, why="its disks are moved")
        machine.node, machine.cut, machine.broken = "", False, False
        self._kernel.at(15.0, self._join, machine, spare, name)

    def _join(self, old: Machine, spare: Machine, name: str) -> None:
        spare.say(f"gets the disks of {old.name}, and boots as {name}")
        spare.node = name
        spare.cut = spare.hung = spare.broken = False
        self._cluster.check.replaced.add(name)
        spare.power(on=False, why="to change its disks")
        spare.power(on=True, why="with other disks")
        spare.start()
        # Before the new one has said who it is, nobody could know that the old one is not the node's any more.
        self._kernel.at(90.0, self._on_again, old)

    # Machines and operators.

    def _bmc_silent(self) -> None:
        self._bmc("silent", True, 20.0, 150.0)

    def _bmc_unknown(self) -> None:
        self._bmc("unknown", True, 20.0, 150.0)

    def _bmc_deaf(self) -> None:
        self._bmc("deaf", True, 20.0, 100.0)

    def _bmc_slow(self) -> None:
        self._bmc("slow", 12.0, 20.0, 150.0, 0.0)

    def _bmc_lies(self) -> None:
        machine = self._any()
        machine.bmc.lies = 1

    def _bmc(self, what: str, value: object, low: float, high: float, after: object = False) -> None:
        machine = self._any()
        machine.say(f"its BMC is {what}")
        setattr(machine.bmc, what, value)
        self._for(low, high, self._set, machine.bmc, what, after)

    def _switched_by_hand(self) -> None:
        """Somebody presses the button of a machine that is off, or of one whose node has failed."""
        machine = self._any()
        if machine.on and machine.works:
            return
        if machine.on:
            machine.power(on=False, why="by hand")
            self._for(5.0, 60.0, self._on_again, machine)
        else:
            machine.power(on=True, why="by hand")

    def _on_again(self, machine: Machine) -> None:
        machine.power(on=True, why="by hand")

    def _wrong_annotation(self) -> None:
        name = self._any().node
        if name in self._cluster.check.misnamed:
            self._cluster.correct(name)
        else:
            self._cluster.misname(name)
            self._for(30.0, 150.0, self._cluster.correct, name)

    def _node_deleted(self) -> None:
        """An operator deletes the Node of a machine; one that has failed, if there is one."""
        name = self._any().node
        if self._cluster.objects.get("nodes", name) is not None and name in self._cluster.not_ready_since:
            self._say(f"node {name} is deleted")
            self._cluster.check.deleted.add(name)
            self._cluster.objects.remove("nodes", name)
            self._cluster.objects.remove("leases", name)

    def _cordon(self) -> None:
        node = self._cluster.node_of(self._any())
        if node is not None and ready(node) == "True":
            self._say(f"node {node['metadata']['name']} is cordoned")
            node["spec"]["unschedulable"] = True
            self._cluster.objects.put("nodes", node)

    # The API server.

    def _api_server_down(self) -> None:
        self._say("the API server is down")
        self._cluster.is_api_on = False
        self._cluster.sever()
        self._for(3.0, 70.0, self._set, self._cluster, "is_api_on", True)

    def _api_server_away(self) -> None:
        """A host of ours loses its way to the API server, or calls are slow, or get lost."""
        cluster = self._cluster
        host = self._rng.choice(cluster.world.hosts)
        what = self._rng.choice(("away", "slow", "lossy"))
        self._say(f"the way from {host.name} to the API server is {what}")
        if what == "away":
            cluster.away.add(host)
            cluster.sever()
            self._for(5.0, 60.0, cluster.away.discard, host)
        elif what == "slow":
            cluster.api_slowness = 1000.0
            self._for(5.0, 40.0, self._set, cluster, "api_slowness", 1.0)
        else:
            cluster.api_loss = 0.3
            self._for(5.0, 40.0, self._set, cluster, "api_loss", 0.0)

    def _say(self, what: str) -> None:
        self._kernel.say(what, "mishaps")
