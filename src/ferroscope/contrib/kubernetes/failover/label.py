"""Mode ``label``: the pods that may run twice are evicted as soon as the node is not ready."""

from __future__ import annotations

import msgspec

from ferroscope.contrib.kubernetes.failover.case import Case
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.pods import Pod, VolumeAttachment
from ferroscope.contrib.kubernetes.failover.terms import Decision, DeleteAttachment, DeletePod
from ferroscope.core.remediation import Phase, Proof, Remediation
from ferroscope_client.core.values import many


def by_label(case: Case, record: Remediation, node: KubeNode) -> Decision:
    """Return what mode ``label`` does now."""
    if not node.has_failed:
        return case.end(record, Phase.DONE, "ready-again", "the node is ready again")
    if (hold := case.hold(record, node)) is not None:
        return hold
    if case.is_early(record):
        return case.wait(record, "storm", "many nodes were not ready a moment ago")
    chosen = [pod for pod in _eligible(case) if case.rules.without_proof(pod)]
    if not chosen and (volumes := _released_attachments(case, record)):
        message = f"detaching {many(len(volumes), 'volume')} of pods that were deleted without proof"
        return case.act(record, "", message, *map(DeleteAttachment, volumes))
    if not chosen:
        return case.wait(record, "nothing-to-free", "it has no pods that are selected and could run elsewhere")
    if record.phase is Phase.DWELL:
        record = msgspec.structs.replace(record, phase=Phase.EVACUATING, proof=Proof.LABEL)
        record = case.log(record, "without-proof", f"deleting {many(len(chosen), 'selected pod')}, without proof")
    force = case.rules.label_force
    if force:
        names = {volume.name for pod in chosen for volume in case.reading.volumes_of(pod)}
        record = msgspec.structs.replace(record, detach=tuple(sorted({*record.detach, *names})))
    effects = tuple(DeletePod(pod, ask_budget=not (pod.terminating or force)) for pod in chosen)
    message = f"deleting {many(len(chosen), 'pod')} without proof (mode = label)"
    return case.act(record, "", message, *effects)


def _eligible(case: Case) -> list[Pod]:
    """Return the pods that could run elsewhere; by force also those that run here and could not."""
    fits, stuck = case.sort_by_fit()
    if not case.rules.label_force:
        return fits
    # What was never started here was made for this node again, and would be each time.
    return fits + [pod for pod in stuck if pod.status.phase != "Pending" and pod.uid not in case.reading.refused]


def _released_attachments(case: Case, record: Remediation) -> list[VolumeAttachment]:
    """Return the attachments of volumes whose pods we have deleted, and which no pod of the node has any more."""
    used = {volume.name for pod in case.reading.pods for volume in case.reading.volumes_of(pod)}
    attachments = [attachment for attachment in case.detachable(()) if not attachment.terminating]
    return [
        attachment for attachment in attachments if attachment.volume in record.detach and attachment.volume not in used
    ]
