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

from collections.abc import Callable

import msgspec

from ferroscope.core.remediation import Phase, Proof, Remediation, logged
from ferroscope.failover.cluster import KubeNode
from ferroscope.failover.pods import Attachment, Pod
from ferroscope.failover.proof import Proving
from ferroscope.failover.returning import Returning
from ferroscope.failover.terms import Decision, DeleteAttachment, DeletePod, Rules, Seen, SetCondition, View, is_suspect


def decide(view: View, seen: Seen, record: Remediation | None, rules: Rules, new_uuid: Callable[[], str]) -> Decision:
    """Return what to do about the node now. ``record``: of its remediation in progress, None if there is none."""
    if record is None:
        if seen.node is None or not is_suspect(seen.node, seen.silent, rules):
            return _with_condition(seen.node, Decision(None))
        record = _opened(view, seen, seen.node, new_uuid())
    record = msgspec.structs.replace(record, updated_at=view.now, epoch=view.epoch)
    if record.settled and seen.power_off is False:
        record = msgspec.structs.replace(record, left_off="")
    # What was begun with a machine's power is brought to its end by proof, and no mode uses what the other has begun.
    by_label = rules.mode == "label" and not record.settled
    if by_label != (record.proof is Proof.LABEL) and record.phase is not Phase.DWELL and not record.settled:
        record = msgspec.structs.replace(record, phase=Phase.DWELL, proof=Proof.NONE, not_before=view.now + rules.dwell)
    case = ByLabel(view, seen, rules) if by_label else Proving(view, seen, rules)
    node = seen.node
    if node is None or node.metadata.uid != record.node_uid:
        return case.deleted(record)
    return _with_condition(node, case.escalated(case.remembered(case.decided(record, node))))


def _with_condition(node: KubeNode | None, decision: Decision) -> Decision:
    """Have the Node say what the record says about a machine that stays off."""
    record = decision.record
    wanted = "" if record is None or record.ended else record.left_off
    if node is None or node.left_off == wanted:
        return decision
    return msgspec.structs.replace(decision, effects=(*decision.effects, SetCondition(node, wanted)))


def _opened(view: View, seen: Seen, node: KubeNode, uuid: str) -> Remediation:
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
        not_before=since,
    )
    return logged(record, view.now, "failed", f"the node {what}")


class ByLabel(Returning):
    """Mode ``label``: the pods that may run twice are evicted as soon as the node is not ready."""

    def decided(self, record: Remediation, node: KubeNode) -> Decision:
        if not node.failed:
            return self.end(record, Phase.DONE, "ready-again", "the node is ready again")
        if (held := self._held(record, node)) is not None:
            return held
        if self._early(record):
            return self._wait(record, "storm", "many nodes were not ready a moment ago")
        chosen = [one for one in self._eligible() if self._rules.without_proof(one)]
        if not chosen and (volumes := self._released(record)):
            message = f"detaching {len(volumes)} volumes of pods that were deleted without proof"
            return self._act(record, "", message, *map(DeleteAttachment, volumes))
        if not chosen:
            return self._wait(record, "nothing-to-free", "it has no pods that are selected and could run elsewhere")
        if record.phase is Phase.DWELL:
            record = msgspec.structs.replace(record, phase=Phase.EVACUATING, proof=Proof.LABEL)
            record = self._log(record, "without-proof", f"deleting {len(chosen)} selected pods, without proof")
        force = self._rules.label_force
        if force:
            names = {volume.name for one in chosen for volume in self._seen.volumes_of(one)}
            record = msgspec.structs.replace(record, detach=tuple(sorted({*record.detach, *names})))
        effects = tuple(DeletePod(one, ask_budget=not (one.terminating or force)) for one in chosen)
        message = f"deleting {len(chosen)} pods without proof, as mode = label says"
        return self._act(record, "", message, *effects)

    def _eligible(self) -> list[Pod]:
        """Return the pods that could run elsewhere; by force also those that run here and could not."""
        fits, stuck = self._places()
        if not self._rules.label_force:
            return fits
        # What was never started here was made for this node again, and would be each time.
        return fits + [one for one in stuck if one.status.phase != "Pending" and one.uid not in self._seen.refused]

    def _released(self, record: Remediation) -> list[Attachment]:
        """Return the attachments of volumes whose pods we have deleted, and which no pod of the node has any more."""
        used = {volume.name for one in self._seen.pods for volume in self._seen.volumes_of(one)}
        found = [one for one in self._detachable(()) if not one.terminating]
        return [one for one in found if one.volume in record.detach and one.volume not in used]
