"""From the failure to the proof: the dwell time, the power-off by the BMC, and two looks at a machine that is off."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.core.remediation import Phase, Proof, Remediation, Sighting
from ferroscope.failover.cluster import KubeNode
from ferroscope.failover.evacuation import REPEAT_COMMAND, Evacuating
from ferroscope.failover.terms import Decision, PowerOff, is_storm, is_suspect

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
        return self._act(self._log(record, "power-off", message), "power-off", message, PowerOff())

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
