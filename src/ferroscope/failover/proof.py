"""From the failure to the proof: the dwell time, the power-off by the BMC, and two looks at a machine that is off."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.core.remediation import Phase, Proof, Remediation, Sighting
from ferroscope.failover.cluster import KubeNode
from ferroscope.failover.evacuation import Evacuating
from ferroscope.failover.returning import MOST_COMMANDS, REPEAT_COMMAND
from ferroscope.failover.terms import Decision, PowerOff, is_storm, is_suspect

_CORDONED: Final = (
    "the node is cordoned, or being drained, as for maintenance; uncordon it, or confirm that its machine is off"
)
APART: Final = 5.0  # seconds between two sightings of a machine that is off


def due_in(record: Remediation, now: float, clock: float, epoch: int) -> float:
    """Return in how many seconds the BMC's answer will count for more than now; not positive if it does already.

    ``now`` is by the database's clock; ``clock`` by ours, of this ``epoch``. Nothing is decided by this.
    """
    if record.phase is Phase.DWELL:
        return record.not_before - now
    seen = record.off_seen
    if record.phase is Phase.POWERING_OFF and seen is not None and seen.epoch == epoch:
        return seen.clock + APART - clock
    return 0.0


class Proving(Evacuating):
    """All phases of a remediation by proof."""

    def decided(self, record: Remediation, node: KubeNode) -> Decision:
        if node.paused:
            record = msgspec.structs.replace(record, commands=0)
        record = self._dwelling(record, node)
        if record.tainted and node.ready:
            return self._back(record, node)
        if record.phase in (Phase.DWELL, Phase.POWERING_OFF) and node.boot_id != record.boot_id:
            return self._rebooted(record, node)
        if (mismatch := self._mismatch(record, node)) is not None:
            return mismatch
        if record.phase is Phase.DWELL:
            return self._dwell(record, node)
        if record.phase is Phase.POWERING_OFF:
            return self._powering_off(record, node)
        if record.phase is Phase.EVACUATING:
            return self._evacuating(record, node)
        if record.phase is Phase.EVACUATED:
            return self._evacuated(record, node)
        return self._returning(record, node)

    def _dwelling(self, record: Remediation, node: KubeNode) -> Remediation:
        """Have the dwell time begin when the cluster considers the node failed: others may follow soon."""
        if not node.failed:
            return msgspec.structs.replace(record, failed_at=0.0)
        if record.failed_at:
            return record
        since = self._view.now - self._view.age  # a BMC that takes its time to answer must not make it longer
        until = max(record.not_before, since + self._rules.dwell)
        return msgspec.structs.replace(record, failed_at=since, not_before=until)

    def _mismatch(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Stop if, by what is known now, the machine that was powered off, or was seen off, is not the node's."""
        found, freed = self._seen.match.machine, record.phase in (Phase.EVACUATED, Phase.RETURNING)
        if not record.settled or freed or (found is not None and found.uuid == record.machine):
            return None
        if record.proof is Proof.CONFIRMED or node.boot_id != record.boot_id:
            return None  # what follows does not rest on the machine, or forces nothing
        if not is_suspect(node, self._seen.silent, self._rules):
            return None
        why = self._seen.match.message if found is None else f"its machine is {found.title}"
        if not record.commanded:
            return self._proof_ended(record, node, f"it is not known any more to run on {self._title(record)}: {why}")
        message = f"stopped: {self._title(record)} was powered off for it, but now {why}"
        remove = self._taint_off(record, node)
        record = self._log(self._bring_back(record, "machine-contradicts"), "machine-contradicts", message)
        record = msgspec.structs.replace(record, proof=Proof.NONE, off_seen=None)
        return self._act(record, "machine-contradicts", message, *remove)

    def _dwell(self, record: Remediation, node: KubeNode) -> Decision:
        view, rules, machine = self._view, self._rules, self._machine(record)
        record = msgspec.structs.replace(
            record,
            machine=record.machine if record.settled else "" if machine is None else machine.uuid,
            commanded=record.commanded and self._seen.power_off is not False,
        )
        if record.commanded and self._seen.power_off and not record.left_off:
            left = f"{self._title(record)} was powered off for it, and is left off meanwhile"
            record = self._log(msgspec.structs.replace(record, left_off=left), "left-off", left)
        if not is_suspect(node, self._seen.silent, rules):
            return self._alive_again(record, node, Phase.CANCELLED, "ready-again", "the node is ready again")
        if (held := self._held(record, node)) is not None:
            return held
        fits, stuck = self._places()
        movable = bool(fits) or bool(self._detachable(stuck))
        if stuck and not movable:
            return self._wait(record, "nowhere-to-go", f"no other node could take its {len(stuck)} pods")
        if not movable:
            return self._wait(record, "nothing-to-free", "it has no pods or volumes that could move to another node")
        confirmed = self._confirmed(node) and self._seen.power not in (Power.ON, Power.CHANGING)
        if confirmed and node.failed and not self._early(record):
            return self._proven(record, node, Proof.CONFIRMED, "an operator has confirmed that it is off")
        if node.drained:
            return self._wait(record, "cordoned", _CORDONED)
        if machine is None:
            return self._wait(record, self._seen.match.reason, self._seen.match.message)
        if machine.active:
            return self._wait(record, "inspecting", f"an inspection of machine {machine.title} is in progress")
        may_power_off = rules.power_off and not machine.keeps_power
        if self._seen.power_off and not may_power_off and rules.second_hand:
            message = (
                "Ironic says that the machine is off, but not that it has just asked the BMC, and it must not be "
                "powered off by command; confirm that it is off"
            )
            return self._wait(record, "off-second-hand", message)
        if self._seen.power_off and not may_power_off:
            return self._off(msgspec.structs.replace(record, phase=Phase.POWERING_OFF), node)
        if not node.failed:
            return self._wait(record, "still-ready", "its kubelet is silent, but the cluster still considers it ready")
        since = record.failed_at + rules.dwell_reporting
        until = max(record.not_before, since) if node.kubelet_reports and self._alive() else record.not_before
        if view.now < until:
            return self._wait(record, "dwell", f"waiting {until - view.now:.0f} s more for the node to come back")
        if self._seen.power_off is None:
            return self._wait(record, "bmc-error", f"the BMC does not say whether it is off: {self._seen.power_error}")
        if not may_power_off:
            which = "the machine's disable_power_off" if machine.keeps_power else "[failover] power_off = false"
            return self._wait(record, "power-is-on", f"the machine is on, and {which} forbids to power it off")
        return self._others_first(record, node) or self._command_off(record, machine.title)

    def _others_first(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return why other nodes keep this one's machine on for now; None if they do not."""
        if (left := self._rules.silence - self._view.watched) > 0:
            message = f"looking for {left:.0f} s more whether other nodes are silent, too"
            return self._wait(record, "watching", message)
        if other := self._other_control_plane(node):
            return self._wait(record, "control-plane", other)
        return None

    def _other_control_plane(self, node: KubeNode) -> str:
        """Return why this control-plane node's machine may not be powered off now: a majority of etcd must remain."""
        for one in self._view.nodes:
            if not node.control_plane or not one.control_plane or one.name == node.name:
                continue
            if one.name in self._view.switched:
                return f"control-plane node {one.name} is dealt with at this moment; it comes first"
            if not one.ready or one.name in self._view.silent:
                return f"control-plane node {one.name} is not ready either, and the control plane may need this one"
        return ""

    def _command_off(self, record: Remediation, title: str) -> Decision:
        """Power it off, also if the BMC says that it is off: a BMC may be wrong about that, and still obey."""
        off = bool(self._seen.power_off)
        record = msgspec.structs.replace(
            self._commanding(record), phase=Phase.POWERING_OFF, off_seen=None, commanded=record.commanded or not off
        )
        message = f"powering off machine {title}" + (", although its BMC says that it is off" if off else "")
        return self._act(self._log(record, "power-off", message), "power-off", message, PowerOff())

    def _powering_off(self, record: Remediation, node: KubeNode) -> Decision:
        machine = self._machine(record)
        if (why := self._guard(record, node))[0]:
            return self._kept(record, why)
        if not is_suspect(node, self._seen.silent, self._rules):
            # If the command is only late, or has just taken effect, the machine must not be forgotten without power.
            off_now = record.commanded and self._seen.power_off
            late = REPEAT_COMMAND + (self._rules.silence if off_now else 0.0)
            if self._view.now - record.command_at < late:
                message = "the node is ready again, but the power-off command may still take effect"
                return self._wait(record, "power-off-pending", message)
            message = "the node is ready again in the same boot"
            return self._alive_again(record, node, Phase.CANCELLED, "ready-again", message)
        unsent = record.off_seen is None and self._announced_only(record)
        if machine is not None and unsent and self._seen.power_off is not None:
            if (held := self._held(record, node)) is not None:
                return held
            return self._others_first(record, node) or self._command_off(record, machine.title)
        refused = self._rules.second_hand and bool(self._seen.command_error)  # then nobody has asked the BMC
        if self._seen.power_off and not refused:
            return self._off(record, node)
        if self._seen.power_off is None:
            if self._seen.power is Power.CHANGING:  # whatever was seen before has ended
                record = msgspec.structs.replace(record, off_seen=None)
            return self._unanswered(record)
        record = msgspec.structs.replace(record, off_seen=None)
        if machine is None or not (record.commanded or refused):  # it was off without us, and is on again
            return self._wait(msgspec.structs.replace(record, phase=Phase.DWELL), "power-is-on", "the machine is on")
        if self._view.now - record.command_at < REPEAT_COMMAND:
            if why_not := self._seen.command_error:
                if record.reason != "power-off-failed":
                    record = self._log(record, "power-off-failed", f"the power-off command failed: {why_not}")
                return self._wait(record, "power-off-failed", f"the power-off command failed: {why_not}")
            return self._wait(record, "power-off-pending", "the machine is still on after the power-off command")
        if storm := is_storm(self._view, self._rules):
            return self._wait(record, "storm", storm)
        if (others := self._others_first(record, node)) is not None:
            return others
        if record.commands >= MOST_COMMANDS:
            return self._gave_up(
                record, f"machine {machine.title} is still on after {record.commands} power-off commands"
            )
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
        # What we have powered off ourselves is past that: its pods would run nowhere until the storm is over.
        if not record.commanded and (held := self._held(record, node)) is not None:
            return held
        if not record.commanded and node.drained:
            return self._wait(record, "cordoned", _CORDONED)
        if not record.commanded and self._early(record):
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
