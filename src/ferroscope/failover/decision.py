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
from ferroscope.failover.case import Case
from ferroscope.failover.cluster import KubeNode
from ferroscope.failover.proof import Proving
from ferroscope.failover.terms import Decision, DeletePod, Rules, Seen, View, is_suspect


def decide(view: View, seen: Seen, record: Remediation | None, rules: Rules, new_uuid: Callable[[], str]) -> Decision:
    """Return what to do about the node now. ``record``: of its remediation in progress, None if there is none."""
    if record is None:
        if seen.node is None or not is_suspect(seen.node, seen.silent, rules):
            return Decision(None)
        record = _opened(view, seen, seen.node, rules, new_uuid())
    record = msgspec.structs.replace(record, updated_at=view.now, epoch=view.epoch)
    mode: type[ByLabel | Proving] = ByLabel if rules.mode == "label" else Proving
    case = mode(view, seen, rules)
    node = seen.node
    if node is None or node.metadata.uid != record.node_uid:
        return case.end(record, Phase.DONE, "node-deleted", "the node was deleted from the cluster")
    return case.remembered(case.decided(record, node))


def _opened(view: View, seen: Seen, node: KubeNode, rules: Rules, uuid: str) -> Remediation:
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
        not_before=since + (0.0 if rules.mode == "label" else rules.dwell),
    )
    return logged(record, view.now, "failed", f"the node {what}")


class ByLabel(Case):
    """Mode ``label``: the pods that may run twice are evicted as soon as the node is not ready."""

    def decided(self, record: Remediation, node: KubeNode) -> Decision:
        if not node.failed:
            return self.end(record, Phase.DONE, "ready-again", "the node is ready again")
        if (held := self._held(record, node)) is not None:
            return held
        if self._early(record):
            return self._wait(record, "storm", "many nodes were not ready a moment ago")
        fits, _ = self._places()
        chosen = [one for one in fits if self._rules.without_proof(one)]
        if not chosen:
            return self._wait(record, "nothing-to-free", "it has no pods that are selected and could run elsewhere")
        if record.phase is Phase.DWELL:
            record = msgspec.structs.replace(record, phase=Phase.EVACUATING, proof=Proof.LABEL)
            record = self._log(record, "without-proof", f"deleting {len(chosen)} selected pods, without proof")
        effects = tuple(DeletePod(one, ask_budget=not one.terminating) for one in chosen)
        message = f"deleting {len(chosen)} pods without proof, as mode = label says"
        return self._act(record, "", message, *effects)
