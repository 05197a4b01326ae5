"""From the failure to the proof: the dwell time, the power-off by the BMC, and two looks at a machine that is off."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.case import Case
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.evacuation import (
    end_proof,
    evacuate,
    is_confirmed,
    kubelet_lives,
    taint_removal,
)
from ferroscope.contrib.kubernetes.failover.evidence import why_unproven
from ferroscope.contrib.kubernetes.failover.guards import (
    dwell_seconds,
    is_booting,
    is_flapping,
    quorum_objection,
    with_boot,
)
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine
from ferroscope.contrib.kubernetes.failover.returning import (
    MAX_COMMANDS,
    REPEAT_COMMAND_SECONDS,
    announce_command,
    bring_back,
    end_alive,
    give_up,
    is_announced_only,
    title_of,
    wait_for_bmc,
    wait_for_guard,
)
from ferroscope.contrib.kubernetes.failover.terms import Decision, PowerOff, is_suspect
from ferroscope.core.remediation import Phase, Proof, Remediation, Sighting, postpone
from ferroscope_client.core.values import many

_CORDONED: Final = (
    "the node is cordoned, or being drained, as for maintenance; uncordon it, or confirm that its machine is off"
)
# Reasons that people set, and that they have just taken back if nothing else is in the way.
_LIFTED: Final = frozenset({"paused", "failover-paused", "maintenance"})
APART_SECONDS: Final = 5.0  # seconds between two sightings of a machine that is off


def due_in(record: Remediation, now: float) -> float:
    """Return in how many seconds the BMC's answer will count for more than now; not positive if it does already.

    Nothing is decided by this.
    """
    if record.phase is Phase.DWELL:
        return record.not_before - now
    if record.phase is Phase.POWERING_OFF and record.off_seen is not None:
        return record.off_seen.at + APART_SECONDS - now
    return 0.0


def start_dwell(case: Case, record: Remediation, node: KubeNode) -> Remediation:
    """Have the dwell time begin when the cluster considers the node failed: others may follow soon."""
    if not node.has_failed:
        return msgspec.structs.replace(record, failed_at=0.0)
    if record.failed_at:
        return record
    since = case.view.now - case.reading.age  # a BMC that takes its time to answer must not make it longer
    seconds = dwell_seconds(case.rules, node)
    record = msgspec.structs.replace(record, failed_at=since)
    return record if record.not_before > since + seconds else postpone(record, since, seconds)


def with_doubt(case: Case, record: Remediation, node: KubeNode) -> Remediation:
    """Note whether the node lives in the very boot in which its BMC has said that the machine is off.

    The renewal that has ended a proof may be by the kubelet of the next boot, which reports its boot ID a moment later.
    The same kubelet renews once more in that boot only if the machine has never been off.
    """
    alive = node.ready or (record.proof is Proof.NONE and case.reading.renewal != record.renewal)
    is_wrong = record.bmc_said_off and alive and node.boot_id == record.boot_id
    return msgspec.structs.replace(record, doubts_bmc=record.doubts_bmc or is_wrong)


def mismatch(case: Case, record: Remediation, node: KubeNode) -> Decision | None:
    """Stop if, by what is known now, the machine that was powered off, or was seen off, is not the node's."""
    machine, freed = case.reading.match.machine, record.phase in (Phase.EVACUATED, Phase.RETURNING)
    is_same = machine is not None and machine.uuid == record.machine
    settled = case.reading.settled
    moved = is_same and settled is not None and bool(record.place) and settled.place != record.place
    wrong = is_same and case.reading.evidence.is_certain
    if not record.settled or freed or (is_same and not moved and not wrong):
        return None
    if record.proof is Proof.CONFIRMED or node.boot_id != record.boot_id:
        return None  # what follows does not rest on the machine, or forces nothing
    if not is_suspect(node, case.reading.silent, case.rules):
        return None
    why = case.reading.match.message if machine is None else f"its machine is {machine.title}"
    if moved and settled is not None:
        why = f"its BMC address was changed since: it was {record.place}, and is {settled.place}"
    elif wrong:
        why = case.reading.evidence.contradiction
    if not record.commanded:
        return end_proof(case, record, node, f"it is not known any more to run on {title_of(case, record)}: {why}")
    message = f"stopped: {title_of(case, record)} was powered off for it, but now {why}"
    remove = taint_removal(case, record, node)
    record = case.log(bring_back(record, "machine-contradicts"), "machine-contradicts", message)
    record = msgspec.structs.replace(record, proof=Proof.NONE, off_seen=None)
    return case.act(record, "machine-contradicts", message, *remove)


def dwell(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Wait for the node to come back, and for everything that speaks against powering its machine off."""
    machine = case.machine(record)
    record = msgspec.structs.replace(
        record,
        machine=record.machine if record.settled else "" if machine is None else machine.uuid,
        commanded=record.commanded and case.reading.power_off is not False,
    )
    record = with_boot(record, case.reading)
    if record.commanded and case.reading.power_off and not record.left_off:
        left = f"{title_of(case, record)} was powered off for it, and is left off meanwhile"
        record = case.log(msgspec.structs.replace(record, left_off=left), "left-off", left)
    if not is_suspect(node, case.reading.silent, case.rules):
        return end_alive(case, record, node, Phase.CANCELLED, "ready-again", "the node is ready again")
    return _decide_power_off(case, record, node, repeats=False)


def _decide_power_off(case: Case, record: Remediation, node: KubeNode, *, repeats: bool) -> Decision:
    """Power the machine of a failed node off unless something speaks against it.

    Each command is decided here, the first and every repetition, so that whatever an operator says in between counts: a
    pause, maintenance, a cordon, an inspection, an option, or a correction of which machine it is. ``repeats``: the
    last command has had no effect.
    """
    view, rules, machine = case.view, case.rules, case.machine(record)
    if (why := case.guard(record, node))[0]:
        return case.wait(record, *why)
    if record.reason in _LIFTED:  # it may be booting after a repair
        record = postpone(record, view.now, dwell_seconds(rules, node))
    if case.reading.unread:
        return case.wait(record, *case.unread)
    confirmed = node.has_failed and is_confirmed(record, node) and case.reading.power not in (Power.ON, Power.CHANGING)
    if not confirmed and (storm := case.storm(record)) is not None:
        return storm
    if (futile := _find_futility(case)) is not None:
        return case.wait(record, *futile)
    if confirmed and view.now >= record.failed_at + rules.dwell:
        return _begin_evacuation(case, record, node, Proof.CONFIRMED, "an operator has confirmed that it is off")
    if node.is_drained:
        return case.wait(record, "cordoned", _CORDONED)
    if machine is None:
        return case.wait(record, case.reading.match.reason, case.reading.match.message)
    if (objection := _find_objection(case, machine)) is not None:
        return case.wait(record, *objection)
    may_power_off = rules.power_off and not machine.keeps_power
    if case.reading.power_off and not may_power_off and rules.second_hand:
        message = (
            "Ironic reports that the machine is off, but may not have asked the BMC, and the machine must not be "
            "powered off; confirm that it is off"
        )
        return case.wait(record, "off-second-hand", message)
    if case.reading.power_off and not may_power_off:
        return _confirm_off(case, msgspec.structs.replace(record, phase=Phase.POWERING_OFF, place=machine.place), node)
    if not node.has_failed:
        return case.wait(record, "still-ready", "its kubelet is silent, but the cluster still considers it ready")
    since = record.failed_at + rules.dwell_reporting
    patient = is_booting(record) or (node.kubelet_reports and kubelet_lives(case))
    until = max(record.not_before, since) if patient else record.not_before
    if view.now < until:
        boots = ", because its BMC shows that it boots" if is_booting(record) else ""
        return case.wait(record, "dwell", f"waiting {until - view.now:.0f} s more for the node to come back{boots}")
    if case.reading.power_off is None:
        return case.wait(record, "bmc-error", f"the BMC does not say whether it is off: {case.reading.power_error}")
    if not may_power_off:
        which = "the machine's disable_power_off" if machine.keeps_power else "[failover] power_off = false"
        return case.wait(record, "power-is-on", f"the machine is on, and {which} forbids to power it off")
    if not repeats and is_flapping(record, view.now, rules):
        times = many(len(record.power_offs), "time")
        text = f"machine {machine.title} was powered off {times} within an hour, and its node fails again"
        return give_up(case, record, text, "flapping")
    if (others := _others_first(case, record, node)) is not None:
        return others
    if record.commands >= MAX_COMMANDS:
        return give_up(case, record, f"machine {machine.title} is still on after {record.commands} power-off commands")
    power_offs = record.power_offs if repeats else (*record.power_offs, view.now)
    record = msgspec.structs.replace(record, place=machine.place, power_offs=power_offs)
    return _command_off(case, record, machine.title)


def _find_futility(case: Case) -> tuple[str, str] | None:
    """Return why nothing is gained if the machine is off; None if pods or volumes could move."""
    fits, stuck = case.sort_by_fit()
    if fits or case.detachable(stuck) or case.rules.reset_hung:
        return None
    if stuck:
        return "nowhere-to-go", f"no other node could take its {many(len(stuck), 'pod')}"
    return "nothing-to-free", "it has no pods or volumes that could move to another node"


def _find_objection(case: Case, machine: ClusterMachine) -> tuple[str, str] | None:
    """Return what speaks against a command to this machine; None if nothing does."""
    if case.reading.distrust:  # neither would its command show that the machine is off
        return "bmc-unreliable", case.reading.distrust
    if machine.active:
        return "inspecting", f"an inspection of machine {machine.title} is in progress"
    if (doubt := _doubt(case, machine)) is not None:
        return doubt
    if not case.view.unguarded:
        return None
    return "machine-shared", (
        f"the controller of cluster {', '.join(case.view.unguarded)} does not say which machines its nodes run on, and "
        f"machine {machine.title} may be one of them: upgrade it"
    )


def _doubt(case: Case, machine: ClusterMachine) -> tuple[str, str] | None:
    """Return why this machine may not be the node's, as far as its BMC has answered; None if it is proven to be."""
    evidence = case.reading.evidence
    if evidence.contradiction:
        return "machine-contradicts", evidence.contradiction
    if evidence.facts or case.reading.power_off is None:
        return None
    return "machine-unproven", f"{why_unproven(machine)}, or confirm that it is off"


def _others_first(case: Case, record: Remediation, node: KubeNode) -> Decision | None:
    """Return why other nodes keep this one's machine on for now; None if they do not."""
    if (left := case.rules.silence - case.view.watched) > 0:
        message = f"looking for {left:.0f} s more whether other nodes are also silent"
        return case.wait(record, "watching", message)
    if (objection := quorum_objection(case.view, case.rules, node))[0]:
        return case.wait(record, *objection)
    return None


def _command_off(case: Case, record: Remediation, title: str) -> Decision:
    """Power it off, also if the BMC says that it is off: a BMC may be wrong about that, and still obey."""
    off = bool(case.reading.power_off)
    record = msgspec.structs.replace(
        announce_command(case, record), phase=Phase.POWERING_OFF, off_seen=None, commanded=record.commanded or not off
    )
    message = f"powering off machine {title}" + (", although its BMC reports that it is off" if off else "")
    return case.act(case.log(record, "power-off", message), "power-off", message, PowerOff())


def await_power_off(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Wait until the machine was seen off; repeat the command, or give up."""
    if (why := case.guard(record, node))[0]:
        return wait_for_guard(case, record, why)
    if not is_suspect(node, case.reading.silent, case.rules):
        # If the command is only late, or has just taken effect, the machine must not be forgotten without power.
        off_now = record.commanded and case.reading.power_off
        late = REPEAT_COMMAND_SECONDS + (case.rules.silence if off_now else 0.0)
        if case.view.now - record.command_at < late:
            message = "the node is ready again, but the power-off command may still take effect"
            return case.wait(record, "power-off-pending", message)
        message = "the node is ready again in the same boot"
        return end_alive(case, record, node, Phase.CANCELLED, "ready-again", message)
    unsent = record.off_seen is None and is_announced_only(case, record)
    refused = case.rules.second_hand and bool(case.reading.command_error)  # then nobody has asked the BMC
    if case.reading.power_off and not refused and not unsent:
        return _confirm_off(case, record, node)
    if case.reading.power_off is None:
        if case.reading.power is Power.CHANGING:  # whatever was seen before has ended
            record = msgspec.structs.replace(record, off_seen=None)
        return wait_for_bmc(case, record)
    record = msgspec.structs.replace(record, off_seen=None)
    sent = record.commanded or refused
    if sent and not unsent and case.view.now - record.command_at < REPEAT_COMMAND_SECONDS:
        if why_not := case.reading.command_error:
            if record.reason != "power-off-failed":
                record = case.log(record, "power-off-failed", f"the power-off command failed: {why_not}")
            return case.wait(record, "power-off-failed", f"the power-off command failed: {why_not}")
        return case.wait(record, "power-off-pending", "the machine is still on after the power-off command")
    return _decide_power_off(case, msgspec.structs.replace(record, phase=Phase.DWELL), node, repeats=True)


def _confirm_off(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """The BMC says that the machine is off; twice, apart, and without a sign of life is a proof."""
    view, renewal, before = case.view, case.reading.renewal, record.off_seen
    if before is None or before.renewal != renewal:
        alive = before is not None
        record = msgspec.structs.replace(record, off_seen=Sighting(view.now, renewal))
        message = "the BMC says that the machine is off"
        if alive:
            message = "the BMC reports that the machine is off, but its kubelet has renewed its lease since"
        record = case.log(record, "kubelet-alive" if alive else "seen-off", message)
        return case.wait(record, "kubelet-alive" if alive else "seen-off-once", message)
    # From the answer to the first question to the second question, however long both took.
    apart = view.now - before.at - (view.clock - case.reading.asked_at)
    if apart < APART_SECONDS:
        return case.wait(record, "seen-off-once", f"seen off once; looking again {APART_SECONDS:g} s after that")
    # What we have powered off ourselves is past that: its pods would run nowhere until the storm is over.
    if not record.commanded and (hold := case.hold(record, node)) is not None:
        return hold
    if not record.commanded and node.is_drained:
        return case.wait(record, "cordoned", _CORDONED)
    if not record.commanded and case.is_early(record):
        return case.wait(record, "dwell", f"it is off; waiting {record.not_before - view.now:.0f} s more")
    if not node.has_failed:
        return case.wait(record, "still-ready", "the machine is off, but the cluster still considers the node ready")
    return _begin_evacuation(
        case, record, node, Proof.POWER_OFF, f"the BMC has reported twice, {apart:.1f} s apart, that it is off"
    )


def _begin_evacuation(case: Case, record: Remediation, node: KubeNode, proof: Proof, why: str) -> Decision:
    record = msgspec.structs.replace(
        record,
        phase=Phase.EVACUATING,
        proof=proof,
        proven_at=case.view.now,
        renewal=case.reading.renewal,
        bmc_said_off=proof is Proof.POWER_OFF,
    )
    return evacuate(case, case.log(record, "proven", why), node)
