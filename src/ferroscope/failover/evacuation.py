"""After the proof: the node's pods and volumes are freed as long as it holds, and then the machine is brought back."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.core.remediation import Phase, Proof, Remediation
from ferroscope.failover.case import Case
from ferroscope.failover.cluster import CONFIRMED_OFF, KubeNode
from ferroscope.failover.terms import (
    Decision,
    DeleteAttachment,
    DeletePod,
    Effect,
    Inspect,
    PowerOn,
    SetTaint,
    is_aged,
)

# Seconds.
REPEAT_COMMAND: Final = 30.0  # after which a power command that has not taken effect is sent again
TAINT_WORKS: Final = 60.0  # after which pods that the taint has not removed are deleted one by one
# A new boot may be running before the API shows it: pods must have been marked as deleted for so long before that.
BEFORE_REBOOT: Final = 15.0


class Evacuating(Case):
    """The phases ``evacuating``, ``evacuated`` and ``returning``."""

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
        return self._act(record, "proof-ended", message, *remove)

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
        return self._act(record, "forcing", message, *effects)

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
            if machine is not None and self._seen.power_off:
                return self._wait(record, "left-off", "its machine is off, and has to be powered on by an operator")
            return self._wait(record, "waiting-for-return", "waiting for the node to come back")
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if machine.active:
            return self._wait(record, "inspecting", f"an inspection of machine {machine.title} is in progress")
        if self._seen.power_off is None:
            message = f"the BMC does not say whether the machine is off: {self._seen.power_error}"
            return self._wait(record, "bmc-error", message)
        if not self._seen.power_off:
            return self._wait(record, "waiting-for-return", "its machine is powered on; waiting for the node")
        if self._rules.inspect and not record.inspected:
            message = f"inspecting machine {machine.title} before it is powered on"
            record = self._log(msgspec.structs.replace(record, inspected=True), "inspect", message)
            return self._act(record, "inspect", message, Inspect())
        if view.now - record.command_at < REPEAT_COMMAND and not self._announced_only(record):
            return self._wait(record, "power-on-pending", "its machine is still off after the power-on command")
        message = f"powering on machine {machine.title}"
        record = msgspec.structs.replace(record, command_at=view.now, command_epoch=view.epoch)
        record = self._log(record, "power-on", message)
        return self._act(record, "power-on", message, PowerOn())

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
        return self._act(record, reason, message, *remove)

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

    def _alive(self) -> bool:
        return self._seen.silent < self._rules.silence

    def _announced_only(self, record: Remediation) -> bool:
        """Whether the leader that announced the last power command may have died before it sent it."""
        return record.command_at > 0 and record.command_epoch != self._view.epoch
