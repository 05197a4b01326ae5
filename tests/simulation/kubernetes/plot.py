"""Tells a story: lets its node fail, and everything else in it happen when it should; in the end all is put right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, PAUSED
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.simulation.kubernetes.desk import Desk
from tests.simulation.kubernetes.places import SPELLINGS, Info, usual

if TYPE_CHECKING:
    from tests.simulation.checks.telling import Telling
    from tests.simulation.kubernetes.cluster import Cluster
    from tests.simulation.kubernetes.machines import Machine
    from tests.simulation.kubernetes.stories import Story
    from tests.simulation.world import World

# Reported by boards whose vendor has set none.
_PLACEHOLDER: Final = "03000200-0400-0500-0006-000700080009"
# Seconds.
_BEGIN: Final = 25.0
_PATIENCE: Final = 200.0  # for what a story waits for: else it goes on without it
_LIE: Final = 700.0  # for which a BMC is wrong before its node fails
_LIFE: Final = 60.0  # of a kubelet that hangs after each boot
_HOUR: Final = 3600.0
_POLL: Final = 0.5
_DEVICE: Final = "nvidia.com/gpu"
# How the API server answers about an object that it cannot read.
_UNREADABLE: Final = {"claim unreadable": (500, 403), "volume unreadable": (403, 500), "pods unreadable": (504,)}


class Plot:
    """``victim``: the machine whose node fails; ``twin``: the one with which it is confused; ``bystander``: fails, too.

    They are of the first cluster, but the twin is of the second, if there is one. ``unmeasured``: the machines that
    were never inspected, and which their own nodes do not name.
    """

    def __init__(self, world: World, story: Story) -> None:
        self._world = world
        self._kernel = world.kernel
        self._story = story
        self._cluster = world.clusters[0]
        self._desk = Desk(self._cluster)
        self._rng = world.kernel.rng("plot")
        self._happened = False
        self._forbidden = False
        self.victim = _worker(self._cluster, 1)
        self.twin = _worker(world.clusters[-1], 2)
        self.bystander = _worker(self._cluster, 3)
        self.unmeasured: set[Machine] = set()
        for machine in itertools.chain(*(one.machines for one in world.clusters)):
            machine.bmc.redfish = self._rng.random() < 0.7
        self._mistaken()

    @property
    def _telling(self) -> Telling:
        return self._cluster.check.telling

    def _mistaken(self) -> None:
        """What is wrong with machines from the beginning."""
        story = self._story
        if story.mistake == "unmeasured annotation":
            self.unmeasured = {self.victim, self.twin}
        if story.mistake == "placeholders":
            for machine in (self.victim, *[self.twin] * (self._rng.random() < 0.5)):
                machine.reported_uuid = _PLACEHOLDER
        if story.spelling:
            self.twin.bmc.redfish = "redfish_address" in SPELLINGS[story.spelling](self.twin)[0]

    def entry_of(self, machine: Machine) -> Info:
        """Return the address of the machine's BMC, as its entry in the inventory has it."""
        if self._story.spelling and machine in (self.victim, self.twin):
            return SPELLINGS[self._story.spelling](self.twin)[machine is self.victim]
        if self._story.mistake == "swapped bmcs" and machine in (self.victim, self.twin):
            return usual(self.twin if machine is self.victim else self.victim)
        return usual(machine)

    # The course of things.

    def work(self) -> None:
        story = self._story
        self._world.say(f"the story: {story}")
        for name in ("failure", "mistake", "spelling", "moment", "trouble"):
            if value := getattr(story, name):
                self._world.count(f"story {name}: {value}")
        self._world.count(f"story of clusters: {len(self._world.clusters)}")
        self._kernel.sleep(_BEGIN)
        if story.mistake in ("wrong annotation", "unmeasured annotation", "placeholders"):
            self._desk.name_machine(self.victim.node, self.twin.name)
        if story.moment == "before the failure":
            self._forbid()
            self._kernel.sleep(_BEGIN)
        self.victim.bmc.refuses = int(story.moment == "after a refused command")
        if story.trouble:
            getattr(self, "_" + story.trouble.replace(" ", "_").lower())()
        else:
            self._fail()
        self._forbid_in_time()
        self._acted()
        self._happened = True

    def is_over(self) -> bool:
        """Whether all has happened, and is judged."""
        return self._happened and all(one.check.telling.is_settled() for one in self._world.clusters)

    def _acted(self) -> None:
        self._telling.acted_at = self._kernel.now

    def _fail(self) -> None:
        """Let the victim fail, and a moment later the bystander."""
        self._break(self.victim, self._story.failure)
        if not self._story.mistake and not self._story.prohibition:
            self._expect(self.victim)
        if self._story.bystander:
            self._kernel.sleep(self._rng.uniform(0.0, 30.0))
            self._break(self.bystander, self._rng.choice(("partition", "kubelet hangs", "machine dies")))
            self._expect(self.bystander)
        self._acted()

    def _expect(self, machine: Machine) -> None:
        """It has to be failed over, unless only people can know that it is off."""
        if not machine.bmc.silent:
            self._telling.expect(machine.node)

    def _break(self, machine: Machine, failure: str) -> None:
        machine.say(f"fails: {failure}")
        if failure == "partition":
            machine.cut = True
        elif failure == "kubelet hangs":
            machine.hung = True
        elif failure == "machine crashes":
            machine.broken = True
            machine.crash()
        else:
            machine.broken = True
            machine.bmc.silent = failure == "machine dies with its BMC"
            machine.power(on=False, why="its power supply fails")

    def _until(self, done: Callable[[], object], patience: float = _PATIENCE) -> bool:
        """Wait for it; whether it has come."""
        end = self._kernel.now + patience
        while not done() and self._kernel.now < end:
            self._kernel.sleep(_POLL)
        return bool(done())

    def _is_off(self) -> bool:
        return not self.victim.on and self.victim.switched_off_by_us

    # Prohibitions.

    def _forbid(self) -> None:
        kind = self._story.prohibition
        self._desk.forbid(kind, self.victim)
        self._forbidden = True
        self._world.count(f"prohibition: {kind}")
        wished = kind in ("paused", "maintenance", "all paused")
        if wished or (kind == "cordoned" and self._story.moment == "before the failure"):
            self._telling.wished.add(self.victim.node)

    def _forbid_in_time(self) -> None:
        story, name = self._story, self.victim.node
        if not story.prohibition:
            return
        not_ready = self._cluster.not_ready_since
        moments: dict[str, Callable[[], object]] = {
            "while silent": lambda: self._kernel.now - self._cluster.renewed.get(name, 0.0) > 18.0,
            "in the dwell time": lambda: name in not_ready and self._kernel.now - not_ready[name] > 3.0,
            "after a refused command": lambda: self._cluster.check.commands.get(self.victim),
            "while off": self._is_off,
        }
        if story.moment in moments:
            self._until(moments[story.moment])
            self._kernel.sleep(self._rng.uniform(0.0, 2.0))
            self._forbid()
        if story.lifted and self._forbidden and story.prohibition != "inspection":
            self._kernel.sleep(story.lifted)
            self._lift()
            self._telling.expect(name)

    def _lift(self) -> None:
        self._forbidden = False
        self._telling.wished.discard(self.victim.node)
        self._desk.allow(self._story.prohibition, self.victim)

    # Troubles.

    def _claim_unreadable(self) -> None:
        """One object that is needed for the victim cannot be read: for a while, or to the end."""
        what, name = self._story.trouble, self.victim.node
        pods = [one for one in self._cluster.pods_on(name) if one["spec"].get("volumes")]
        claim = pods[0]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] if pods else ""
        key = {
            "claim unreadable": f"claims shop/{claim}",
            "volume unreadable": f"volumes pv-{claim.removeprefix('data-')}",
            "pods unreadable": f"pods on {name}",
        }[what]
        self._cluster.api.unreadable[key] = self._rng.choice(_UNREADABLE[what])
        self._fail()
        self._telling.expected.pop(name, None)
        if self._rng.random() < 0.3:
            self._kernel.sleep(self._rng.uniform(400.0, 500.0))
            self._cluster.api.unreadable.clear()
            self._expect(self.victim)

    _volume_unreadable = _pods_unreadable = _claim_unreadable

    def _node_deleted(self) -> None:
        self._fail()
        self._until(self._is_off)
        self._telling.expected.clear()
        self._desk.delete_node(self.victim.node)

    def _hardware_replaced(self) -> None:
        """Its disks go into a spare machine, while it is off."""
        old, spare, name = self.victim, self._cluster.machines[-1], self.victim.node
        self._fail()
        self._until(self._is_off)
        old.bmc.deaf, old.bmc.silent = True, self._rng.random() < 0.5  # or unplugged
        self._telling.expected.clear()
        spare.say(f"gets the disks of {old.name}, and boots as {name}")
        old.node, spare.node = "", name
        self._cluster.check.replaced.add(name)
        spare.settles = 60.0  # until its network is set up
        spare.power(on=False, why="to change its disks")
        spare.power(on=True, why="with other disks")
        spare.start()
        self._until(lambda: spare.booted)
        self._kernel.sleep(3.0)
        spare.hung = True
        self._kernel.sleep(self._rng.uniform(10.0, 40.0))
        spare.hung = False
        self._until(lambda: name in self._cluster.ready_since)

    def _inspection_never_ends(self) -> None:
        """It is to be inspected before it is powered on, and there is no worker."""
        self._desk.restart(inspect=True)
        self._fail()
        self._until(self._is_off)

    def _in_repair(self) -> None:
        """As many nodes as may be unhealthy are out of service on purpose."""
        for number in range(4, 7):
            machine = _worker(self._cluster, number)
            self._desk.annotate(machine.node, PAUSED, "true")
            self._desk.cordon(machine.node, cordoned=True)
            self._desk.change(machine, maintenance=True)
            self._telling.wished.add(machine.node)
            self._cluster.check.in_repair.add(machine.node)
            machine.broken = True
            machine.power(on=False, why="to repair it")
        self._kernel.sleep(200.0)
        self._fail()

    def _clock_back(self) -> None:
        self._step(-_HOUR)

    def _clock_forward(self) -> None:
        self._step(_HOUR)

    def _step(self, seconds: float) -> None:
        """The database's clock is set in the dwell time."""
        name = self.victim.node
        self._fail()
        self._until(lambda: name in self._cluster.not_ready_since)
        self._kernel.sleep(self._rng.uniform(1.0, 10.0))
        self._world.say(f"the database's clock is set by {seconds:+.0f} s")
        self._world.server.offset += seconds
        self._world.checks.leaders.clock_stepped_at = self._kernel.now
        self._telling.expect(name)

    def _stuck_off(self) -> None:
        """A BMC says that a ready node's machine is off, and obeys nothing: then the node is cut off."""
        self.victim.bmc.stuck_off = self.victim.bmc.deaf = True
        self._kernel.sleep(_LIE)
        self._fail()
        self._telling.expected.clear()

    def _confirmed_again(self) -> None:
        """An operator confirms wrongly that it is off, and forgets the annotation; it is cut off again in this boot."""
        machine, check = self.victim, self._cluster.check
        machine.bmc.silent = True
        check.excused.add(machine.node)
        self._fail()
        self._until(lambda: machine.node in self._cluster.not_ready_since)
        self._desk.confirm_off(machine)
        self._until(lambda: self._telling.is_failed_over(machine.node))
        self._kernel.sleep(20.0)
        machine.cut = False
        self._until(lambda: machine.node in self._cluster.ready_since)
        self._kernel.sleep(60.0)
        self._balance()
        self._kernel.sleep(30.0)
        check.excused.discard(machine.node)
        self._break(machine, "partition")
        self._telling.expected.clear()

    def _confirmed_storm(self) -> None:
        """A rack loses its power with its BMCs, and an operator confirms that all its machines are off."""
        rack = [_worker(self._cluster, number) for number in range(1, 5)]
        for machine in rack:
            self._break(machine, "machine dies with its BMC")
        self._until(lambda: all(one.node in self._cluster.not_ready_since for one in rack))
        self._kernel.sleep(self._rng.uniform(10.0, 60.0))
        for machine in rack:
            self._desk.confirm_off(machine)
            self._telling.expect(machine.node)

    def _control_plane_off(self) -> None:
        """One machine of the control plane is left off and its Node deleted, then another one's kubelet dies."""
        first, second = self._cluster.machines[:2]
        self._break(first, self._story.failure)
        self._until(lambda: not first.on)
        self._desk.delete_node(first.node)
        self._kernel.sleep(60.0)
        self._break(second, "kubelet hangs")

    def _api_server_away(self) -> None:
        """It goes down just after the machine was powered off, for long."""
        self._fail()
        self._until(self._is_off)
        self._telling.expected.clear()
        self._world.say("the API server is down, and stays so")
        self._cluster.is_api_on = False
        self._cluster.sever()

    def _api_server_slow(self) -> None:
        self._cluster.api_delay = (1.5, 3.0)
        self._fail()

    def _flapping(self) -> None:
        self.victim.lives = _LIFE
        self._break(self.victim, "kubelet hangs")
        self._telling.flapping.add(self.victim)
        name, end = self.victim.node, self._kernel.now + _HOUR
        told = lambda: self._telling.is_node_told(name)  # noqa: E731
        while not told() and self._kernel.now < end:
            self._until(lambda: told() or name in self._cluster.ready_since, _HOUR)
            self._kernel.sleep(15.0)  # until it is not tainted any more
            self._balance()
            self._until(lambda: told() or name in self._cluster.not_ready_since, _HOUR)

    def _balance(self) -> None:
        """Move a pod to the node that has the fewest, as a descheduler does."""
        key = self._rng.choice(self._cluster.workloads.names)
        self._cluster.objects.delete("pods", f"shop/{key}", {}, at_once=False)

    def _quorum(self) -> None:
        """Two of three nodes that need a majority, and are labelled so, fail in the same moment."""
        members = [_worker(self._cluster, number) for number in range(1, 4)]
        label = "example.com/etcd"
        for machine in members:
            node = self._cluster.node_of(machine)
            assert node is not None
            node["metadata"]["labels"][label] = "true"
            self._cluster.objects.put("nodes", node)
            self._cluster.check.quorum.add(machine.node)
        if "quorum" in FailoverSettings.__struct_fields__:
            self._desk.restart(quorum=(f"{label}:true",))
        for machine in members[:2]:
            self._break(machine, self._story.failure)

    def _nowhere_to_go(self) -> None:
        """What runs on the victim fits nowhere else; the victim works, and is only cut off."""
        name = self.victim.node
        kind = self._rng.choice(("pinned", "device", "apart"))
        self._world.say(f"the pods of {name} can run nowhere else: {kind}")
        for pod in self._cluster.pods_on(name):
            pod["spec"] |= _nowhere_else(kind, name)
            self._cluster.objects.put("pods", pod)
        for node in self._cluster.objects.all("nodes"):
            own = node["metadata"]["name"] == name
            node["status"]["allocatable"] = {"cpu": "32"} | ({_DEVICE: "8"} if own else {})
            self._cluster.objects.put("nodes", node)
        self._cluster.check.immovable.add(name)
        self._break(self.victim, "partition")

    # The end.

    def put_right(self) -> None:
        """Operators correct what is wrong, so that everything can come to rest."""
        self._telling.end()
        self._cluster.api.unreadable.clear()
        self._cluster.api_delay = (0.0, 0.0)
        self.victim.lives = 0.0
        self._cluster.check.forbidden.clear()
        self._cluster.check.immovable.clear()
        if self._forbidden:
            self._lift()
        if self._cluster.options.get("inspect"):
            self._desk.restart(inspect=False)
        for machine in self._cluster.machines:
            machine.power(on=True, why="by an operator")
        for machine in (self.victim, self.twin):
            machine.reported_uuid = machine.system_uuid
            if self.entry_of(machine) != usual(machine):
                self._desk.set_address(machine, usual(machine))
        if "annotation" in self._story.mistake or self._story.mistake == "placeholders":
            self._desk.name_machine(self.victim.node, self.victim.name)
        in_repair = self._cluster.check.in_repair
        self._until(lambda: in_repair <= self._cluster.ready_since.keys())
        for machine in self._cluster.machines:
            self._desk.annotate(machine.node, CONFIRMED_OFF, None)
            if machine.node in in_repair:
                self._desk.annotate(machine.node, PAUSED, None)
                self._desk.change(machine, maintenance=False)


def _nowhere_else(kind: str, name: str) -> dict[str, Any]:
    """Return the part of a pod's specification by which only this node can take it."""
    if kind == "pinned":
        return {"nodeSelector": {"kubernetes.io/hostname": name}}
    if kind == "device":
        return {"containers": [{"name": "main", "resources": {"requests": {_DEVICE: "8"}, "limits": {_DEVICE: "8"}}}]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _worker(cluster: Cluster, number: int) -> Machine:
    found = cluster.machine_with(f"w{cluster.letter}{number}")
    assert found is not None
    return found
