"""Mode ``label``: the pods that may run twice are evicted as soon as the node is not ready."""

from __future__ import annotations

import msgspec

from ferroscope.contrib.kubernetes.failover.case import Case
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.pods import Attachment, Pod
from ferroscope.contrib.kubernetes.failover.terms import Decision, DeleteAttachment, DeletePod
from ferroscope.core.remediation import Phase, Proof, Remediation
from ferroscope.core.values import many


def by_label(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Return what mode ``label`` does now."""
    if not node.failed:
        return case.end(record, Phase.DONE, "ready-again", "the node is ready again")
    if (held := case.held(record, node)) is not None:
        return held
    if case.early(record):
        return case.wait(record, "storm", "many nodes were not ready a moment ago")
    chosen = [one for one in _eligible(case) if case.rules.without_proof(one)]
    if not chosen and (volumes := _released(case, record)):
        message = f"detaching {many(len(volumes), 'volume')} of pods that were deleted without proof"
        return case.act(record, "", message, *map(DeleteAttachment, volumes))
    if not chosen:
        return case.wait(record, "nothing-to-free", "it has no pods that are selected and could run elsewhere")
    if record.phase is Phase.DWELL:
        record = msgspec.structs.replace(record, phase=Phase.EVACUATING, proof=Proof.LABEL)
        record = case.log(record, "without-proof", f"deleting {many(len(chosen), 'selected pod')}, without proof")
    force = case.rules.label_force
    if force:
        names = {volume.name for one in chosen for volume in case.seen.volumes_of(one)}
        record = msgspec.structs.replace(record, detach=tuple(sorted({*record.detach, *names})))
    effects = tuple(DeletePod(one, ask_budget=not (one.terminating or force)) for one in chosen)
    message = f"deleting {many(len(chosen), 'pod')} without proof, as mode = label says"
    return case.act(record, "", message, *effects)


def _eligible(case: Case) -> list[Pod]:
    """Return the pods that could run elsewhere; by force also those that run here and could not."""
    fits, stuck = case.places()
    if not case.rules.label_force:
        return fits
    # What was never started here was made for this node again, and would be each time.
    return fits + [one for one in stuck if one.status.phase != "Pending" and one.uid not in case.seen.refused]


def _released(case: Case, record: Remediation) -> list[Attachment]:
    """Return the attachments of volumes whose pods we have deleted, and which no pod of the node has any more."""
    used = {volume.name for one in case.seen.pods for volume in case.seen.volumes_of(one)}
    found = [one for one in case.detachable(()) if not one.terminating]
    return [one for one in found if one.volume in record.detach and one.volume not in used]
