"""Failed nodes: what the controller may do to machines and pods, judged by what is true of them, and how it must end.

``ready``: no machine is powered off while its node is ready. ``storm``: nor while too many nodes are silent.
``control plane``: nor that of a second node of the control plane. ``proof``: nothing is forced while it may run.
``twice``: no StatefulSet's pod runs twice. ``stuck``: everything ends, or says why it does not. ``last word``: nothing
is powered off after an operator has forbidden it. ``early``: nor before the dwell time is over. What people must be
told is in ``telling``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.simulation.checks.telling import Telling
from tests.simulation.kernel import Rule
from tests.simulation.kubernetes.objects import Document, has_taint, ready, terminating

if TYPE_CHECKING:
    from tests.simulation.kubernetes.cluster import Cluster
    from tests.simulation.kubernetes.machines import Container, Machine

# Seconds: a command may rest on what was read so long before it was sent, because its sender may freeze for the time
# that its lease has left.
READ_BEFORE: Final = 8.0
# A kubelet that has not renewed its lease for so long has to count as silent: the period of renewals, the silence that
# counts, and what a pass may take. The longest that a controller may see nothing new: it may just have become leader.
_SILENT: Final = 30.0
# By so much of its time may a clock be slow.
_CLOCKS: Final = 0.85
# So often may the same object be deleted: then there is no sense in it.
_DELETIONS: Final = 60
# Seconds after the last mishap in which everything comes to rest: a machine's dwell time after a proof that has ended,
# the cool-down of a storm, and boots.
SETTLE: Final = 1000.0


class FailoverCheck:
    """Judges each force and each power-off when it happens, and the rest at the end.

    ``named``: nodes whose machine only an operator knows; ``misnamed``: of which the operator says something wrong;
    ``replaced``: whose machine was replaced; ``deleted``: whose Node was. ``excused``: of which an operator has
    confirmed wrongly that they are off; ``in_repair``: those that are out of service on purpose; ``quorum``: those of
    which a majority must remain; ``immovable``: those whose pods can run nowhere else.
    ``forbidden``: since when a machine must not be powered off, by what forbids it; ``commands``: how often its BMC was
    commanded to; ``off_for``: the node that a machine had when it was.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kernel = cluster.kernel
        self.named: set[str] = set()
        self.misnamed: set[str] = set()
        self.replaced: set[str] = set()
        self.deleted: set[str] = set()
        self.excused: set[str] = set()
        self.in_repair: set[str] = set()
        self.quorum: set[str] = set()
        self.immovable: set[str] = set()
        self.forbidden: dict[Machine, dict[str, float]] = {}
        self.commands: Counter[Machine] = Counter()
        self.off_for: dict[Machine, str] = {}
        self.telling = Telling(cluster)

    def _fail(self, rule: Rule, what: str) -> None:
        if rule not in self._cluster.scenario.blind:
            self._kernel.fail(rule, what)

    def _count(self, what: str) -> None:
        self._cluster.world.count(what)

    # Power.

    def forbid(self, machine: Machine, kind: str) -> None:
        """From now on an operator forbids to power it off."""
        self.forbidden.setdefault(machine, {})[kind] = self._kernel.now

    def allow(self, machine: Machine, kind: str) -> None:
        """The operator takes that back."""
        self.forbidden.get(machine, {}).pop(kind, None)

    def commands_off(self, machine: Machine, sent_at: float) -> None:
        """The controller commands to power off the machine that has this entry in the inventory."""
        self.commands[machine] += 1
        for kind, since in self.forbidden.get(machine, {}).items():
            if sent_at > since + READ_BEFORE:
                self._fail("last word", f"{machine.name} was commanded off {sent_at - since:.0f} s after: {kind}")

    def powers_off(self, machine: Machine, sent_at: float) -> None:
        """A command of the controller switches off a machine that is on."""
        self._count("machines powered off")
        name = machine.node
        if not name:
            self._fail("ready", f"{machine.name} was powered off, which is no node's machine")
        since = self._cluster.ready_since.get(name)
        if since is not None and since < sent_at - READ_BEFORE:
            self._fail("ready", f"{machine.name} was powered off although its node {name} was ready")
        self.off_for[machine] = name
        marked = self._cluster.not_ready_since.get(name)
        dwell = self._cluster.scenario.settings.part(FailoverSettings).dwell
        if marked is not None and sent_at < marked + dwell * _CLOCKS and self._cluster.scenario.story is not None:
            self._fail("early", f"{machine.name} was powered off {sent_at - marked:.1f} s after {name} was not ready")
        self._storm(name, sent_at)
        if name in self.immovable and not machine.hung:
            self._fail("in vain", f"{machine.name} was powered off, though nothing of {name} can run elsewhere")
        for group in ([one.node for one in self._cluster.machines if one.node.startswith("cp")], self.quorum):
            if name in group:
                self._second(machine, [*group], sent_at)

    def _down(self, name: str, at: float) -> bool:
        """Whether it is known by then that this node has failed, and it still has."""
        since = self._cluster.not_ready_since.get(name)
        silent = self._kernel.now - self._cluster.renewed.get(name, 0.0)
        return (since is not None and since < at - READ_BEFORE) or silent > _SILENT + self._kernel.now - at

    def _storm(self, name: str, sent_at: float) -> None:
        all_nodes = self._cluster.objects.all("nodes")
        # What was cordoned when it was ready is no part of the whole when it fails.
        until = self._cluster.cordoned_until
        names = [one["metadata"]["name"] for one in all_nodes]
        nodes = [one for one in names if until.get(one, 0.0) <= max(0.0, sent_at - READ_BEFORE)]
        down = [one for one in nodes if self._down(one, sent_at)]
        allowed = max(1, int(len(nodes) * 0.3))
        if len(down) > allowed:
            many = f"{len(down)} of {len(nodes)} nodes ({', '.join(down)}) were down, more than {allowed}"
            self._fail("storm", f"the machine of {name} was powered off although {many}")

    def _second(self, machine: Machine, group: Collection[str], sent_at: float) -> None:
        """Powers off one of a group of which a majority must remain."""
        others = [one for one in self._cluster.machines if one.node in group and one is not machine]
        for other in others:
            if self._cluster.node_of(other) is None and not other.switched_off_by_us:
                continue  # an operator has taken it out of the cluster
            if (not other.on and other.switched_off_by_us) or self._down(other.node, sent_at):
                self._fail(
                    "control plane", f"the machine of {machine.node} was powered off while {other.node} was down"
                )

    # Force.

    def forced(self, kind: str, document: Document) -> None:
        """The controller deletes a pod or an attachment, or taints a node as out of service: nothing of it runs."""
        name = document["metadata"]["name"]
        node = name if kind == "nodes" else document["spec"].get("nodeName")
        if kind == "nodes" and has_taint(document, "node.kubernetes.io/out-of-service"):
            return  # it has it already
        self._count(f"forced: {kind}")
        for machine in self._cluster.machines if node not in self.excused else ():
            for one in machine.containers.values():
                of_pod = kind == "pods" and one.uid == document["metadata"]["uid"]
                of_volume = (
                    kind == "attachments"
                    and machine.node == node
                    and one.volume == document["spec"]["source"]["persistentVolumeName"]
                )
                if of_pod or of_volume or (kind == "nodes" and machine.node == node):
                    self._fail("proof", f"{kind} {name} was forced while {one.pod} ran on {machine.name}")

    def started(self, machine: Machine, container: Container) -> None:
        """A pod has begun to run."""
        for other in self._cluster.machines:
            for one in other.containers.values():
                twice = (
                    other is not machine
                    and other.node not in self.excused
                    and one.identity
                    and one.identity == container.identity
                )
                if twice and one.uid not in self._cluster.collected:
                    where = f"{other.node or other.name} and {machine.node}"
                    self._fail("twice", f"{container.pod} runs on {where}")

    # The end.

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return what is stored of all remediations, oldest first."""
        rows = [one for one in self._cluster.world.server.all("remediations") if one["cluster"] == self._cluster.name]
        rows.sort(key=lambda row: row["started_at"])
        return [msgspec.json.decode(row["record"]) | {"phase": row["phase"], "ended": row["ended_at"]} for row in rows]

    def at_rest(self) -> bool:
        """Whether everything is as it should be again."""
        return (
            all(one["ended"] is not None for one in self.records) and not self._left_off() and not self._not_running()
        )

    def _left_off(self) -> list[Machine]:
        return [one for one in self._cluster.machines if one.node and not (one.on and one.booted)]

    def _not_running(self) -> list[str]:
        running = {one.pod for machine in self._cluster.machines for one in machine.containers.values()}
        return [name for name in self._cluster.workloads.names if name not in running]

    def judge(self) -> None:
        """Nothing more will happen: each remediation has ended or says why not, and nothing is off in silence."""
        latest: dict[str, dict[str, Any]] = {}
        for record in self.records:
            self._count("remediations")
            self._count(f"remediations: {record['phase']}")
            latest[record["node"]] = record
        for name, record in latest.items():
            if not record["ended"] and not self._is_explained(record):
                reason = f"{record.get('reason')}: {record.get('message')}"
                self._fail("stuck", f"the remediation of {name} is still {record['phase']} ({reason})")
        for machine in self._left_off():
            explanation = self._explanation(machine)
            if machine.switched_off_by_us and " off" not in explanation:
                self._fail("stuck", f"{machine.name} was left off, and all that is said is {explanation!r}")
        for name in self._not_running():
            if not self._may_wait(name):
                self._fail("stuck", f"{name} does not run although nothing is wrong any more")
        for name, number in self._cluster.api.deletions.items():
            if number > _DELETIONS:
                self._fail("stuck", f"{name} was deleted {number} times")

    def _is_explained(self, record: dict[str, Any]) -> bool:
        """Whether the reason that the record gives is true, and not for the controller to mend."""
        reason, name = record.get("reason", ""), record["node"]
        if reason.startswith("machine-"):
            return name in self.misnamed | self.replaced or (reason == "machine-shared" and bool(self.misnamed))
        node, machine = self._cluster.objects.get("nodes", name), self._cluster.machine_with(name)
        if reason == "left-off":
            return machine is not None and machine.crossed
        return node is not None and ready(node) != "True" and reason in ("nothing-to-free", "nowhere-to-go")

    def _explanation(self, machine: Machine) -> str:
        """Return what the records of this machine's node say in the end, and what conditions of the node say."""
        of_node = [one for one in self.records if one.get("machine") == machine.uuid or one["node"] == machine.node]
        found = [f"{one.get('reason')}: {one.get('message')}" for one in of_node[-1:]]
        node = self._cluster.node_of(machine)
        conditions = node["status"]["conditions"] if node else []
        return "; ".join(found + [str(one.get("message", "")) for one in conditions])

    def _may_wait(self, name: str) -> bool:
        """Whether a pod waits for what is not the controller's: its finalizer, or its own host."""
        pod = self._cluster.objects.get("pods", f"shop/{name}")
        if pod is None or (terminating(pod) and pod["metadata"].get("finalizers")):
            return True
        host = self._cluster.workloads.pinned_to.get(name, "")
        machine = self._cluster.machine_with(host)
        return machine is not None and not machine.works
