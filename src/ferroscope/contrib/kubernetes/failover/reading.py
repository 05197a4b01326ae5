"""Reads a cluster, asks the BMCs of its failed nodes, and has ``decision`` decide about each once its BMC has answered.

The order is part of the proof. Pods and volumes are read before the BMC is asked: if the kubelet comes back after that,
their versions change, and a deletion of what was read is refused. The kubelet's lease and the node are read after the
answer, and what was decided is carried out before anything else is read: so nothing waits for another node's BMC.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.store import Clock
from ferroscope.contrib.kubernetes.failover.bmc_calls import BmcCalls, Load, PowerAnswer
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.decision import decide
from ferroscope.contrib.kubernetes.failover.evidence import PodEvidence, weigh_evidence
from ferroscope.contrib.kubernetes.failover.guards import members_off, out_of_service, recent_power_offs
from ferroscope.contrib.kubernetes.failover.loads import LoadReader
from ferroscope.contrib.kubernetes.failover.machine_list import MachineList
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine, MachineInventory, MachineMatch
from ferroscope.contrib.kubernetes.failover.proof import due_in
from ferroscope.contrib.kubernetes.failover.protection import distrust
from ferroscope.contrib.kubernetes.failover.renewals import RenewalWatch
from ferroscope.contrib.kubernetes.failover.stored_nodes import StoredNodes
from ferroscope.contrib.kubernetes.failover.terms import (
    ClusterView,
    Decision,
    FailoverRules,
    NodeReading,
    is_storm,
    is_suspect,
)
from ferroscope.core.failover_node import FailoverNode
from ferroscope.core.remediation import Phase, Remediation
from ferroscope.db import Store

_log = structlog.get_logger(__name__)

# The first server that acts on the out-of-service taint without a feature gate.
TAINT_SINCE: Final = (1, 28)
# The phases in which a node's machine is not looked for any more, because its pods are free.
_PAST: Final = (Phase.EVACUATED, Phase.RETURNING)
_LATE_SECONDS: Final = 3.0  # seconds after which a BMC that has not answered is one that does not answer
_MOMENT_SECONDS: Final = 1.0  # seconds for which a BMC is not asked because a later answer counts for more
_KEEP_ALIVE_SECONDS: Final = 0.5  # seconds between two signs of progress while BMCs are waited for


class NodePlan(msgspec.Struct, frozen=True):
    """One node in one pass: what was read, the stored record, and the decision."""

    reading: NodeReading
    record: Remediation | None
    decision: Decision


class _ClusterState(msgspec.Struct, frozen=True):
    """What is read once in a pass: nodes by name, remediations in progress by node, and all that may be needed.

    ``checked``: what the last check before the failure has found out about the nodes, by name.
    """

    nodes: dict[str, KubeNode]
    active: dict[str, Remediation]
    names: list[str]
    machines: MachineInventory
    silent: Set[str]
    problem: str
    taints: bool
    epoch: int
    began: float
    paused: str = ""
    checked: Mapping[str, FailoverNode] = {}
    failed: Set[str] = frozenset()
    out_of_service: Set[str] = frozenset()


class ClusterReader:
    """For one thread. It changes nothing.

    ``waits``: the last pass has left a call to a BMC that is under way. ``again_in``: in so many seconds a BMC should
    be asked that it has left out, because its answer would have counted for less. ``open`` are the remediations that
    are in progress after the last pass, by node; ``idle`` are nodes without one that are not ready, such as new ones.
    ``nodes`` are all nodes of the last pass, by name.
    """

    def __init__(
        self,
        kube: Kubernetes,
        calls: BmcCalls,
        store: Store,
        rules: FailoverRules,
        *,
        cluster: str,
        clock: Clock,
        api_servers: Sequence[str] = (),
        refused: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._kube = kube
        self._calls = calls
        self._refused = refused
        self._store = store
        self._rules = rules
        self._cluster = cluster
        self._clock = clock
        self._api_servers = tuple(api_servers)
        self._watch = RenewalWatch(clock, rules.silence)
        self._machines = MachineList(store, clock)
        self._stored_nodes = StoredNodes(store, clock, cluster)
        self._loads = LoadReader(kube, clock)
        # The leader's epoch, and how far the database's clock was ahead of ours when we began to lead.
        self._ahead: tuple[int, float] | None = None
        self._silent: Set[str] = frozenset()
        self.waits = False
        self.again_in = math.inf
        self.open: Mapping[str, Remediation] = {}
        self.paused = ""
        self.idle: Sequence[str] = ()
        self.nodes: Mapping[str, KubeNode] = {}

    def look(
        self, keep_alive: Callable[[], object] = lambda: None, *, epoch: int = 0, patience: float = math.inf
    ) -> Iterator[NodePlan]:
        """Yield every node that has failed, or has a record, with what is to be done.

        Carry that out before the next one is taken. A BMC is waited for ``patience`` seconds from when it was asked;
        an answer that comes later is used by the next pass. With a patience, a node about which more can be done in a
        moment (``due_in``) is left out until then: a BMC that is still busy with a question would only delay that.
        """
        state = self._read_cluster(keep_alive, epoch)
        self.open, self.nodes = state.active, state.nodes
        self.idle = [node.name for node in state.nodes.values() if not node.ready and node.name not in state.names]
        early: list[str] = []
        loads: dict[str, Load] = {}
        for name in state.names:
            yield from self._answers(state, keep_alive)
            if 0.0 < self._due_in(state, name) <= _MOMENT_SECONDS and math.isfinite(patience):
                early.append(name)
            elif not self._calls.busy(name):
                loads[name] = self._load(state, name)
            keep_alive()
        # After all of that has been read: no answer ages while a slow API server says what is on another node.
        for name, load in loads.items():
            self._calls.ask(name, self._subject(state, name, self._match(state, name)), load)
        yield from self._answers(state, keep_alive)
        while self._calls.wait(state.names, patience, _KEEP_ALIVE_SECONDS):
            keep_alive()
            yield from self._answers(state, keep_alive)
        self.waits = any(map(self._calls.busy, state.names))
        self.again_in = min((max(0.0, self._due_in(state, name)) for name in early), default=math.inf)
        for name in state.names:
            # An answer that is about to come is better than none, but a failure must be recorded without it.
            if self._calls.busy(name) and (name not in state.active or self._calls.open_seconds(name) >= _LATE_SECONDS):
                silent = PowerAnswer(Power.UNKNOWN, -math.inf, "it has not answered")
                yield self._plan_node(state, self._read_node(state, name, "", silent, self._load(state, name)))
                keep_alive()

    def follow(self) -> None:
        """Note the records as another leader stores them: how long ago that was counts once this process leads."""
        self._watch.follow(self._store.read(lambda tx: tx.remediations.active(self._cluster)))

    def has_news(self, keep_alive: Callable[[], object]) -> bool:
        """Whether a kubelet has fallen silent since the last pass, or is not any more, or a pause has begun or ended.

        It reads a hundredth of what a pass does. ``KubernetesError``.
        """
        silence = self._watch.measure_silence(self._kube.renewals())
        keep_alive()
        silent = frozenset(name for name, seconds in silence.items() if seconds >= self._rules.silence)
        paused = self._store.read(lambda tx: tx.remediations.pause_of(self._cluster))
        return silent != self._silent or (paused is None) is bool(self.paused)

    def _read_cluster(self, keep_alive: Callable[[], object], epoch: int) -> _ClusterState:
        began = self._clock.monotonic()
        nodes, _ = self._kube.nodes()
        keep_alive()
        silence = self._watch.measure_silence(self._kube.renewals())
        silent = frozenset(name for name, seconds in silence.items() if seconds >= self._rules.silence)
        self._silent = silent
        keep_alive()
        own_records, foreign_records, paused = self._store.read(
            lambda tx: (
                tx.remediations.active(self._cluster),
                tx.remediations.elsewhere(self._cluster),
                tx.remediations.pause_of(self._cluster),
            )
        )
        self.paused = "" if paused is None else f"{paused.why} (by {paused.by})"
        active = {key_of(record): record for record in own_records}
        elsewhere = {
            record.machine: f"{record.node} of cluster {record.cluster}"
            for record in foreign_records
            if record.commanded
        }
        failed = {node.name for node in nodes if is_suspect(node, silence.get(node.name, 0.0), self._rules)}
        by_name = {node.name: node for node in nodes}
        left_off = {node.name for node in nodes if node.left_off}
        if not (names := sorted(failed | set(active) | left_off)):
            self._loads.clear()
            self._machines.clear()
            self._stored_nodes.clear()
            return _ClusterState(
                by_name, active, names, MachineInventory(()), silent, "", taints=False, epoch=epoch, began=began
            )
        problem = self._problem()
        keep_alive()
        taints = self._kube.version() >= TAINT_SINCE
        machines = self._inventory(nodes, active, failed, elsewhere, keep_alive)
        state = _ClusterState(by_name, active, names, machines, silent, problem, taints, epoch, began, self.paused)
        wanted = out_of_service(nodes, silent.__contains__, active, lambda node: self._machine_of(state, node.name))
        checked = self._stored_nodes.read_nodes(names)
        marked = frozenset(node.name for node in nodes if node.has_failed)
        state = msgspec.structs.replace(state, out_of_service=wanted, checked=checked, failed=marked)
        if storm := is_storm(self._view(state), self._rules):
            _log.warning("too many nodes are not ready", cluster=self._cluster, why=storm)
        return state

    def _inventory(
        self,
        nodes: Sequence[KubeNode],
        active: Mapping[str, Remediation],
        failed: Set[str],
        elsewhere: Mapping[str, str],
        keep_alive: Callable[[], object],
    ) -> MachineInventory:
        """Return the machines among which those of the failed nodes are looked for.

        ``elsewhere``: the nodes of other clusters for which machines were powered off, by the machine's UUID.
        """
        settled = {record.machine for record in active.values() if record.machine}
        held = {
            **elsewhere,
            **{record.machine: record.node for record in active.values() if record.machine and record.commanded},
        }
        if failed <= set(active) and all(record.phase in _PAST for record in active.values()):
            return MachineInventory(self._machines.some(settled), nodes, held)
        machines, fresh = self._machines.all(keep_alive)
        everywhere = [*nodes, *self._stored_nodes.elsewhere(nodes)]
        inventory = MachineInventory(machines, everywhere, held)
        if fresh:
            return inventory
        matches = [inventory.find(node).machine for node in nodes if node.name in failed or node.name in active]
        return MachineInventory(
            self._machines.again(settled.union(machine.uuid for machine in matches if machine)), everywhere, held
        )

    def _view(self, state: _ClusterState) -> ClusterView:
        clock = self._clock.monotonic()
        return ClusterView(
            cluster=self._cluster,
            nodes=list(state.nodes.values()),
            now=self._now(state.epoch),
            clock=clock,
            epoch=state.epoch,
            silent=state.silent,
            switched=frozenset(name for name, record in state.active.items() if record.phase is not Phase.DWELL),
            members_off=members_off(state.active.values(), state.nodes),
            out_of_service=state.out_of_service,
            powered_on_at=max(
                (record.command_at for record in state.active.values() if record.phase is Phase.RETURNING),
                default=-math.inf,
            ),
            old=self._failed_long_ago(state),
            watched=clock - self._watch.began_at,
            problem=state.problem,
            taints=state.taints,
            paused=state.paused,
            unguarded=self._stored_nodes.unguarded,
        )

    def _now(self, epoch: int) -> float:
        """Return the time by the database's clock, as if nobody had set it since this leader began."""
        if self._ahead is None or self._ahead[0] != epoch:
            self._ahead = (epoch, self._store.read(lambda tx: tx.now) - self._clock.monotonic())
        return self.now()

    def now(self) -> float:
        """Return the same in the epoch of the last pass."""
        return self._clock.monotonic() + (self._ahead[1] if self._ahead is not None else 0.0)

    def _failed_long_ago(self, state: _ClusterState) -> frozenset[str]:
        """Return the nodes that failed longer ago than ``storm_cooldown``: both times are the cluster's own."""
        if self._rules.mode != "label":
            return frozenset()
        limit = self._kube.time() - self._rules.storm_cooldown
        return frozenset(
            node.name for node in state.nodes.values() if node.has_failed and _at(node.unready_since) < limit
        )

    def _problem(self) -> str:
        """Return why our own view cannot be trusted, "" if it can."""
        if not self._api_servers:
            return ""
        ready = sum(1 for server in self._api_servers if self._kube.is_ready(server))
        needed = min(2, len(self._api_servers))
        return "" if ready >= needed else f"{ready} of {len(self._api_servers)} API servers answer, {needed} must"

    def _due_in(self, state: _ClusterState, name: str) -> float:
        record = state.active.get(name)
        if record is None or self._rules.mode != "proof":
            return 0.0
        return due_in(record, self._now(state.epoch))

    def _load(self, state: _ClusterState, name: str) -> Load:
        return self._loads.read(name) if name in state.nodes else Load()

    def _answers(self, state: _ClusterState, keep_alive: Callable[[], object]) -> Iterator[NodePlan]:
        """Yield what is to be done about the nodes whose BMCs have answered."""
        for question in self._calls.take():
            if question.node in state.names:
                reading = self._read_node(
                    state, question.node, question.machine, question.answer.result(), question.load
                )
                yield self._plan_node(state, reading)
                keep_alive()

    def _read_node(
        self, state: _ClusterState, name: str, asked_machine: str, answer: PowerAnswer, load: Load
    ) -> NodeReading:
        """Read what the kubelet may have changed before the answer; ``asked_machine``: whose BMC has given it."""
        read_at, unseen, record = self._clock.monotonic(), "", state.active.get(name)
        if name in state.nodes if record is None else not record.detached:
            try:
                self._read_signs_of_life(state, name)
            except KubernetesError as exc:
                unseen = str(exc)
        renewal, renewed_at = self._watch.renewals.get(name, ("", read_at))
        node, match = state.nodes.get(name), self._match(state, name)
        if asked_machine and asked_machine != self._subject(state, name, match):
            answer = PowerAnswer(Power.UNKNOWN, -math.inf, "it was not asked")
        settled = state.machines.get(record.machine) if record is not None and record.settled else None
        return NodeReading(
            name=name,
            node=node,
            renewal=renewal,
            silent=self._clock.monotonic() - renewed_at,
            match=match,
            settled=settled,
            power=answer.power,
            power_error=answer.error,
            command_error=self._calls.failure(name),
            asked_at=answer.asked_at,
            read_at=read_at,
            pods=load.pods,
            attachments=load.attachments,
            volumes=load.volumes,
            neighbors=load.neighbors,
            booting=answer.booting,
            power_offs=self._power_offs(name) if record is None and node is not None else (),
            refused={uid: words for uid, words in self._refused().items() if uid in load.uids},
            unread=load.error,
            unseen=unseen,
            evidence=self._weigh(state, name, asked_machine, answer),
            followed=None if record is None else self._watch.followed_seconds(record),
            round_trips=self._clock.monotonic() - read_at,
            age=self._clock.monotonic() - (state.began if name in state.failed else read_at),
            distrust=distrust(state.checked.get(name), settled or match.machine),
        )

    def _read_signs_of_life(self, state: _ClusterState, name: str) -> None:
        """Read the kubelet's lease and the node as a majority of etcd knows them; ``KubernetesError``."""
        self._watch.note(name, self._kube.renewal(name))
        node = self._kube.node(name)
        if node is None:
            state.nodes.pop(name, None)
        else:
            state.nodes[name] = node

    def _weigh(self, state: _ClusterState, name: str, asked_machine: str, answer: PowerAnswer) -> PodEvidence:
        """Return what was measured about the machine that was asked, if that is still the one to ask."""
        node, machine = state.nodes.get(name), state.machines.get(asked_machine)
        if node is None or machine is None:
            return PodEvidence()
        is_common = state.machines.is_common(node.status.node_info.system_uuid)
        return weigh_evidence(node, machine, answer.identity, answer.addresses, is_common=is_common)

    def _plan_node(self, state: _ClusterState, reading: NodeReading) -> NodePlan:
        record = state.active.get(reading.name)
        decision = _merge_left_off(decide(self._view(state), reading, record, self._rules, _new_uuid), state.active)
        # One pass may look at a node twice: first by an answer that an interrupted pass has left behind.
        state.active.pop(reading.name, None)
        for changed in (decision.record, decision.detached):
            if changed is not None and not changed.ended:
                state.active[key_of(changed)] = changed
        return NodePlan(reading, record, decision)

    def _power_offs(self, name: str) -> tuple[float, ...]:
        """Return when the machine of this node was powered off for earlier failures that still count."""
        return self._store.read(lambda tx: recent_power_offs(tx.remediations.latest(self._cluster, name), tx.now))

    def _machine_of(self, state: _ClusterState, name: str) -> ClusterMachine | None:
        record = state.active.get(name)
        if record is not None and record.settled:
            return state.machines.get(record.machine)
        return self._match(state, name).machine

    def _match(self, state: _ClusterState, name: str) -> MachineMatch:
        node = state.nodes.get(name)
        return MachineMatch() if node is None else state.machines.find(node)

    def _subject(self, state: _ClusterState, name: str, match: MachineMatch) -> str:
        """Return the machine whose BMC is asked, "" if none is: the settled one, and before that the match."""
        record = state.active.get(name)
        if record is not None and record.settled:
            return record.machine if state.machines.get(record.machine) is not None else ""
        return "" if match.machine is None or self._rules.mode != "proof" else match.machine.uuid


def key_of(record: Remediation) -> str:
    """Return what identifies it among those in progress: its node, or the machine that its node has left behind."""
    return f"machine/{record.machine}" if record.detached else record.node


def _merge_left_off(decision: Decision, active: Mapping[str, Remediation]) -> Decision:
    """Return the decision without a second record of a machine that is known to be left off."""
    record, detached = decision.record, decision.detached
    if detached is not None and key_of(detached) in active:
        return msgspec.structs.replace(decision, detached=None)
    active_record = None if record is None or not record.detached else active.get(key_of(record))
    if record is None or active_record is None or active_record.uuid == record.uuid:
        return decision
    record = msgspec.structs.replace(record, detached=False, phase=Phase.DONE, ended_at=record.updated_at)
    return msgspec.structs.replace(decision, record=record)


def _at(text: str) -> float:
    """Return the time in seconds since the epoch; infinity if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.inf


def _new_uuid() -> str:
    return str(uuid.uuid4())
