"""One node in one pass: how what is decided is stored and explained, and what keeps everything away from its pods."""

from __future__ import annotations

import msgspec

from ferroscope.core.remediation import Phase, Remediation, logged
from ferroscope.failover.cluster import KubeNode, Pod
from ferroscope.failover.terms import Decision, DeletePod, Effect, Rules, Seen, View, is_storm


class Case:
    """``ByLabel`` and ``Proving`` decide; here is what both do alike."""

    def __init__(self, view: View, seen: Seen, rules: Rules) -> None:
        self._view = view
        self._seen = seen
        self._rules = rules
        self._movable = [one for one in seen.pods if not one.bound_to_node and (one.terminating or _runs(one))]

    def end(self, record: Remediation, phase: Phase, reason: str, message: str, *effects: Effect) -> Decision:
        record = self._log(msgspec.structs.replace(record, phase=phase, ended_at=self._view.now), reason, message)
        return self._act(record, reason, message, *effects)

    def remembered(self, decision: Decision) -> Decision:
        """Add what a reboot proves, and remember which pods are being deleted."""
        record = decision.record
        if record is None or record.ended:
            return decision
        present = {one.uid: one for one in self._seen.pods}
        dead = tuple(uid for uid in record.dead if uid in present and present[uid].terminating)
        deleted = {one.pod.uid for one in decision.effects if isinstance(one, DeletePod)}
        node = self._seen.node
        allowed = not self._view.problem and node is not None and not node.paused
        effects = tuple(DeletePod(present[uid]) for uid in dead if uid not in deleted and allowed)
        if node is not None and node.boot_id == record.boot_id:
            times = {
                uid: record.terminating.get(uid, self._view.now) for uid, one in present.items() if one.terminating
            }
            record = msgspec.structs.replace(record, terminating=times)
        record = msgspec.structs.replace(record, dead=dead)
        return Decision(record, decision.effects + effects, decision.reason, decision.message)

    def _log(self, record: Remediation, what: str, text: str) -> Remediation:
        return logged(record, self._view.now, what, text)

    def _wait(self, record: Remediation, reason: str, message: str) -> Decision:
        return self._act(record, reason, message)

    def _act(self, record: Remediation, reason: str, message: str, *effects: Effect) -> Decision:
        record = msgspec.structs.replace(record, reason=reason, message=message)
        return Decision(record, effects, reason, message)

    def _guard(self, node: KubeNode) -> tuple[str, str]:
        """Return why nothing may be done to this node's pods now, "" if it may."""
        if self._view.problem:
            return "view-bad", f"our own view cannot be trusted: {self._view.problem}"
        if node.paused:
            return "paused", "the node has the annotation ferroscope.io/failover-paused"
        if (machine := self._seen.match.machine) is not None and machine.maintenance:
            return "maintenance", f"machine {machine.title} is in maintenance"
        return "", ""

    def _held(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return why nothing is begun about this node now; None if it may be."""
        if (why := self._guard(node))[0]:
            return self._wait(record, *why)
        if storm := is_storm(self._view, self._rules):
            until = self._view.now + self._rules.storm_cooldown
            return self._wait(msgspec.structs.replace(record, not_before=until), "storm", storm)
        return None

    def _early(self, record: Remediation) -> bool:
        return self._view.now < record.not_before

    def _places(self) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that could run on another node, and those that could not."""
        others = [one for one in self._view.nodes if one.name != self._seen.name]
        fits = [one for one in self._movable if any(one.fits(node) for node in others)]
        return fits, [one for one in self._movable if one not in fits]


def _runs(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed")
