"""Decides what to do about a node now, and why not more: pure, without I/O and clocks.

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

from collections.abc import Callable
from typing import Final

import msgspec

from ferroscope.contrib.kubernetes.failover import evacuation, guards, label, proof, returning
from ferroscope.contrib.kubernetes.failover.case import Case
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, KubeNode
from ferroscope.contrib.kubernetes.failover.terms import (
    ClusterView,
    Decision,
    FailoverRules,
    NodeReading,
    SetCondition,
    is_suspect,
)
from ferroscope.core.remediation import Phase, Proof, Remediation, Sighting, log_evidence, postpone


def decide(
    view: ClusterView,
    reading: NodeReading,
    record: Remediation | None,
    rules: FailoverRules,
    new_uuid: Callable[[], str],
) -> Decision:
    """Return what to do about the node now. ``record``: of its remediation in progress, None if there is none."""
    if record is None:
        if reading.node is None or not is_suspect(reading.node, reading.silent, rules):
            return _with_condition(reading.node, Decision(None))
        record = _open_record(view, reading, reading.node, rules, new_uuid())
    record = _take_over(record, view, reading.followed)
    case = Case(view, reading, rules, new_uuid)
    node = reading.node
    if record.detached:
        return returning.watch_left_off(case, record)
    if reading.unseen and node is not None:
        message = f"the node cannot be read from the API server: {reading.unseen}"
        return case.escalate(case.wait(record, "cannot-read", message))
    if node is not None and not node.confirmed_off:
        record = msgspec.structs.replace(record, old_confirmation=False)
    if record.settled and reading.power_off is False:
        record = msgspec.structs.replace(record, left_off="")
    # What was begun with a machine's power is brought to its end by proof, and no mode uses what the other has begun.
    by_label = rules.mode == "label" and not record.settled
    if by_label != (record.proof is Proof.LABEL) and record.phase is not Phase.DWELL and not record.settled:
        record = msgspec.structs.replace(record, phase=Phase.DWELL, proof=Proof.NONE, detach=())
        record = postpone(record, view.now, rules.dwell)
    if node is None or node.metadata.uid != record.node_uid:
        return returning.end_deleted(case, record)
    decision = label.by_label(case, record, node) if by_label else _by_proof(case, record, node)
    return _with_condition(node, case.escalate(case.remember_deletions(decision)))


# What to do in each phase of a remediation by proof.
PHASES: Final[dict[Phase, Callable[[Case, Remediation, KubeNode], Decision]]] = {
    Phase.DWELL: proof.dwell,
    Phase.POWERING_OFF: proof.await_power_off,
    Phase.EVACUATING: evacuation.evacuate,
    Phase.EVACUATED: evacuation.finish_evacuation,
    Phase.RETURNING: returning.await_return,
}


def _by_proof(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Do what the phase says, unless what was read says that the node is back, or that another machine was meant."""
    if node.is_paused:
        record = msgspec.structs.replace(record, commands=0, power_offs=())
    record = proof.start_dwell(case, proof.with_doubt(case, record, node), node)
    if record.tainted and node.ready:
        return returning.end_return(case, record, node)
    if record.phase in (Phase.DWELL, Phase.POWERING_OFF) and node.boot_id != record.boot_id:
        return returning.handle_reboot(case, record, node)
    if (mismatch := proof.mismatch(case, record, node)) is not None:
        return mismatch
    return PHASES[record.phase](case, record, node)


def _with_condition(node: KubeNode | None, decision: Decision) -> Decision:
    """Have the Node say what the record says about a machine that stays off."""
    record = decision.record
    wanted = "" if record is None or record.ended else record.left_off
    if node is None or node.left_off == wanted:
        return decision
    return msgspec.structs.replace(decision, effects=(*decision.effects, SetCondition(node, wanted)))


def _open_record(
    view: ClusterView, reading: NodeReading, node: KubeNode, rules: FailoverRules, uuid: str
) -> Remediation:
    symptom = (
        "is not ready"
        if node.has_failed
        else f"is silent: its kubelet has not renewed its lease for {reading.silent:.0f} s"
    )
    since = view.now - reading.age  # a BMC that takes its time to answer must not make the dwell time longer
    confirmed = node.confirmed_off
    record = Remediation(
        uuid=uuid,
        cluster=view.cluster,
        node=reading.name,
        node_uid=node.metadata.uid,
        boot_id=node.boot_id,
        renewal=reading.renewal,
        started_at=since,
        not_before=since,
        old_confirmation=confirmed,
        epoch=view.epoch,
        groups=guards.groups_of(node, rules),
        wanted=tuple(guards.reasons_wanted(node, reading.match.machine)),
        power_offs=reading.power_offs,
    )
    record = log_evidence(record, view.now, "failed", f"the node {symptom}")
    if not confirmed:
        return record
    text = f"its annotation {CONFIRMED_OFF} is older than this failure and does not count: remove it and set it again"
    return log_evidence(record, view.now, "confirmation-ignored", text)


def _take_over(record: Remediation, view: ClusterView, followed: float | None) -> Remediation:
    """Return the record on the clock of this leader.

    Each leader counts from the database's clock of when it began, by its own monotonic clock. That of the database may
    have been set in between, so times of two leaders are never compared. Who has followed the one before knows all the
    same how long ago the record was stored, at least; and what that leader had counted until then is in the record.
    Otherwise a dwell time begins anew, and the machine has to be seen off again some time from now. Only pods whose
    deletion is seen from now on are dead after a reboot: nobody has looked for a new boot in between. Where a time only
    delays something, such as the call for people, it may be too early.
    """
    if record.epoch == view.epoch or not view.epoch:
        return msgspec.structs.replace(record, updated_at=view.now)
    in_dwell, now, sighting = record.phase is Phase.DWELL and not record.detached, view.now, record.off_seen

    def on_our_clock(at: float, otherwise: float) -> float:
        return otherwise if followed is None else at and at + now - followed - record.updated_at

    return msgspec.structs.replace(
        record,
        epoch=view.epoch,
        updated_at=now,
        failed_at=on_our_clock(record.failed_at, 0.0 if in_dwell else record.failed_at),
        not_before=on_our_clock(record.not_before, now + record.patience if in_dwell else record.not_before),
        command_at=min(record.command_at, now),
        since=min(record.since, now),
        progress_at=min(record.progress_at, now),
        proven_at=min(record.proven_at, now),
        off_seen=sighting and Sighting(on_our_clock(sighting.at, now), sighting.renewal),
        terminating=dict.fromkeys(record.terminating, now),
    )
