"""What to do about a node now, and why not more: pure, without I/O and clocks.

``decide`` gets what was read about one node in this pass, and the record of its remediation. It returns the record to
store *before* the effects are carried out, and a message for people. It is called again and again, and depends on no
event having been seen. What it holds to:

* Nothing is forced without proof: the power cut by command, and then seen off twice, some seconds apart, with no
  renewal of the kubelet's lease in between (without the command only where it is forbidden to power off); or the
  operator's word; or, for pods that were already being deleted, a reboot. Mode ``label`` is apart.
* The proof is looked at again in each pass. A sign of life ends it: a renewed lease, a new boot ID, power on.
* An answer that is older than ``proof_age`` forces nothing (``is_aged``): the machine may have been powered on since.
* A pass that could not read something forces nothing that depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ferroscope.core.remediation import Phase, Proof, Remediation, Sighting, logged
from ferroscope.failover.cluster import CONFIRMED_OFF, Attachment, KubeNode, Pod
from ferroscope.failover.machines import Match

# Seconds.
APART: Final = 5.0  # between two sightings of a machine that is off
REPEAT_COMMAND: Final = 30.0  # after which a power command that has not taken effect is sent again
TAINT_WORKS: Final = 60.0  # after which pods that the taint has not removed are deleted one by one
# A new boot may be running before the API shows it: pods must have been marked as deleted for so long before that.
BEFORE_REBOOT: Final = 15.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The options that decide; seconds. ``labels`` and ``namespaces`` select the pods of mode ``label``."""

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

    def allowed(self, total: int) -> int:
        """Return how many of so many nodes may have failed for anything to be done."""
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


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Our own view: all nodes, and times. ``now`` by the database's clock; ``clock`` by ours, of this ``epoch``.

    ``problem``: why our view cannot be trusted now, such as API servers that do not answer. ``taints``: the server
    acts on the out-of-service taint. ``age``: so many seconds ago the nodes were listed, and which of them have failed.
    """

    cluster: str
    nodes: Sequence[KubeNode]
    now: float
    clock: float
    epoch: int
    problem: str = ""
    taints: bool = False
    age: float = 0.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was read about one node in this pass; ``node`` is None if the cluster has no such node.

    ``renewal`` identifies the last renewal of the kubelet's lease, and ``silent`` is for how many seconds we have seen
    no other. ``power_off`` is None if the BMC was not asked or did not say, for the reason ``power_error``.
    By our clock: ``asked_at`` is from just before the BMC was asked, and ``read_at`` from just before ``renewal`` and
    ``node`` were read, after its answer.
    """

    name: str
    node: KubeNode | None
    renewal: str = ""
    silent: float = 0.0
    match: Match = Match()
    power_off: bool | None = None
    power_error: str = ""
    asked_at: float = -math.inf
    read_at: float = -math.inf
    pods: Sequence[Pod] = ()
    attachments: Sequence[Attachment] = ()


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


class DeletePod(msgspec.Struct, frozen=True):
    """Delete the pod at once, if it is still as it was read; ``ask_budget``: evict it, if the budgets allow that."""

    pod: Pod
    ask_budget: bool = False


class DeleteAttachment(msgspec.Struct, frozen=True):
    """Delete the VolumeAttachment, if it is still as it was read."""

    attachment: Attachment


Effect = PowerOff | PowerOn | Inspect | SetTaint | DeletePod | DeleteAttachment


class Decision(msgspec.Struct, frozen=True):
    """``record`` is stored first, then the effects are carried out. ``reason`` and ``message`` say why no more is done.

    ``record`` None: there is nothing to do about the node.
    """

    record: Remediation | None
    effects: tuple[Effect, ...] = ()
    reason: str = ""
    message: str = ""


def is_forced(effect: Effect) -> bool:
    """Whether the effect lets the node's pods start elsewhere, which cannot be undone."""
    return isinstance(effect, (DeletePod, DeleteAttachment)) or (isinstance(effect, SetTaint) and effect.present)


def is_aged(effect: Effect, record: Remediation, seen: Seen, clock: float, rules: Rules) -> bool:
    """Whether at ``clock``, by our clock, ``seen`` is too old to force this by the record's proof: look again.

    What a reboot has killed stays dead, so that never ages.
    """
    if not is_forced(effect) or (isinstance(effect, DeletePod) and effect.pod.uid in record.dead):
        return False
    since = seen.asked_at if record.proof is Proof.POWER_OFF else seen.read_at
    return clock - since > rules.proof_age


def is_suspect(node: KubeNode, silent: float, rules: Rules) -> bool:
    """Whether the node has failed, or is about to be declared so: its kubelet is silent."""
    return node.failed or (rules.mode == "proof" and bool(node.boot_id) and silent >= rules.silence)


def is_storm(view: View, rules: Rules) -> str:
    """Return why so many nodes have failed that the cause is hardly the nodes, "" otherwise."""
    failed, total = sum(1 for one in view.nodes if one.failed), len(view.nodes)
    allowed = rules.allowed(total)
    if failed <= allowed:
        return ""
    return f"{failed} of {total} nodes are not ready, more than the {allowed} of max_unhealthy = {rules.max_unhealthy}"


def decide(view: View, seen: Seen, record: Remediation | None, rules: Rules, new_uuid: Callable[[], str]) -> Decision:
    """Return what to do about the node now. ``record``: of its remediation in progress, None if there is none."""
    if record is None:
        if seen.node is None or not is_suspect(seen.node, seen.silent, rules):
            return Decision(None)
        record = _opened(view, seen, seen.node, rules, new_uuid())
    record = msgspec.structs.replace(record, updated_at=view.now, epoch=view.epoch)
    case = _Case(view, seen, rules)
    node = seen.node
    if node is None or node.metadata.uid != record.node_uid:
        return case.end(record, Phase.DONE, "node-deleted", "the node was deleted from the cluster")
    decision = case.by_label(record, node) if rules.mode == "label" else case.by_proof(record, node)
    return case.remembered(decision)


def _opened(view: View, seen: Seen, node: KubeNode, rules: Rules, uuid: str) -> Remediation:
    what = (
        "is not ready" if node.failed else f"is silent: its kubelet has not renewed its lease for {seen.silent:.0f} s"
    )
    since = view.now - view.age  # a BMC that takes its time to answer must not make the dwell time longer
    record = Remediation(
        uuid=uuid,
        cluster=view.cluster,
        node=seen.name,
        node_uid=node.metadata.uid,
        boot_id=node.boot_id,
        renewal=seen.renewal,
        started_at=since,
        not_before=since + (0.0 if rules.mode == "label" else rules.dwell),
    )
    return logged(record, view.now, "failed", f"the node {what}")


class _Case:
    """One node in one pass."""

    def __init__(self, view: View, seen: Seen, rules: Rules) -> None:
        self._view = view
        self._seen = seen
        self._rules = rules
        self._movable = [one for one in seen.pods if not one.bound_to_node and (one.terminating or _runs(one))]

    # Common to both modes.

    def end(self, record: Remediation, phase: Phase, reason: str, message: str, *effects: Effect) -> Decision:
        record = self._log(msgspec.structs.replace(record, phase=phase, ended_at=self._view.now), reason, message)
        return Decision(_explained(record, reason, message), effects, reason, message)

    def remembered(self, decision: Decision) -> Decision:
        """Add what a reboot proves, and remember which pods are being deleted."""
        record = decision.record
        if record is None or record.ended:
            return decision
        present = {one.uid: one for one in self._seen.pods}
        dead = tuple(uid for uid in record.dead if uid in present and present[uid].terminating)
        deleted = {one.pod.uid for one in decision.effects if isinstance(one, DeletePod)}
        node = self._seen.node
        allowed = not self._view.problem and node is not None and not node.paused
        effects = tuple(DeletePod(present[uid]) for uid in dead if uid not in deleted and allowed)
        if node is not None and node.boot_id == record.boot_id:
            times = {
                uid: record.terminating.get(uid, self._view.now) for uid, one in present.items() if one.terminating
            }
            record = msgspec.structs.replace(record, terminating=times)
        record = msgspec.structs.replace(record, dead=dead)
        return Decision(record, decision.effects + effects, decision.reason, decision.message)

    def _log(self, record: Remediation, what: str, text: str) -> Remediation:
        return logged(record, self._view.now, what, text)

    def _wait(self, record: Remediation, reason: str, message: str) -> Decision:
        return Decision(_explained(record, reason, message), (), reason, message)

    def _guard(self, node: KubeNode) -> tuple[str, str]:
        """Return why nothing may be done to this node's pods now, "" if it may."""
        if self._view.problem:
            return "view-bad", f"our own view cannot be trusted: {self._view.problem}"
        if node.paused:
            return "paused", "the node has the annotation ferroscope.io/failover-paused"
        if (machine := self._seen.match.machine) is not None and machine.maintenance:
            return "maintenance", f"machine {machine.title} is in maintenance"
        return "", ""

    def _places(self) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that could run on another node, and those that could not."""
        others = [one for one in self._view.nodes if one.name != self._seen.name]
        fits = [one for one in self._movable if any(one.fits(node) for node in others)]
        return fits, [one for one in self._movable if one not in fits]

    # Mode ``label``: the pods that may run twice are deleted as soon as the node is not ready.

    def by_label(self, record: Remediation, node: KubeNode) -> Decision:
        if not node.failed:
            return self.end(record, Phase.DONE, "ready-again", "the node is ready again")
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if storm := is_storm(self._view, self._rules):
            record = msgspec.structs.replace(record, not_before=self._view.now + self._rules.storm_cooldown)
            return self._wait(record, "storm", storm)
        if self._view.now < record.not_before:
            return self._wait(record, "storm", "many nodes were not ready a moment ago")
        fits, _ = self._places()
        chosen = [one for one in fits if self._rules.without_proof(one)]
        if not chosen:
            return self._wait(record, "nothing-to-free", "it has no pods that are selected and could run elsewhere")
        if record.phase is Phase.DWELL:
            record = msgspec.structs.replace(record, phase=Phase.EVACUATING, proof=Proof.LABEL)
            record = self._log(record, "without-proof", f"deleting {len(chosen)} selected pods, without proof")
        effects = tuple(DeletePod(one, ask_budget=not one.terminating) for one in chosen)
        message = f"deleting {len(chosen)} pods without proof, as mode = label says"
        return Decision(_explained(record, "", message), effects, "", message)

    # Mode ``proof``.

    def by_proof(self, record: Remediation, node: KubeNode) -> Decision:
        if record.tainted and node.ready:
            return self._back(record, node)
        if record.phase in (Phase.DWELL, Phase.POWERING_OFF) and node.boot_id != record.boot_id:
            return self._rebooted(record, node)
        if record.phase is Phase.DWELL:
            return self._dwell(record, node)
        if record.phase is Phase.POWERING_OFF:
            return self._powering_off(record, node)
        if record.phase is Phase.EVACUATING:
            return self._evacuating(record, node)
        if record.phase is Phase.EVACUATED:
            return self._evacuated(record, node)
        return self._returning(record, node)

    def _rebooted(self, record: Remediation, node: KubeNode) -> Decision:
        """Pods that were being deleted before the reboot are dead: no kubelet starts such a pod."""
        if node.ready:
            return self.end(record, Phase.DONE, "rebooted", "the node has rebooted and is ready again")
        limit = self._view.now - BEFORE_REBOOT
        dead = {uid for uid, since in record.terminating.items() if since <= limit}
        record = msgspec.structs.replace(
            record,
            phase=Phase.DWELL,
            proof=Proof.NONE,
            boot_id=node.boot_id,
            renewal=self._seen.renewal,
            not_before=self._view.now + self._rules.dwell,
            off_seen=None,
            dead=tuple(sorted({*record.dead, *dead})),
            terminating={},
        )
        message = "the node has rebooted, but is not ready"
        return self._wait(self._log(record, "rebooted", message), "rebooted", message)

    def _confirmed(self, node: KubeNode) -> bool:
        return bool(node.boot_id) and node.annotations.get(CONFIRMED_OFF) == node.boot_id

    def _dwell(self, record: Remediation, node: KubeNode) -> Decision:
        view, rules, machine = self._view, self._rules, self._seen.match.machine
        if not is_suspect(node, self._seen.silent, rules):
            return self.end(record, Phase.CANCELLED, "ready-again", "the node is ready again")
        if (held := self._held(record, node)) is not None:
            return held
        fits, stuck = self._places()
        if stuck and not fits:
            return self._wait(record, "nowhere-to-go", f"no other node could take its {len(stuck)} pods")
        if not fits and not self._seen.attachments:
            return self._wait(record, "nothing-to-free", "it has no pods or volumes that could move to another node")
        if self._confirmed(node) and self._seen.power_off is not False and node.failed and not self._early(record):
            return self._proven(record, node, Proof.CONFIRMED, "an operator has confirmed that it is off")
        if machine is None:
            return self._wait(record, self._seen.match.reason, self._seen.match.message)
        record = msgspec.structs.replace(record, machine=machine.uuid)
        if machine.active:
            return self._wait(record, "inspecting", f"an inspection of machine {machine.title} is in progress")
        may_power_off = rules.power_off and not machine.keeps_power
        if self._seen.power_off and not may_power_off:
            return self._off(msgspec.structs.replace(record, phase=Phase.POWERING_OFF), node)
        since = record.started_at + rules.dwell_reporting
        until = max(record.not_before, since) if node.kubelet_reports and self._alive() else record.not_before
        if view.now < until:
            return self._wait(record, "dwell", f"waiting {until - view.now:.0f} s more for the node to come back")
        if not node.failed:
            return self._wait(record, "still-ready", "its kubelet is silent, but the cluster still considers it ready")
        if self._seen.power_off is None:
            return self._wait(record, "bmc-error", f"the BMC does not say whether it is off: {self._seen.power_error}")
        if not may_power_off:
            which = "the machine's disable_power_off" if machine.keeps_power else "[failover] power_off = false"
            return self._wait(record, "power-is-on", f"the machine is on, and {which} forbids to power it off")
        return self._command_off(record, machine.title)

    def _held(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return why nothing is begun about this node now; None if it may be."""
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if storm := is_storm(self._view, self._rules):
            until = self._view.now + self._rules.storm_cooldown
            return self._wait(msgspec.structs.replace(record, not_before=until), "storm", storm)
        return None

    def _early(self, record: Remediation) -> bool:
        return self._view.now < record.not_before

    def _alive(self) -> bool:
        return self._seen.silent < self._rules.silence

    def _command_off(self, record: Remediation, title: str) -> Decision:
        """Power it off, also if the BMC says that it is off: a BMC may be wrong about that, and still obey."""
        off = bool(self._seen.power_off)
        record = msgspec.structs.replace(
            record,
            phase=Phase.POWERING_OFF,
            command_at=self._view.now,
            command_epoch=self._view.epoch,
            off_seen=None,
            commanded=record.commanded or not off,
        )
        message = f"powering off machine {title}" + (", although its BMC says that it is off" if off else "")
        record = _explained(self._log(record, "power-off", message), "power-off", message)
        return Decision(record, (PowerOff(),), "power-off", message)

    def _announced_only(self, record: Remediation) -> bool:
        """Whether the leader that announced the last power command may have died before it sent it."""
        return record.command_at > 0 and record.command_epoch != self._view.epoch

    def _powering_off(self, record: Remediation, node: KubeNode) -> Decision:
        machine = self._seen.match.machine
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if not is_suspect(node, self._seen.silent, self._rules):
            # If the command is only late, or has just taken effect, the machine must not be forgotten without power.
            off_now = record.commanded and self._seen.power_off
            late = REPEAT_COMMAND + (self._rules.silence if off_now else 0.0)
            if self._view.now - record.command_at < late:
                message = "the node is ready again, but the power-off command may still take effect"
                return self._wait(record, "power-off-pending", message)
            return self.end(record, Phase.CANCELLED, "ready-again", "the node is ready again in the same boot")
        unsent = record.off_seen is None and self._announced_only(record)
        if machine is not None and unsent and self._seen.power_off is not None:
            if (held := self._held(record, node)) is not None:
                return held
            return self._command_off(record, machine.title)
        if self._seen.power_off:
            return self._off(record, node)
        if self._seen.power_off is None:
            message = f"the BMC does not say whether the machine is off: {self._seen.power_error}"
            return self._wait(record, "bmc-error", message)
        record = msgspec.structs.replace(record, off_seen=None)
        if not record.commanded or machine is None:  # it was off without us, and is on again
            return self._wait(msgspec.structs.replace(record, phase=Phase.DWELL), "power-is-on", "the machine is on")
        if self._view.now - record.command_at < REPEAT_COMMAND:
            return self._wait(record, "power-off-pending", "the machine is still on after the power-off command")
        if storm := is_storm(self._view, self._rules):
            return self._wait(record, "storm", storm)
        return self._command_off(record, machine.title)

    def _off(self, record: Remediation, node: KubeNode) -> Decision:
        """The BMC says that the machine is off; twice, apart, and without a sign of life is a proof."""
        view, renewal, before = self._view, self._seen.renewal, record.off_seen
        sighting = Sighting(at=view.now, clock=view.clock, epoch=view.epoch, renewal=renewal)
        if before is None or before.renewal != renewal:
            alive = before is not None
            record = msgspec.structs.replace(record, off_seen=sighting)
            message = "the BMC says that the machine is off"
            if alive:
                message = "the BMC says that the machine is off, but its kubelet has renewed its lease since"
            record = self._log(record, "kubelet-alive" if alive else "seen-off", message)
            return self._wait(record, "kubelet-alive" if alive else "seen-off-once", message)
        # From the answer to the first question to the second question, however long both took.
        asked = view.clock - self._seen.asked_at
        apart = (view.clock - before.clock if before.epoch == view.epoch else view.now - before.at) - asked
        if apart < APART:
            return self._wait(record, "seen-off-once", f"seen off once; looking again {APART:g} s after that")
        if (held := self._held(record, node)) is not None:
            return held
        if self._early(record):
            return self._wait(record, "dwell", f"it is off; waiting {record.not_before - view.now:.0f} s more")
        if not node.failed:
            return self._wait(
                record, "still-ready", "the machine is off, but the cluster still considers the node ready"
            )
        return self._proven(
            record, node, Proof.POWER_OFF, f"the BMC has said twice, {apart:.1f} s apart, that it is off"
        )

    def _proven(self, record: Remediation, node: KubeNode, proof: Proof, why: str) -> Decision:
        record = msgspec.structs.replace(
            record, phase=Phase.EVACUATING, proof=proof, proven_at=self._view.now, renewal=self._seen.renewal
        )
        return self._evacuating(self._log(record, "proven", why), node)

    def _sign_of_life(self, record: Remediation, node: KubeNode) -> str:
        """Return what says that the node is alive, "" if nothing does."""
        if node.boot_id != record.boot_id:
            return "it has a new boot ID"
        if self._seen.renewal != record.renewal:
            return "its kubelet has renewed its lease"
        if node.ready:
            return "it is ready"
        if self._seen.power_off is False:
            return "its machine is on"
        if record.proof is Proof.CONFIRMED and not self._confirmed(node):
            return f"its annotation {CONFIRMED_OFF} was removed"
        return ""

    def _evacuating(self, record: Remediation, node: KubeNode) -> Decision:
        if life := self._sign_of_life(record, node):
            return self._proof_ended(record, node, life)
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if record.proof is Proof.POWER_OFF and self._seen.power_off is None:
            message = f"the BMC does not say whether the machine is still off: {self._seen.power_error}"
            return self._wait(record, "bmc-error", message)
        fits, stuck = self._places()
        waited = self._view.now - record.proven_at
        if fits and self._view.taints and not stuck and waited < TAINT_WORKS:
            return self._tainting(record, node, len(fits))
        if fits:
            effects: tuple[Effect, ...] = tuple(DeletePod(one) for one in fits)
            return self._forcing(record, effects, f"deleting {len(fits)} pods")
        # A volume of a pod that stays would only be attached again.
        volumes = [one for one in self._seen.attachments if not one.terminating and not stuck]
        if volumes:
            return self._forcing(record, tuple(map(DeleteAttachment, volumes)), f"detaching {len(volumes)} volumes")
        message = "its pods and volumes are free"
        if stuck:
            message += f", apart from {len(stuck)} pods that no other node could take"
        record = msgspec.structs.replace(record, phase=Phase.EVACUATED)
        return self._wait(self._log(record, "evacuated", message), "evacuated", message)

    def _proof_ended(self, record: Remediation, node: KubeNode, life: str) -> Decision:
        """Force nothing more. What is left of the node's pods may be started by a new boot, so the taint goes, too."""
        message = f"the proof has ended: {life}"
        record = self._log(record, "proof-ended", message)
        until = self._view.now + self._rules.dwell_reporting  # a machine takes minutes to boot
        record = msgspec.structs.replace(
            record, phase=Phase.DWELL, proof=Proof.NONE, off_seen=None, commanded=False, not_before=until
        )
        remove = (SetTaint(node, present=False),) if record.tainted and node.out_of_service and self._movable else ()
        return Decision(_explained(record, "proof-ended", message), remove, "proof-ended", message)

    def _tainting(self, record: Remediation, node: KubeNode, pods: int) -> Decision:
        if node.out_of_service:
            return self._wait(record, "tainted", f"waiting for the cluster to remove {pods} pods")
        decision = self._forcing(
            record, (SetTaint(node, present=True),), f"tainting the node as out of service, to remove {pods} pods"
        )
        if not decision.effects or decision.record is None:
            return decision
        return msgspec.structs.replace(decision, record=msgspec.structs.replace(decision.record, tainted=True))

    def _forcing(self, record: Remediation, effects: tuple[Effect, ...], message: str) -> Decision:
        if any(is_aged(one, record, self._seen, self._view.clock, self._rules) for one in effects):
            limit = f"proof_age = {self._rules.proof_age:g} s"
            return self._wait(record, "answer-aged", f"the BMC's answer is older than {limit}; it is asked again")
        what = "tainted" if isinstance(effects[0], SetTaint) else "forcing"
        if record.reason != "forcing" or record.message != message:
            record = self._log(record, what, message)
        return Decision(_explained(record, "forcing", message), effects, "forcing", message)

    def _evacuated(self, record: Remediation, node: KubeNode) -> Decision:
        record = msgspec.structs.replace(record, phase=Phase.RETURNING, command_at=0.0)
        return self._returning(record, node)

    def _returning(self, record: Remediation, node: KubeNode) -> Decision:
        """Power it on again if we have powered it off; remove our taint when its new boot is there."""
        machine, view = self._seen.match.machine, self._view
        if node.ready:
            return self._back(record, node)
        if node.boot_id != record.boot_id and self._seen.silent >= self._rules.silence:
            return self._rebooted(record, node)
        if machine is None or not record.commanded or not self._rules.power_on:
            return self._wait(record, "waiting-for-return", "waiting for the node to come back")
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if machine.active:
            return self._wait(record, "inspecting", f"an inspection of machine {machine.title} is in progress")
        if self._seen.power_off is not True:
            return self._wait(record, "waiting-for-return", "its machine is powered on; waiting for the node")
        if self._rules.inspect and not record.inspected:
            message = f"inspecting machine {machine.title} before it is powered on"
            record = self._log(msgspec.structs.replace(record, inspected=True), "inspect", message)
            return Decision(_explained(record, "inspect", message), (Inspect(),), "inspect", message)
        if view.now - record.command_at < REPEAT_COMMAND and not self._announced_only(record):
            return self._wait(record, "power-on-pending", "its machine is still off after the power-on command")
        message = f"powering on machine {machine.title}"
        record = msgspec.structs.replace(record, command_at=view.now, command_epoch=view.epoch)
        record = self._log(record, "power-on", message)
        return Decision(_explained(record, "power-on", message), (PowerOn(),), "power-on", message)

    def _back(self, record: Remediation, node: KubeNode) -> Decision:
        remove = (SetTaint(node, present=False),) if record.tainted and node.out_of_service else ()
        if record.proof is Proof.NONE:
            return self._untainted(record, remove, "ready-again", "the node is ready again")
        if node.boot_id == record.boot_id:
            # It was alive all the time: the BMC, or the operator, was wrong. Our taint would kill its pods.
            message = "the node is alive in the boot that was proven off; check its BMC"
            return self._untainted(record, remove, "was-alive", message)
        left = [one for one in self._movable if one.terminating]
        if remove and left:
            return self._wait(record, "old-pods-left", f"{len(left)} pods of the old boot are still being deleted")
        return self._untainted(record, remove, "returned", "the node is back, with a new boot")

    def _untainted(self, record: Remediation, remove: tuple[Effect, ...], reason: str, message: str) -> Decision:
        """End the remediation once the taint is seen to be gone: the controller-manager may restore it."""
        if not remove:
            return self.end(record, Phase.DONE, reason, message)
        return Decision(_explained(record, reason, message), remove, reason, message)


def _runs(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")


def _explained(record: Remediation, reason: str, message: str) -> Remediation:
    return msgspec.structs.replace(record, reason=reason, message=message)
