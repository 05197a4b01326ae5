"""The end of a remediation: powers on a machine that we powered off, or tells people that it stays off."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.case import Case
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.terms import Decision, Effect, Inspect, PowerOn, SetTaint
from ferroscope.core.remediation import Phase, Proof, Remediation, postpone
from ferroscope_client.core.values import many

# Seconds.
REPEAT_COMMAND_SECONDS: Final = 30.0  # after which a power command that has not taken effect is sent again
# A new boot may be running before the API shows it: pods must have been marked as deleted for so long before that.
BEFORE_REBOOT_SECONDS: Final = 15.0
OLD_PODS_SECONDS: Final = 300.0  # for which our taint stays on a node that is back, because of pods of the old boot
# The most power commands that are sent without an effect.
MAX_COMMANDS: Final = 10


def end_deleted(case: Case, record: Remediation) -> Decision:
    """The cluster does not have this node any more."""
    if record.commanded and case.reading.power_off is not False:
        message = f"the node was deleted from the cluster; {title_of(case, record)} was powered off for it"
        return case.wait(detach(case, record, message), "left-off", message)
    if record.phase is Phase.POWERING_OFF and case.view.now - record.command_at < REPEAT_COMMAND_SECONDS:
        message = "the node was deleted, but the power-off command may still take effect"
        return case.wait(record, "power-off-pending", message)
    return case.end(record, Phase.DONE, "node-deleted", "the node was deleted from the cluster")


def detach(case: Case, record: Remediation, why: str) -> Remediation:
    """Leave the node, and keep its machine in view: it stays off until somebody powers it on, or takes it over."""
    left = f"{why}, and stays off: power it on, set it to maintenance, or delete it here"
    record = case.log(msgspec.structs.replace(record, left_off=left), "left-off", left)
    return msgspec.structs.replace(record, phase=Phase.RETURNING, detached=True, proof=Proof.NONE, stopped="left-off")


def watch_left_off(case: Case, record: Remediation) -> Decision:
    """Watch a machine that was left off, regardless of its node."""
    machine = case.reading.settled
    if case.reading.power_off is False:
        return case.end(record, Phase.DONE, "powered-on", "its machine is on again")
    if machine is None:
        return case.end(record, Phase.DONE, "machine-deleted", "its machine was deleted here")
    if machine.maintenance:
        return case.end(record, Phase.DONE, "taken-over", f"machine {machine.title} is in maintenance")
    return case.wait(record, "left-off", record.left_off)


def await_return(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Power it on again if we have powered it off; remove our taint when its new boot is there."""
    if node.ready:
        return end_return(case, record, node)
    if node.boot_id != record.boot_id and case.reading.silent >= case.rules.silence:
        return handle_reboot(case, record, node)
    if (off := _still_off(case, record, node)) is not None:
        return off
    if record.stopped == "machine-contradicts":
        if node.is_paused:
            return case.end(record, Phase.CANCELLED, "paused", "it had stopped; once it is not paused, it starts over")
        message = "stopped, because its machine was mistaken for another; to start over, pause it briefly"
        return case.wait(record, record.stopped, message)
    if record.stopped:  # it begins anew, as after a reboot: a machine takes minutes to boot
        record = msgspec.structs.replace(record, phase=Phase.DWELL, proof=Proof.NONE, commanded=False, stopped="")
        record = postpone(record, case.view.now, case.rules.dwell_reporting)
        return case.wait(record, "dwell", "its machine is on again; waiting for the node to come back")
    return case.wait(record, "waiting-for-return", "waiting for the node to come back")


def _still_off(case: Case, record: Remediation, node: KubeNode) -> Decision | None:
    """Return what is done about a machine that is off; None if it is on, and not only for an inspection."""
    machine, off, view = case.machine(record), case.reading.power_off, case.view
    if record.commanded and machine is not None and machine.active:
        return case.wait(record, "inspecting", f"an inspection of machine {machine.title} is in progress")
    if off is False or not (off or record.commanded):
        return None
    if not record.commanded or machine is None or not case.rules.power_on:
        return _left_off(case, record, "left-off", f"{title_of(case, record)} is off; an operator must power it on")
    if (why := case.guard(record, node))[0]:
        return wait_for_guard(case, record, why)
    if case.reading.power is Power.CHANGING:
        return case.wait(record, "power-on-pending", "its machine is being powered on or off")
    if off is None:
        return wait_for_bmc(case, record)
    if case.rules.inspect and not record.inspected and not record.stopped:
        message = f"inspecting machine {machine.title} before it is powered on"
        record = case.log(msgspec.structs.replace(record, inspected=True), "inspect", message)
        return case.act(record, "inspect", message, Inspect())
    if view.now - record.command_at < REPEAT_COMMAND_SECONDS and not is_announced_only(case, record):
        return case.wait(record, "power-on-pending", "its machine is still off after the power-on command")
    if record.commands >= MAX_COMMANDS:
        message = f"machine {machine.title} is still off after {record.commands} power-on commands"
        return give_up(case, msgspec.structs.replace(record, left_off=message), message)
    if 0 <= view.now - view.powered_on_at < case.rules.power_on_gap:
        return case.wait(
            record, "power-on-pending", "another machine is being powered on; this one is next in a moment"
        )
    message = f"powering on machine {machine.title}"
    return case.act(case.log(announce_command(case, record), "power-on", message), "power-on", message, PowerOn())


def _left_off(case: Case, record: Remediation, reason: str, message: str) -> Decision:
    if not record.left_off:
        record = case.log(record, "left-off", message)
    return case.wait(msgspec.structs.replace(record, left_off=message), reason, message)


def wait_for_guard(case: Case, record: Remediation, why: tuple[str, str]) -> Decision:
    """Wait as a guard demands, which may take long: the machine may be off by our command meanwhile."""
    if not record.commanded or case.reading.power_off is False:
        return case.wait(record, *why)
    message = f"{why[1]}; {title_of(case, record)} was powered off before, and is left off meanwhile"
    return _left_off(case, record, why[0], message)


def wait_for_bmc(case: Case, record: Remediation) -> Decision:
    """Wait for the BMC."""
    message = f"the BMC does not say whether the machine is off: {case.reading.power_error}"
    if record.commanded and record.reason == "bmc-error" and case.view.now - record.since >= REPEAT_COMMAND_SECONDS:
        return _left_off(case, record, "bmc-error", f"{message}; it was powered off before")
    return case.wait(record, "bmc-error", message)


def give_up(case: Case, record: Remediation, why: str, reason: str = "gave-up") -> Decision:
    """Send no more commands, and call for people. Other events of the node count as before."""
    message = f"gave up, because {why}; pause it for a moment to try again"
    if record.reason != reason:
        record = case.log(record, "gave-up", message)
    return case.wait(msgspec.structs.replace(record, escalated=reason), reason, message)


def announce_command(case: Case, record: Remediation) -> Remediation:
    """Announce a power command."""
    return msgspec.structs.replace(
        record, command_at=case.view.now, command_epoch=case.view.epoch, commands=record.commands + 1
    )


def bring_back(record: Remediation, stopped: str = "") -> Remediation:
    """Go on to power on what was powered off; ``stopped``: without the pods and volumes having been freed."""
    return msgspec.structs.replace(record, phase=Phase.RETURNING, stopped=stopped, command_at=0.0, commands=0)


def end_return(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """The node is ready: end, once the old boot's pods and our taint are gone."""
    remove = (SetTaint(node, present=False),) if record.tainted and node.out_of_service else ()
    if record.proof is Proof.NONE:
        return _remove_taint_and_end(case, record, node, remove, "ready-again", "the node is ready again")
    if node.boot_id == record.boot_id:
        # It was alive all the time: the BMC, or the operator, was wrong. Our taint would kill its pods.
        message = "the node is alive in the boot that was proven off; check its BMC"
        return _remove_taint_and_end(case, record, node, remove, "was-alive", message)
    left = [pod for pod in case.movable if pod.terminating]
    if remove and case.reading.unread:
        return case.wait(record, *case.unread)
    waited = case.view.now - record.since if record.reason == "old-pods-left" else 0.0
    # After that it goes: they are dead, no kubelet starts them again, and the taint keeps all other pods away.
    if remove and left and waited < OLD_PODS_SECONDS and record.reason != "returned":
        return case.wait(record, "old-pods-left", f"waiting for {many(len(left), 'pod')} of the old boot to be deleted")
    return _remove_taint_and_end(case, record, node, remove, "returned", "the node is back, with a new boot")


def _remove_taint_and_end(
    case: Case, record: Remediation, node: KubeNode, remove: tuple[Effect, ...], reason: str, message: str
) -> Decision:
    """End the remediation once the taint is seen to be gone: the controller-manager may restore it."""
    if not remove:
        return end_alive(case, record, node, Phase.DONE, reason, message)
    return case.act(record, reason, message, *remove)


def end_alive(case: Case, record: Remediation, node: KubeNode, phase: Phase, reason: str, message: str) -> Decision:
    """End, unless a machine that we have powered off is off: it is not the node's, or its BMC is wrong."""
    machine = case.reading.match.machine
    booted = node.boot_id != record.boot_id and machine is not None and machine.uuid == record.machine
    if not record.commanded or booted or case.reading.power_off is False:
        return case.end(record, phase, reason, message)
    if record.phase is not Phase.RETURNING or not record.stopped:
        message = f"{message}, but {title_of(case, record)}, which was powered off for it, was not seen on again"
        record = case.log(bring_back(record, reason), reason, message)
    decision = _still_off(case, record, node)
    return decision or case.end(record, phase, reason, message)


def handle_reboot(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Pods that were being deleted before the reboot are dead: no kubelet starts such a pod.

    Its machine is looked for anew: the hardware of a node is replaced, too.
    """
    if (late := _late_power_off(case, record, node)) is not None:
        return late
    if node.ready:
        return end_alive(case, record, node, Phase.DONE, "rebooted", "the node has rebooted and is ready again")
    machine = case.reading.match.machine
    is_same = machine is not None and machine.uuid == record.machine
    detached = None
    if record.commanded and (case.reading.power_off or (not is_same and case.reading.power_off is None)):
        why = f"the node has booted elsewhere; {title_of(case, record)} was powered off for it"
        detached = msgspec.structs.replace(detach(case, record, why), uuid=case.new_uuid(), reason="left-off")
    limit = case.view.now - BEFORE_REBOOT_SECONDS
    dead = {uid for uid, since in record.terminating.items() if since <= limit}
    record = msgspec.structs.replace(
        record,
        phase=Phase.DWELL,
        proof=Proof.NONE,
        machine="",
        commanded=False,
        commands=0,
        stopped="",
        left_off="",
        boot_id=node.boot_id,
        renewal=case.reading.renewal,
        bmc_said_off=False,
        failed_at=0.0,
        off_seen=None,
        dead=tuple(sorted({*record.dead, *dead})),
        terminating={},
        boot="",
    )
    record = postpone(record, case.view.now, case.rules.dwell)
    message = "the node has rebooted, but is not ready"
    decision = case.wait(case.log(record, "rebooted", message), "rebooted", message)
    return msgspec.structs.replace(decision, detached=detached)


def _late_power_off(case: Case, record: Remediation, node: KubeNode) -> Decision | None:
    """Return what is done about a node that has rebooted by itself while its power-off command was on its way."""
    machine = case.reading.match.machine
    is_same = machine is not None and machine.uuid == record.machine
    if record.phase is not Phase.POWERING_OFF or not record.commanded or not is_same:
        return None
    if case.reading.power_off:
        message = f"{title_of(case, record)} was powered off after the node had rebooted"
        record = msgspec.structs.replace(record, boot_id=node.boot_id, renewal=case.reading.renewal)
        record = case.log(bring_back(record, "rebooted"), "rebooted", message)
        return case.act(record, "rebooted", message)
    if case.view.now - record.command_at >= REPEAT_COMMAND_SECONDS:
        return None
    message = "the node has rebooted, but the power-off command may still take effect"
    return case.wait(record, "power-off-pending", message)


def title_of(case: Case, record: Remediation) -> str:
    """Return the machine's name for people."""
    machine = case.machine(record)
    return f"machine {record.machine if machine is None else machine.title}"


def is_announced_only(case: Case, record: Remediation) -> bool:
    """Whether the leader that announced the last power command may have died before it sent it."""
    return record.command_at > 0 and record.command_epoch != case.view.epoch
