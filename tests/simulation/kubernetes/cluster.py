"""The cluster as a whole: machines, nodes, workloads, their operators, and what the product is told of its machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope.config.options import Settings
from ferroscope.contrib.kubernetes.options import FailoverSettings
from ferroscope.core.model import Node
from ferroscope.db.nodes import NODE
from ferroscope.hardware.machine_identity import BEHIND_BMC, IDENTITY, identify
from ferroscope_client.core.states import Provision
from tests.simulation.checks.failover import FailoverCheck
from tests.simulation.kubernetes.api_server import ApiServer, HttpClient, Watch
from tests.simulation.kubernetes.control_plane import ControlPlane
from tests.simulation.kubernetes.machines import Container, Machine
from tests.simulation.kubernetes.mishaps import Mishaps
from tests.simulation.kubernetes.objects import Document, Objects, key_of, ready, terminating
from tests.simulation.kubernetes.places import usual, v4_of, v6_of
from tests.simulation.kubernetes.workloads import Workloads

if TYPE_CHECKING:
    from tests.simulation.cluster import Host
    from tests.simulation.kubernetes.site import Site
    from tests.simulation.world import World

ANNOTATION: Final = "ferroscope.io/machine"
# When everything runs, and before anything goes wrong.
_SETTLED: Final = 15.0


class Cluster:
    """``renewed``: when each node's kubelet has last renewed its lease; ``ready_since``: for how long nodes are ready.

    ``collected``: UIDs of pods that Kubernetes has removed because their node was deleted.
    ``letter`` distinguishes the nodes of a second cluster, and the machines of that begin with number ``first``;
    ``options`` are those of ``[failover]`` that its processes start with, beside its name.
    """

    def __init__(
        self, world: World, site: Site, hosts: Sequence[Host], *, name: str = "c", letter: str = "", first: int = 0
    ) -> None:
        self.name = name
        self.letter = letter
        self.hosts = hosts
        self.options: dict[str, Any] = {}
        self.world = world
        self.kernel = world.kernel
        self.scenario = world.scenario
        self.site = site
        self.objects = Objects(lambda: self.kernel.now)
        self.objects.changed.append(self._changed)
        self.api = ApiServer(self, site.minor)
        self.is_api_on = True
        self.api_loss = 0.0
        self.api_slowness = 1.0
        self.api_delay = (0.0, 0.0)
        self.away: set[Host] = set()
        self.watches: list[Watch] = []
        self.renewed: dict[str, float] = {}
        self.ready_since: dict[str, float] = {}
        self.not_ready_since: dict[str, float] = {}
        self.cordoned_until: dict[str, float] = {}
        self.collected: set[str] = set()
        self.rng = self.kernel.rng(f"cluster{letter}")
        names = [f"cp{letter}{number + 1}" for number in range(site.control_planes)]
        names += [f"w{letter}{number + 1}" for number in range(site.workers)]
        self.machines = [
            Machine(self, first + number, name) for number, name in enumerate([*names, *[""] * site.spares])
        ]
        for machine in self.machines:
            world.places.add(machine)
        self.check = FailoverCheck(self)
        self.workloads = Workloads(self, site.replicas)
        self.control_plane = ControlPlane(self)
        self.mishaps = Mishaps(self)

    def adjusted(self, settings: Settings) -> Settings:
        """Return the settings for the processes of this cluster."""
        options = msgspec.structs.replace(settings.part(FailoverSettings), cluster=self.name, **self.options)
        return msgspec.structs.replace(settings, parts={**settings.parts, "failover": options})

    # Who reaches whom.

    @property
    def api_up(self) -> bool:
        """Whether the API server works: it needs a majority of the machines of the control plane."""
        own = [one.on and one.booted for one in self.machines if one.node.startswith("cp")]
        return self.is_api_on and 2 * sum(own) > len(own)

    def reachable(self, host: Host) -> bool:
        return host not in self.away

    def client(self, host: Host) -> HttpClient:
        return HttpClient(self, host)

    def sever(self) -> None:
        """The API server, or the way to it, is gone: watches break."""
        for watch in self.watches:
            if not self.is_api_on or watch.host in self.away:
                watch.sever()

    # The beginning.

    def start(self) -> None:
        for machine in self.machines:
            if machine.node:
                machine.start()
        self.control_plane.start()
        self.kernel.at(_SETTLED - 1.0, self.workloads.settle)
        self.world.spawn("mishaps", self.mishaps.work)
        if self.world.plot is not None:
            self.check.telling.watch()

    def enrol(self) -> None:
        """Put the machines into the database: most were inspected, of the others an operator has named the node."""
        for machine in self.machines:
            inspected = self.rng.random() < self.site.inspected or not machine.node
            plot = self.world.plot
            info = {"sim_address": v4_of(machine)} if plot is None else plot.entry_of(machine)
            inspected = inspected and (plot is None or machine not in plot.unmeasured)
            machine.inspected = inspected
            row = Node(
                uuid=machine.uuid,
                name=machine.name,
                driver=next(iter(info)).removesuffix("_address"),
                provision_state=Provision.MANAGEABLE,
                driver_info=info,
                internal=self._facts_of(machine) if inspected else {},
                created_at=self.world.server.clock(),
            )
            tables = self.world.server.tables
            tables["nodes"].put((row.uuid,), NODE.to_row(row), 0, keep=False)
            for address in self.world.places.addresses_of(info) if inspected else ():
                tables["bmc_addresses"].put((address, row.uuid), {"address": address, "node": row.uuid}, 0, keep=False)
            if not inspected and (plot is None or machine not in plot.unmeasured):
                self.check.named.add(machine.node)
        for machine in self.machines:
            if machine.node:
                self.new_node(machine)
        for machine in self.machines:
            if machine.node and self.rng.random() < self.site.wrong:
                self.misname(machine.node)

    def _facts_of(self, machine: Machine) -> Document:
        """Return what an inspection has stored of the machine, when its entry was right.

        Among it are the addresses of the BMC that the ramdisk read from it.
        """
        reported = identify({"serial_number": machine.serial}, machine.reported_uuid, ())
        identity = {
            "serial": reported.serial,
            "uuid": reported.uuid,
            "macs": [],
            "bmcs": [v4_of(machine), v6_of(machine)],
        }
        if self.scenario.story is None or not machine.bmc.redfish:
            return {IDENTITY: identity}
        behind = {name: value for name, value in identity.items() if name in ("serial", "uuid") and value}
        return {IDENTITY: identity, BEHIND_BMC: {"place": usual(machine), **behind}}

    def new_node(self, machine: Machine) -> Document:
        """Register the node of this machine, and name its machine where nothing else tells."""
        name = machine.node
        labels = {"kubernetes.io/hostname": name}
        taints = []
        if name.startswith("cp"):
            labels |= {"control-plane": "true", "node-role.kubernetes.io/control-plane": ""}
            taints = [{"key": "control-plane", "effect": "NoSchedule"}]
        node: Document = {
            "metadata": {"name": name, "labels": labels, "annotations": {}},
            "spec": {"taints": taints},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated"}],
                "nodeInfo": {"bootID": "", "systemUUID": machine.reported_uuid},
            },
        }
        if name in self.check.named:
            self.name_machine(node, machine)
        return self.objects.put("nodes", node)

    # Names of machines.

    def name_machine(self, node: Document, machine: Machine) -> None:
        if machine.number % 2:
            node["metadata"]["annotations"][ANNOTATION] = self.rng.choice((machine.name, machine.uuid))
        else:
            node["spec"]["providerID"] = f"ferroscope://{machine.uuid}"

    def misname(self, name: str) -> None:
        """An operator confuses two machines, which somebody could know who looks at all nodes."""
        node, own = self.objects.get("nodes", name), self.machine_with(name)
        if node is None or own is None or self.is_witness(own):
            return
        others = [one for one in self.machines if one is not own and (own.inspected or self._is_known(one))]
        if others:
            other = self.rng.choice(others)
            self.kernel.say(f"{name} is said to run on {other.name}")
            if self.rng.random() < 0.7:
                node["metadata"]["annotations"][ANNOTATION] = other.name
            else:
                node["spec"]["providerID"] = f"ferroscope://{other.uuid}"
            self.check.misnamed.add(name)
            self.objects.put("nodes", node)

    def _is_known(self, machine: Machine) -> bool:
        """Whether it was inspected, or its own node names it."""
        node = self.node_of(machine)
        return machine.inspected or (node is not None and _names(node, machine))

    def is_witness(self, machine: Machine) -> bool:
        """Whether only what this machine's node says of it contradicts what another node says of it."""
        nodes = [one for one in self.objects.all("nodes") if _names(one, machine)]
        owners = [self.machine_with(one["metadata"]["name"]) for one in nodes]
        strangers = [one for one in owners if one is not None and one is not machine and not one.inspected]
        return bool(strangers) and not machine.inspected

    def correct(self, name: str) -> None:
        """An operator corrects what is said of the node's machine."""
        node, machine = self.objects.get("nodes", name), self.machine_with(name)
        if node is not None and machine is not None:
            self.kernel.say(f"{name} is said to run on {machine.name}, which is right")
            node["metadata"]["annotations"].pop(ANNOTATION, None)
            node["spec"].pop("providerID", None)
            node["metadata"]["annotations"][ANNOTATION] = machine.name
            self.check.misnamed.discard(name)
            self.objects.put("nodes", node)

    # Objects.

    def machine_with(self, node: str) -> Machine | None:
        """Return the machine on which this node really is."""
        return next((one for one in self.machines if node and one.node == node), None)

    def node_of(self, machine: Machine) -> Document | None:
        return self.objects.get("nodes", machine.node)

    def pods_on(self, node: str) -> list[Document]:
        return [one for one in self.objects.all("pods") if one["spec"].get("nodeName") == node]

    def set_condition(self, node: Document, condition: dict[str, str]) -> None:
        others = [one for one in node["status"]["conditions"] if one["type"] != condition["type"]]
        node["status"]["conditions"] = [*others, condition]
        self.objects.put("nodes", node)

    def _changed(self, what: str, kind: str, document: Document) -> None:
        if kind == "attachments" and terminating(document) and what != "DELETED":
            self.kernel.at(1.0, self._detach, key_of(document["metadata"]))
        if kind != "nodes":
            return
        name, now = document["metadata"]["name"], self.kernel.now
        if document["spec"].get("unschedulable"):
            self.cordoned_until[name] = math.inf
        elif self.cordoned_until.get(name) == math.inf:
            self.cordoned_until[name] = now
        present, past = (self.ready_since, self.not_ready_since)[:: 1 if ready(document) == "True" else -1]
        if what == "DELETED":
            present.pop(name, None)
        else:
            if name not in present:
                self.kernel.say(f"node {name} is {'ready' if present is self.ready_since else 'not ready'}")
            present.setdefault(name, now)
        past.pop(name, None)
        for watch in self.watches:
            watch.see(what, document)

    # Volumes.

    def add_volume(self, name: str, local_to: str) -> None:
        spec: dict[str, Any] = {"claimRef": {"namespace": "shop", "name": f"data-{name}"}}
        if local_to:
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [local_to]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        self.objects.put("volumes", {"metadata": {"name": f"pv-{name}"}, "spec": spec})

    def volume_of(self, pod: Document) -> str:
        """Return the PersistentVolume of the pod, "" if it has none yet."""
        for one in pod["spec"].get("volumes") or ():
            name = "pv-" + one["persistentVolumeClaim"]["claimName"].removeprefix("data-")
            return name if self.objects.get("volumes", name) else ""
        return ""

    def host_of_volume(self, pod: Document) -> str:
        """Return the host of the pod's local volume, "" if it has none."""
        volume = self.objects.get("volumes", self.volume_of(pod))
        affinity = volume["spec"].get("nodeAffinity") if volume else None
        if not affinity:
            return ""
        return str(affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0])

    def attachable(self, pod: Document) -> str:
        """Return the volume that has to be attached to the pod's node, "" if there is none."""
        return "" if self.host_of_volume(pod) else self.volume_of(pod)

    def attachments_of(self, volume: str) -> list[Document]:
        found = self.objects.all("attachments")
        return [one for one in found if one["spec"]["source"]["persistentVolumeName"] == volume]

    def attach(self, volume: str, node: str) -> None:
        spec = {"attacher": "csi.example.com", "nodeName": node, "source": {"persistentVolumeName": volume}}
        name = f"va-{volume}-{node}"
        self.objects.put("attachments", {"metadata": {"name": name, "finalizers": ["external-attacher"]}, "spec": spec})

    def _detach(self, name: str) -> None:
        document = self.objects.get("attachments", name)
        if document is not None and terminating(document):
            self.objects.remove("attachments", name)

    # What runs.

    def start_container(self, machine: Machine, pod: Document) -> None:
        meta = pod["metadata"]
        identity = meta["name"] if meta["ownerReferences"][0]["kind"] == "StatefulSet" else ""
        container = Container(meta["name"], meta["uid"], identity, self.volume_of(pod))
        machine.containers[container.uid] = container
        machine.say(f"runs {container.pod}")
        self.check.started(machine, container)


def _names(node: Document, machine: Machine) -> bool:
    """Whether an operator has said that the node runs on this machine."""
    named = node["metadata"]["annotations"].get(ANNOTATION)
    return named in (machine.name, machine.uuid) or node["spec"].get("providerID") == f"ferroscope://{machine.uuid}"


def clusters_of(world: World, site: Site) -> list[Cluster]:
    """Return the cluster, or both; each has its hosts, and all have one inventory."""
    if world.scenario.story is None or not world.scenario.story.across:
        return [Cluster(world, site, world.hosts)]
    half = len(world.hosts) // 2
    return [
        Cluster(world, site, world.hosts[:half], name="a"),
        Cluster(world, site, world.hosts[half:], name="b", letter="b", first=50),
    ]


def cluster_of(world: World, host: Host) -> Cluster:
    """Return the cluster whose controllers run on this host."""
    return next(one for one in world.clusters if host in one.hosts)
