"""Before a failure: whether each node's machine is known and its BMC answers, and whose machines must stay on.

The leader stores what each node reports about its machine, so that the controllers of other clusters with the same
inventory respect it. It checks each ready node every ten minutes, a few at a time. A Redfish session is the most
expensive part, so each check asks only sixty of the BMCs without problems, in turn. If a BMC reports that a machine is
off while its kubelet continues to renew its lease, that BMC is not believed later.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.store import Clock
from ferroscope.contrib.kubernetes.failover.bmc_calls import BmcCalls, Load, PowerAnswer
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, MACHINE, SERIAL, KubeNode
from ferroscope.contrib.kubernetes.failover.evidence import weigh_evidence, why_unproven
from ferroscope.contrib.kubernetes.failover.machine_list import pages
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine, MachineInventory, MachineMatch
from ferroscope.contrib.kubernetes.failover.stored_nodes import REWRITE_SECONDS, StoredNodes, format_utc
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.core.failover_node import FailoverNode
from ferroscope.db import Store, Transaction
from ferroscope.leadership import StepLeadership

_log = structlog.get_logger(__name__)

# Seconds between the beginnings of two checks of all nodes, and in which the BMCs are asked, at most one per second.
CHECK_SECONDS: Final = 600.0
_SPREAD_SECONDS: Final = 500.0
# BMCs without problems that each check asks: all of a small cluster, or those of a larger one in turn.
_MAX_BMCS_IN_TURN: Final = 60
# Seconds after which a contradicting answer is checked again before it counts: a kubelet renews its lease within them.
# Ironic's answers are older.
SECOND_LOOK_SECONDS: Final = 15.0
_SECOND_LOOK_SECOND_HAND_SECONDS: Final = 300.0
_MAX_BMCS_AT_ONCE: Final = 8
_MAX_ROWS_AT_ONCE: Final = 100
# Checks in which a distrusted BMC must report that the machine is on before it is believed again.
ANSWERS_UNTIL_BELIEVED: Final = 2
# Intended problems.
_WISHED: Final = frozenset({"paused", "maintenance", "cordoned"})
_NO_LOAD: Final = Load((), ())


class NodeCheck(msgspec.Struct, frozen=True):
    """One node now: its machine, what the BMC has answered, and why its failure would not be dealt with, or ""."""

    node: KubeNode
    match: MachineMatch
    answer: PowerAnswer
    problem: str
    message: str

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts that identify its machine, and the measured ones among them."""
        machine = self.match.machine
        if machine is None:
            return self.match.facts
        answer, is_common = self.answer, self.match.is_common
        evidence = weigh_evidence(self.node, machine, answer.identity, answer.addresses, is_common=is_common)
        return (*self.match.facts, *evidence.facts)


def distrust(checked: FailoverNode | None, machine: ClusterMachine | None) -> str:
    """Return why the BMC of the machine is not believed when it says that the machine is off, "" if it is."""
    if checked is None or machine is None or checked.doubted != machine.uuid:
        return ""
    said_at = format_utc(checked.said_off_at)
    return (
        f"the BMC of machine {machine.title} reported it off at {said_at} while the node ran, so its report is not "
        f"proof: make sure that the machine is off, and confirm it with the annotation {CONFIRMED_OFF}"
    )


def problem_of(
    node: KubeNode, match: MachineMatch, answer: PowerAnswer, checked: FailoverNode | None
) -> tuple[str, str]:
    """Return why a failure of the node would not be dealt with: a code and a text, "" if it would be."""
    machine = match.machine
    if wish := _find_wish(node, machine):
        return wish
    if machine is None:
        return match.reason, match.message
    evidence = weigh_evidence(node, machine, answer.identity, answer.addresses, is_common=match.is_common)
    if evidence.contradiction:
        return "machine-contradicts", evidence.contradiction
    if not answer.power.settled:
        return "bmc-error", f"the BMC of machine {machine.title} does not say whether it is on: {answer.error}"
    if not evidence.facts:
        return "machine-unproven", why_unproven(machine)
    if answer.power is Power.OFF and node.ready:
        return "bmc-unreliable", (
            f"the BMC of machine {machine.title} reports that it is off, while the node is ready; check the BMC and "
            "its address"
        )
    why = distrust(checked, machine)
    return ("bmc-unreliable" if why else ""), why


def _find_wish(node: KubeNode, machine: ClusterMachine | None) -> tuple[str, str] | None:
    """Return the operator's order to do nothing about the node; None without one."""
    if node.is_paused:
        return "paused", "the node has the annotation ferroscope.io/failover-paused"
    if machine is not None and machine.maintenance:
        return "maintenance", f"machine {machine.title} is in maintenance"
    return ("cordoned", "the node is cordoned, or being drained") if node.is_drained else None


def check_nodes(kube: Kubernetes, calls: BmcCalls, store: Store, *, cluster: str, clock: Clock) -> list[NodeCheck]:
    """Check all nodes now, all BMCs at once, and wait for each; change nothing."""
    nodes, _ = kube.nodes()
    stored = StoredNodes(store, clock, cluster)
    machines = [machine for page in pages(store) for machine in page.values()]
    inventory = MachineInventory(machines, [*nodes, *stored.elsewhere(nodes)])
    checked = stored.read_nodes([node.name for node in nodes])
    matches = {node.name: inventory.find(node) for node in nodes}
    for name, match in matches.items():
        calls.ask(name, "" if match.machine is None else match.machine.uuid, _NO_LOAD)
    answers: dict[str, PowerAnswer] = {}
    while len(answers) < len(matches):
        answers |= {question.node: question.answer.result() for question in calls.take()}
        calls.wait(matches, math.inf, 1.0)
    return [
        NodeCheck(
            node,
            matches[node.name],
            answers[node.name],
            *problem_of(node, matches[node.name], answers[node.name], checked.get(node.name)),
        )
        for node in sorted(nodes, key=lambda node: node.name)
    ]


class _FirstLook(msgspec.Struct, frozen=True):
    """An answer that speaks against a node; ``renewal`` and ``boot_id`` were read after it."""

    power: Power
    renewal: str
    boot_id: str


class ProtectionCheck:
    """What the leader does about nodes that have not failed, a little in each step. For one thread.

    BMCs are asked in threads of their own, nothing is waited for, and machines are read page by page.
    """

    def __init__(
        self, kube: Kubernetes, calls: BmcCalls, store: Store, rules: FailoverRules, *, cluster: str, clock: Clock
    ) -> None:
        self._kube = kube
        self._calls = calls
        self._store = store
        self._rules = rules
        self._cluster = cluster
        self._clock = clock
        self._stored = StoredNodes(store, clock, cluster)
        self._epoch = -1
        self._begins_at = -math.inf  # when all nodes are checked next
        self._now_ahead = 0.0  # the database's clock less ours
        self._nodes: Mapping[str, KubeNode] = {}
        self._versions: dict[str, str] = {}  # of the nodes, when they were last compared with what is stored
        # What is stored of this cluster, with the changes that are not written yet; and which these are.
        self._rows: dict[str, FailoverNode] = {}
        self._changed: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._pages: Iterator[dict[str, ClusterMachine]] | None = None
        self._machines: dict[str, ClusterMachine] = {}
        self._inventory = MachineInventory(())
        self._queue: list[tuple[float, str]] = []  # a heap: when to ask about which node
        self._turn = 0  # counts the checks, also over a change of the leader
        self._in_turn: Set[str] = frozenset()  # the nodes whose BMCs are asked in this check, whatever is known
        self._asked: dict[str, MachineMatch] = {}
        self._answered: dict[str, MachineMatch] = {}  # what was known of the machine whose BMC's answer counts
        self._first_looks: dict[str, _FirstLook] = {}

    def close(self) -> None:
        """Start nothing new."""
        self._calls.close()

    @property
    def unprotected_nodes(self) -> Sequence[FailoverNode]:
        """The ready nodes whose failures would not be dealt with, except where somebody wants it so; by name."""
        if self._rules.mode != "proof":
            return ()
        rows = [row for row in self._rows.values() if row.ready and row.problem and row.problem not in _WISHED]
        return sorted(rows, key=lambda row: row.node)

    def doubt(self, node: str, machine: str) -> None:
        """Believe the BMC no longer that has said that this machine is off, although the node ran."""
        row = self._rows.get(node)
        if row is not None and row.doubted != machine:
            said_off_at = self._clock.monotonic() + self._now_ahead
            self._put(msgspec.structs.replace(row, doubted=machine, said_off_at=said_off_at, said_on=0))

    def step(self, leading: StepLeadership, nodes: Mapping[str, KubeNode], dealt_with: Container[str]) -> None:
        """Do a part; ``nodes`` are those of the last pass, the same object until the next. ``LeaseLostError``.

        ``dealt_with``: the nodes that have a remediation, whose BMCs are asked by that.
        """
        if not nodes:
            return
        is_over = self._clock.monotonic() >= self._begins_at and not self._queue and not self._changed
        if leading.epoch != self._epoch or is_over:
            self._begin(leading.epoch)
        if nodes is not self._nodes:
            self._note(nodes)
        if self._rules.mode == "proof":
            self._read_machines()
            self._ask(dealt_with)
            self._take(dealt_with)
        self._write(leading)

    def _begin(self, epoch: int) -> None:
        """Begin a check of all nodes: read what is stored, which an earlier leader may have written."""
        rows, now = self._store.read(lambda tx: (tx.failover_nodes.list(self._cluster), tx.now))
        clock = self._clock.monotonic()
        self._turn = self._turn + 1 if epoch == self._epoch else int(now / CHECK_SECONDS)
        self._epoch, self._begins_at, self._now_ahead = epoch, clock + CHECK_SECONDS, now - clock
        self._rows = {row.node: row for row in rows}
        self._changed = {row.node: None for row in rows if abs(now - row.written_at) > REWRITE_SECONDS}
        self._gone.clear()
        self._nodes = {}
        self._versions.clear()
        self._queue.clear()
        self._first_looks.clear()
        self._machines, self._pages = {}, pages(self._store)

    def _note(self, nodes: Mapping[str, KubeNode]) -> None:
        """Compare what the nodes say of their machines with what is stored."""
        self._nodes = nodes
        for name, node in nodes.items():
            version = node.metadata.resource_version
            if version and self._versions.get(name) == version:
                continue
            self._versions[name] = version
            before = self._rows.get(name)
            self._put(
                msgspec.structs.replace(
                    before or FailoverNode(cluster=self._cluster, node=name),
                    ready=node.ready,
                    uid=node.metadata.uid,
                    annotation=node.annotations.get(MACHINE, ""),
                    serial=node.annotations.get(SERIAL, ""),
                    provider_id=node.spec.provider_id,
                    system_uuid=node.status.node_info.system_uuid,
                )
            )
        for name in [name for name in self._rows if name not in nodes]:
            for rows in (self._rows, self._versions, self._changed, self._answered):
                rows.pop(name, None)
            self._gone[name] = None

    def _put(self, row: FailoverNode) -> None:
        if row != self._rows.get(row.node):
            self._rows[row.node] = row
            self._changed[row.node] = None
            self._gone.pop(row.node, None)

    def _read_machines(self) -> None:
        """Read one page; after the last one, have the BMCs asked."""
        if self._pages is None:
            return
        if (page := next(self._pages, None)) is not None:
            self._machines |= page
            return
        nodes = list(self._nodes.values())
        self._inventory = MachineInventory(self._machines.values(), [*nodes, *self._stored.elsewhere(nodes)])
        self._machines, self._pages = {}, None
        now, apart = self._clock.monotonic(), min(1.0, _SPREAD_SECONDS / len(nodes))
        names = sorted(self._nodes)
        checks = math.ceil(len(names) / _MAX_BMCS_IN_TURN)
        self._in_turn = frozenset(names[self._turn % checks :: checks])
        self._queue = [(now + number * apart, name) for number, name in enumerate(names)]

    def _ask(self, dealt_with: Container[str]) -> None:
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now and len(self._asked) < _MAX_BMCS_AT_ONCE:
            _, name = heapq.heappop(self._queue)
            if name in self._asked or (node := self._checkable(name, dealt_with)) is None:
                continue
            match = self._inventory.find(node)
            if match.machine is None or _find_wish(node, match.machine):
                self._record(node, match, PowerAnswer(Power.UNKNOWN, now, "it was not asked"))
            elif self._is_due(name, match):
                self._asked[name] = match
                self._calls.ask(name, match.machine.uuid, _NO_LOAD)

    def _is_due(self, name: str, match: MachineMatch) -> bool:
        """Whether the BMC is to be asked in this check: in its turn, or because its last answer may not hold."""
        row, last_match = self._rows[name], self._answered.get(name, match)
        is_well = row.power == Power.ON and not (row.problem or row.doubted)
        is_same = match.machine is not None and row.machine == match.machine.uuid and last_match == match
        return name in self._in_turn or name in self._first_looks or not (is_well and is_same)

    def _checkable(self, name: str, dealt_with: Container[str]) -> KubeNode | None:
        node = self._nodes.get(name)
        if node is not None and node.ready and name not in dealt_with:
            return node
        self._first_looks.pop(name, None)
        return None

    def _take(self, dealt_with: Container[str]) -> None:
        for question in self._calls.take():
            match = self._asked.pop(question.node, None)
            node = self._checkable(question.node, dealt_with)
            if match is not None and node is not None:
                self._answered[node.name] = MachineMatch()
                self._judge(node, match, question.answer.result())

    def _judge(self, node: KubeNode, match: MachineMatch, answer: PowerAnswer) -> None:
        """Record the answer; one that speaks against the node is asked for again before."""
        first, off = self._first_looks.pop(node.name, None), answer.power is Power.OFF
        if answer.power is Power.ON:
            self._record(node, match, answer)
            return
        try:
            renewal = self._kube.renewal(node.name) if off else ""
            now = self._kube.node(node.name) if off else node  # it may have booted since it was listed
        except KubernetesError:
            return  # the next check will see
        if now is None or not now.ready:
            return
        look = _FirstLook(answer.power, renewal, now.boot_id)
        if first is None or (off and first.power is not Power.OFF):
            self._first_looks[node.name] = look
            again = _SECOND_LOOK_SECOND_HAND_SECONDS if self._rules.second_hand else SECOND_LOOK_SECONDS
            heapq.heappush(self._queue, (self._clock.monotonic() + again, node.name))
        elif not off:
            self._record(node, match, answer)
        elif look.renewal != first.renewal and look.boot_id == first.boot_id:
            self._record(node, match, answer, caught=True)
        # Otherwise the node has just failed, or has just booted.

    def _record(self, node: KubeNode, match: MachineMatch, answer: PowerAnswer, *, caught: bool = False) -> None:
        row = self._rows[node.name]
        self._answered[node.name] = match
        machine = "" if match.machine is None else match.machine.uuid
        doubted, said_off_at, said_on = row.doubted, row.said_off_at, row.said_on
        if machine and doubted != machine:
            doubted, said_off_at, said_on = "", 0.0, 0
        if caught:
            doubted, said_off_at, said_on = machine, self._clock.monotonic() + self._now_ahead, 0
            _log.warning("a BMC reports that a ready node's machine is off", cluster=self._cluster, node=node.name,
                         machine=machine)  # fmt: skip
        elif doubted and doubted == machine and answer.power is Power.ON:
            said_on += 1
            if said_on >= ANSWERS_UNTIL_BELIEVED:
                doubted, said_off_at, said_on = "", 0.0, 0
        row = msgspec.structs.replace(
            row,
            machine=machine,
            facts=match.facts,
            power=str(answer.power),
            doubted=doubted,
            said_off_at=said_off_at,
            said_on=said_on,
        )
        problem, message = problem_of(node, match, answer, row)
        self._put(msgspec.structs.replace(row, problem=problem, message=message))

    def _write(self, leading: StepLeadership) -> None:
        """Store some of what has changed, under the lease."""
        changed = list(islice(self._changed, _MAX_ROWS_AT_ONCE))
        gone = list(islice(self._gone, _MAX_ROWS_AT_ONCE))
        if not changed and not gone:
            return

        def save(tx: Transaction) -> list[FailoverNode]:
            leading.fence(tx)
            tx.failover_nodes.remove(self._cluster, gone)
            return tx.failover_nodes.save([self._rows[name] for name in changed])

        self._rows |= {row.node: row for row in self._store.write(save)}
        for name in changed:
            del self._changed[name]
        for name in gone:
            del self._gone[name]
