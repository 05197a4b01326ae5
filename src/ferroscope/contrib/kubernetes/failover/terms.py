"""The inputs and outputs of a decision about a node: the options, the observations, and the effects.

It also has simple rules on them: when a node is suspect, when failures are a storm, which effects are irreversible, and
when an answer is too old for those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.evidence import PodEvidence
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine, MachineMatch
from ferroscope.contrib.kubernetes.failover.placement import PodQuery
from ferroscope.contrib.kubernetes.failover.pods import PersistentVolume, Pod, VolumeAttachment
from ferroscope.core.remediation import Proof, Remediation

# A machine takes longer than this and ``proof_age`` together from its power-on to its kubelet.
MAX_ROUND_TRIP_SECONDS: Final = 12.0


class FailoverRules(msgspec.Struct, frozen=True, kw_only=True):
    """The options that decide; seconds. ``labels`` and ``namespaces`` select the pods of mode ``label``.

    ``second_hand``: what is said of the power was seen by somebody else, up to a minute ago or longer, as Ironic does.
    ``quorum``: labels of nodes, as ``KEY:VALUE``, and ``patience`` such labels with their dwell time.
    ``power_on_gap``: so many seconds are between two machines that are powered on.
    """

    mode: str = "proof"
    dwell: float = 20.0
    dwell_reporting: float = 300.0
    silence: float = 15.0
    proof_age: float = 5.0
    max_unhealthy: str = "30%"
    storm_cooldown: float = 120.0
    power_off: bool = True
    power_on: bool = True
    inspect: bool = False
    labels: dict[str, str] = {}
    namespaces: tuple[str, ...] = ()
    label_force: bool = False
    second_hand: bool = False
    quorum: tuple[str, ...] = ()
    patience: tuple[tuple[str, float], ...] = ()
    reset_hung: bool = False
    max_power_offs: int = 3
    power_on_gap: float = 1.0

    def allowed_failures(self, total: int) -> int:
        """Return how many of this many nodes may have failed for anything to be done."""
        if self.max_unhealthy.endswith("%"):
            return max(1, int(total * float(self.max_unhealthy[:-1]) / 100))
        return int(self.max_unhealthy)

    def without_proof(self, pod: Pod) -> bool:
        """Whether the operator has declared that this pod may run twice."""
        present = pod.metadata.labels or {}
        return (
            bool(self.labels)
            and pod.metadata.namespace in self.namespaces
            and all(present.get(key) == value for key, value in self.labels.items())
        )


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """Our own view: all nodes, and times. ``now`` by the database's clock; ``clock`` by ours, of this ``epoch``.

    ``silent``: the nodes whose kubelets have not renewed their leases for ``silence`` seconds, as far as we have seen;
    ``switched``: those with a remediation that is past the dwell time; ``members_off``: name and quorum group of those
    whose machines we have powered off, with or without a Node; ``out_of_service``: those that have failed, or are
    silent, because people wanted it; ``old``: those that failed longer ago than ``storm_cooldown``. ``powered_on_at``:
    when a machine was powered on for the last time.
    ``watched``: for so many seconds have we seen each renewal, without a gap. A new leader has not, nor one that could
    not read them for a while; then nothing is known of silent nodes.
    ``problem``: why our view cannot be trusted now, such as API servers that do not answer. ``taints``: the server
    acts on the out-of-service taint. ``paused``: why an operator has stopped all remediation, "" if nobody has.
    ``unguarded``: other clusters with this inventory whose controllers do not say which machines their nodes run on.
    """

    cluster: str
    nodes: Sequence[KubeNode]
    now: float
    clock: float
    epoch: int
    silent: Set[str] = frozenset()
    switched: Set[str] = frozenset()
    members_off: Set[tuple[str, str]] = frozenset()
    out_of_service: Set[str] = frozenset()
    powered_on_at: float = -math.inf
    old: Set[str] = frozenset()
    watched: float = math.inf
    problem: str = ""
    taints: bool = False
    paused: str = ""
    unguarded: Sequence[str] = ()


class NodeReading(msgspec.Struct, frozen=True, kw_only=True):
    """What was read about one node in this pass; ``node`` is None if the cluster has no such node.

    ``renewal`` identifies the last renewal of the kubelet's lease, and ``silent`` is for how many seconds we have seen
    no other. ``match`` is the node's machine by what is known now; ``settled`` is that of the record, if one is settled
    and still exists. The BMC of the settled one is asked, or else that of the match: ``power`` is unknown if it was not
    asked or did not say, for the reason ``power_error``. ``command_error``: why our last power command failed, "" if it
    did not.
    By our clock: ``asked_at`` is from just before the BMC was asked, and ``read_at`` from just before ``renewal`` and
    ``node`` were read, after its answer. ``volumes`` are those of the pods, by namespace and name of their claims.
    ``neighbors``: the pods anywhere that affinities of the node's pods name, None if they are too many. ``booting``:
    whether the BMC says that the machine boots, None if it does not say. ``power_offs``: when the machine was powered
    off for earlier failures.
    ``refused``: UIDs of pods and attachments whose deletion the API server has refused for too long, and its words.
    ``unread``: why what is on the node could not be read from the API server, "" if it was; then ``pods`` and the rest
    are empty. ``unseen``: the same of the node and its lease; then nothing here says whether it lives. ``evidence`` is
    what was measured for and against the machine. ``round_trips``: seconds that the API server took for ``renewal`` and
    ``node``. ``age``: so many seconds ago this pass first read that the node has failed.
    ``distrust``: why the BMC's word that the machine is off counts for nothing, "" if it counts. ``followed``: for so
    many seconds have we seen the record as another leader has stored it; None if we have not watched that one.
    """

    name: str
    node: KubeNode | None
    renewal: str = ""
    silent: float = 0.0
    match: MachineMatch = MachineMatch()
    settled: ClusterMachine | None = None
    power: Power = Power.UNKNOWN
    power_error: str = ""
    command_error: str = ""
    asked_at: float = -math.inf
    read_at: float = -math.inf
    pods: Sequence[Pod] = ()
    attachments: Sequence[VolumeAttachment] = ()
    volumes: Mapping[tuple[str, str], PersistentVolume] = {}
    neighbors: Mapping[PodQuery, Sequence[Pod] | None] = {}
    booting: bool | None = None
    power_offs: tuple[float, ...] = ()
    refused: Mapping[str, str] = {}
    unread: str = ""
    unseen: str = ""
    evidence: PodEvidence = PodEvidence()
    round_trips: float = 0.0
    age: float = 0.0
    distrust: str = ""
    followed: float | None = None

    def volumes_of(self, pod: Pod) -> list[PersistentVolume]:
        """Return the pod's persistent volumes."""
        keys = [(pod.metadata.namespace, name) for name in pod.claims]
        return [self.volumes[key] for key in keys if key in self.volumes]

    @property
    def power_off(self) -> bool | None:
        """Whether the BMC says that the machine is off, or that it is on; None if it says neither."""
        return self.power is Power.OFF if self.power.settled else None


class PowerOff(msgspec.Struct, frozen=True):
    """Power off the node's machine."""


class PowerOn(msgspec.Struct, frozen=True):
    """Power on the node's machine."""


class Inspect(msgspec.Struct, frozen=True):
    """Inspect the node's machine; it is requested in the transaction that stores the record."""


class SetTaint(msgspec.Struct, frozen=True):
    """Set the out-of-service taint, or remove it, if the node is still as it was read."""

    node: KubeNode
    present: bool


class SetCondition(msgspec.Struct, frozen=True):
    """Say on the node that its machine stays off, and why; "": that it does not any more."""

    node: KubeNode
    message: str


class DeletePod(msgspec.Struct, frozen=True):
    """Delete the pod at once, if it is still as it was read; ``ask_budget``: evict it, if the budgets allow that."""

    pod: Pod
    ask_budget: bool = False


class DeleteAttachment(msgspec.Struct, frozen=True):
    """Delete the VolumeAttachment, if it is still as it was read."""

    attachment: VolumeAttachment


Effect = PowerOff | PowerOn | Inspect | SetTaint | SetCondition | DeletePod | DeleteAttachment


class Decision(msgspec.Struct, frozen=True):
    """``record`` is stored first, then the effects are carried out. ``reason`` and ``message`` say why no more is done.

    ``record`` None: there is nothing to do about the node, apart from effects that put its Node object right.
    ``detached``: another record, of a machine that this node has left behind without power.
    """

    record: Remediation | None
    effects: tuple[Effect, ...] = ()
    reason: str = ""
    message: str = ""
    detached: Remediation | None = None


def is_forced(effect: Effect) -> bool:
    """Whether the effect lets the node's pods start elsewhere, which cannot be undone."""
    return isinstance(effect, (DeletePod, DeleteAttachment)) or (isinstance(effect, SetTaint) and effect.present)


def is_aged(effect: Effect, record: Remediation, reading: NodeReading, clock: float, rules: FailoverRules) -> bool:
    """Whether at ``clock``, by our clock, ``reading`` is too old to force this by the record's proof: look again.

    What a reboot has killed stays dead, so that never ages. The API server's answers to the questions that complete the
    proof may be slow, and are no work of ours: their time does not count, up to a limit below that of any boot.
    """
    if not is_forced(effect) or (isinstance(effect, DeletePod) and effect.pod.uid in record.dead):
        return False
    since = reading.asked_at if record.proof is Proof.POWER_OFF else reading.read_at
    return clock - since - min(reading.round_trips, MAX_ROUND_TRIP_SECONDS) > rules.proof_age


def is_suspect(node: KubeNode, silent: float, rules: FailoverRules) -> bool:
    """Whether the node has failed, or is about to be declared so: its kubelet is silent."""
    return node.has_failed or (rules.mode == "proof" and bool(node.boot_id) and silent >= rules.silence)


def is_storm(view: ClusterView, rules: FailoverRules) -> str:
    """Return why so many nodes have failed that the cause is hardly the nodes, "" otherwise.

    The cluster marks nodes that fall silent together some seconds apart, so those that are only silent count, too. Mode
    ``label`` acts on what has just happened, so what failed long ago does not count there. Nodes that people have taken
    out of service before are no part of the whole.
    """
    nodes = [node for node in view.nodes if node.name not in view.out_of_service]
    failed = {node.name for node in nodes if node.has_failed}
    silent = {node.name for node in nodes if node.name in view.silent and node.boot_id} - failed
    if rules.mode == "label":
        failed, silent = failed - view.old, set()
    total, allowed = len(nodes), rules.allowed_failures(len(nodes))
    if len(failed | silent) <= allowed:
        return ""
    summary = f"{len(failed)} of {total} nodes are not ready" + (f" and {len(silent)} are silent" if silent else "")
    if apart := len(view.nodes) - total:
        summary += f" ({apart} that people have taken out of service not counted)"
    return f"{summary}, more than the {allowed} of max_unhealthy = {rules.max_unhealthy}"
