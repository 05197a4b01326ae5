"""The end of a remediation: what we have powered off is powered on again, or people are told that it stays off."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.core.remediation import Phase, Proof, Remediation
from ferroscope.failover.case import Case
from ferroscope.failover.cluster import KubeNode
from ferroscope.failover.terms import Decision, Effect, Inspect, PowerOn, SetTaint

# Seconds.
REPEAT_COMMAND: Final = 30.0  # after which a power command that has not taken effect is sent again
# A new boot may be running before the API shows it: pods must have been marked as deleted for so long before that.
BEFORE_REBOOT: Final = 15.0
# So often a power command is sent that does not take effect.
MOST_COMMANDS: Final = 10


class Returning(Case):
    """The phase ``returning``, and each other end."""

    def deleted(self, record: Remediation) -> Decision:
        """The cluster does not have this node any more."""
        if record.commanded and self._seen.power_off is not False:
            message = (
                f"the node was deleted from the cluster; {self._title(record)} was powered off for it, and left off"
            )
            record = msgspec.structs.replace(record, left_off=message)
            return self.end(record, Phase.DONE, "left-off", f"{message}: power it on yourself")
        if record.phase is Phase.POWERING_OFF and self._view.now - record.command_at < REPEAT_COMMAND:
            message = "the node was deleted, but the power-off command may still take effect"
            return self._wait(record, "power-off-pending", message)
        return self.end(record, Phase.DONE, "node-deleted", "the node was deleted from the cluster")

    def _returning(self, record: Remediation, node: KubeNode) -> Decision:
        """Power it on again if we have powered it off; remove our taint when its new boot is there."""
        if node.ready:
            return self._back(record, node)
        if node.boot_id != record.boot_id and self._seen.silent >= self._rules.silence:
            return self._rebooted(record, node)
        if (off := self._still_off(record, node)) is not None:
            return off
        if record.stopped == "machine-contradicts":
            if node.paused:
                return self.end(
                    record, Phase.CANCELLED, "paused", "it had stopped; once it is not paused, it starts over"
                )
            message = "stopped, because its machine was taken for another one; pause it for a moment to start over"
            return self._wait(record, record.stopped, message)
        if record.stopped:  # it begins anew, as after a reboot: a machine takes minutes to boot
            until = self._view.now + self._rules.dwell_reporting
            record = msgspec.structs.replace(
                record, phase=Phase.DWELL, proof=Proof.NONE, commanded=False, stopped="", not_before=until
            )
            return self._wait(record, "dwell", "its machine is on again; waiting for the node to come back")
        return self._wait(record, "waiting-for-return", "waiting for the node to come back")

    def _still_off(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return what is done about a machine that is off; None if it is on, and not only for an inspection."""
        machine, off, view = self._machine(record), self._seen.power_off, self._view
        if record.commanded and machine is not None and machine.active:
            return self._wait(record, "inspecting", f"an inspection of machine {machine.title} is in progress")
        if off is False or not (off or record.commanded):
            return None
        if not record.commanded or machine is None or not self._rules.power_on:
            return self._left_off(
                record, "left-off", f"{self._title(record)} is off, and has to be powered on by an operator"
            )
        if (why := self._guard(record, node))[0]:
            return self._kept(record, why)
        if self._seen.power is Power.CHANGING:
            return self._wait(record, "power-on-pending", "its machine is being powered on or off")
        if off is None:
            return self._unanswered(record)
        if self._rules.inspect and not record.inspected and not record.stopped:
            message = f"inspecting machine {machine.title} before it is powered on"
            record = self._log(msgspec.structs.replace(record, inspected=True), "inspect", message)
            return self._act(record, "inspect", message, Inspect())
        if view.now - record.command_at < REPEAT_COMMAND and not self._announced_only(record):
            return self._wait(record, "power-on-pending", "its machine is still off after the power-on command")
        if record.commands >= MOST_COMMANDS:
            message = f"machine {machine.title} is still off after {record.commands} power-on commands"
            return self._gave_up(msgspec.structs.replace(record, left_off=message), message)
        message = f"powering on machine {machine.title}"
        return self._act(self._log(self._commanding(record), "power-on", message), "power-on", message, PowerOn())

    def _left_off(self, record: Remediation, reason: str, message: str) -> Decision:
        if not record.left_off:
            record = self._log(record, "left-off", message)
        return self._wait(msgspec.structs.replace(record, left_off=message), reason, message)

    def _kept(self, record: Remediation, why: tuple[str, str]) -> Decision:
        """Wait for what a guard says, which may last: the machine may be off by our command meanwhile."""
        if not record.commanded or self._seen.power_off is False:
            return self._wait(record, *why)
        message = f"{why[1]}; {self._title(record)} was powered off before, and is left off meanwhile"
        return self._left_off(record, why[0], message)

    def _unanswered(self, record: Remediation) -> Decision:
        """Wait for the BMC."""
        message = f"the BMC does not say whether the machine is off: {self._seen.power_error}"
        if record.commanded and record.reason == "bmc-error" and self._view.now - record.since >= REPEAT_COMMAND:
            return self._left_off(record, "bmc-error", f"{message}; it was powered off before")
        return self._wait(record, "bmc-error", message)

    def _gave_up(self, record: Remediation, why: str) -> Decision:
        """Send no more commands; whatever else happens to the node and its machine counts as before."""
        message = f"gave up, because {why}; pause it for a moment to try again"
        if record.reason != "gave-up":
            record = self._log(record, "gave-up", message)
        return self._wait(record, "gave-up", message)

    def _commanding(self, record: Remediation) -> Remediation:
        """Announce a power command."""
        return msgspec.structs.replace(
            record, command_at=self._view.now, command_epoch=self._view.epoch, commands=record.commands + 1
        )

    def _bring_back(self, record: Remediation, stopped: str = "") -> Remediation:
        """Go on to power on what was powered off; ``stopped``: without the pods and volumes having been freed."""
        return msgspec.structs.replace(record, phase=Phase.RETURNING, stopped=stopped, command_at=0.0, commands=0)

    def _back(self, record: Remediation, node: KubeNode) -> Decision:
        remove = (SetTaint(node, present=False),) if record.tainted and node.out_of_service else ()
        if record.proof is Proof.NONE:
            return self._untainted(record, node, remove, "ready-again", "the node is ready again")
        if node.boot_id == record.boot_id:
            # It was alive all the time: the BMC, or the operator, was wrong. Our taint would kill its pods.
            message = "the node is alive in the boot that was proven off; check its BMC"
            return self._untainted(record, node, remove, "was-alive", message)
        left = [one for one in self._movable if one.terminating]
        if remove and left:
            return self._wait(record, "old-pods-left", f"{len(left)} pods of the old boot are still being deleted")
        return self._untainted(record, node, remove, "returned", "the node is back, with a new boot")

    def _untainted(
        self, record: Remediation, node: KubeNode, remove: tuple[Effect, ...], reason: str, message: str
    ) -> Decision:
        """End the remediation once the taint is seen to be gone: the controller-manager may restore it."""
        if not remove:
            return self._alive_again(record, node, Phase.DONE, reason, message)
        return self._act(record, reason, message, *remove)

    def _alive_again(self, record: Remediation, node: KubeNode, phase: Phase, reason: str, message: str) -> Decision:
        """End, unless a machine that we have powered off is off: it is not the node's, or its BMC is wrong."""
        found = self._seen.match.machine
        booted = node.boot_id != record.boot_id and found is not None and found.uuid == record.machine
        if not record.commanded or booted or self._seen.power_off is False:
            return self.end(record, phase, reason, message)
        if record.phase is not Phase.RETURNING or not record.stopped:
            message = f"{message}, but {self._title(record)}, which was powered off for it, was not seen on again"
            record = self._log(self._bring_back(record, reason), reason, message)
        decision = self._still_off(record, node)
        return decision or self.end(record, phase, reason, message)

    def _rebooted(self, record: Remediation, node: KubeNode) -> Decision:
        """Pods that were being deleted before the reboot are dead: no kubelet starts such a pod.

        Its machine is looked for anew: the hardware of a node is replaced, too.
        """
        if (late := self._late_power_off(record, node)) is not None:
            return late
        if node.ready:
            return self._alive_again(record, node, Phase.DONE, "rebooted", "the node has rebooted and is ready again")
        found = self._seen.match.machine
        replaced = record.settled and found is not None and found.uuid != record.machine
        if record.commanded and (self._seen.power_off or (replaced and self._seen.power_off is None)):
            left = f"{self._title(record)}, which was powered off for it, was left off: the node has booted elsewhere"
            record = self._log(msgspec.structs.replace(record, left_off=left), "left-off", left)
        limit = self._view.now - BEFORE_REBOOT
        dead = {uid for uid, since in record.terminating.items() if since <= limit}
        record = msgspec.structs.replace(
            record,
            phase=Phase.DWELL,
            proof=Proof.NONE,
            machine="",
            commanded=False,
            commands=0,
            stopped="",
            boot_id=node.boot_id,
            renewal=self._seen.renewal,
            not_before=self._view.now + self._rules.dwell,
            failed_at=0.0,
            off_seen=None,
            dead=tuple(sorted({*record.dead, *dead})),
            terminating={},
        )
        message = "the node has rebooted, but is not ready"
        return self._wait(self._log(record, "rebooted", message), "rebooted", message)

    def _late_power_off(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return what is done about a node that has rebooted by itself while its power-off command was on its way."""
        found = self._seen.match.machine
        same = found is not None and found.uuid == record.machine
        if record.phase is not Phase.POWERING_OFF or not record.commanded or not same:
            return None
        if self._seen.power_off:
            message = f"{self._title(record)} was powered off after the node had rebooted"
            record = msgspec.structs.replace(record, boot_id=node.boot_id, renewal=self._seen.renewal)
            record = self._log(self._bring_back(record, "rebooted"), "rebooted", message)
            return self._act(record, "rebooted", message)
        if self._view.now - record.command_at >= REPEAT_COMMAND:
            return None
        message = "the node has rebooted, but the power-off command may still take effect"
        return self._wait(record, "power-off-pending", message)

    def _title(self, record: Remediation) -> str:
        machine = self._machine(record)
        return f"machine {record.machine if machine is None else machine.title}"

    def _announced_only(self, record: Remediation) -> bool:
        """Whether the leader that announced the last power command may have died before it sent it."""
        return record.command_at > 0 and record.command_epoch != self._view.epoch
