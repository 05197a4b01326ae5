"""One node in one pass: how what is decided is stored and explained, and what keeps everything away from its pods."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Final

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.guards import is_wanted
from ferroscope.contrib.kubernetes.failover.machines import Machine
from ferroscope.contrib.kubernetes.failover.placement import Neighbors
from ferroscope.contrib.kubernetes.failover.pods import Attachment, Pod
from ferroscope.contrib.kubernetes.failover.terms import Decision, DeletePod, Effect, Rules, Seen, View, is_storm
from ferroscope.core.remediation import Phase, Remediation, logged, postpone

ESCALATE: Final = 600.0  # seconds without a change, after which people are called
# Reasons that have called already.
_CALLED: Final = frozenset({"gave-up", "left-off", "flapping"})


def call_due_at(record: Remediation) -> float:
    """Return when people are called if nothing is done until then; infinity if they were, or do not want to be."""
    if not record.progress_at or record.reason in _CALLED or record.reason == record.escalated:
        return math.inf
    return (max(record.progress_at, record.since) if record.escalated else record.progress_at) + ESCALATE


class Case:
    """What is known of the node, and what all phases do alike; the phases are functions, see ``decision.PHASES``."""

    def __init__(self, view: View, seen: Seen, rules: Rules, new_uuid: Callable[[], str]) -> None:
        self.view = view
        self.seen = seen
        self.rules = rules
        self.new_uuid = new_uuid
        pods = [one for one in seen.pods if not one.bound_to_node and (one.terminating or one.runs)]
        self.movable = [one for one in pods if not one.awaits_finalizers]
        self.finalizing = [one for one in pods if one.awaits_finalizers]
        self._requests = {one.uid: one.requests for one in self.movable}
        self._neighbors = Neighbors(view.nodes, seen.name, seen.neighbors, self.movable)

    def end(self, record: Remediation, phase: Phase, reason: str, message: str, *effects: Effect) -> Decision:
        record = self.log(msgspec.structs.replace(record, phase=phase, ended_at=self.view.now), reason, message)
        return self.act(record, reason, message, *effects)

    def remembered(self, decision: Decision) -> Decision:
        """Add what a reboot proves, and remember which pods are being deleted."""
        record = decision.record
        if record is None or record.ended or self.seen.unread:
            return decision
        present = {one.uid: one for one in self.seen.pods}
        dead = tuple(uid for uid in record.dead if uid in present and present[uid].terminating)
        deleted = {one.pod.uid for one in decision.effects if isinstance(one, DeletePod)}
        node = self.seen.node
        allowed = not (self.view.problem or self.view.paused) and node is not None and not node.paused
        effects = tuple(
            DeletePod(present[uid])
            for uid in dead
            if uid not in deleted and allowed and not present[uid].awaits_finalizers
        )
        if node is not None and node.boot_id == record.boot_id:
            times = {uid: record.terminating.get(uid, self.view.now) for uid, one in present.items() if one.terminating}
            record = msgspec.structs.replace(record, terminating=times)
        record = msgspec.structs.replace(record, dead=dead)
        return msgspec.structs.replace(decision, record=record, effects=decision.effects + effects)

    def escalated(self, decision: Decision) -> Decision:
        """Call for people, once, if nothing was done for long, or if the reason for that has changed for long.

        Not if they took the node out of service before it failed, nor if mode ``label`` has freed what it selects.
        """
        record, node, now = decision.record, self.seen.node, self.view.now
        if record is None or record.ended or node is None:
            return decision
        freed = self.rules.mode == "label" and record.reason == "nothing-to-free"
        if freed or is_wanted(record, node, self.machine(record)):
            return msgspec.structs.replace(decision, record=msgspec.structs.replace(record, progress_at=0.0))
        record = msgspec.structs.replace(record, progress_at=record.progress_at or now)
        decision = msgspec.structs.replace(decision, record=record)
        if now < call_due_at(record):
            return decision
        minutes = f"{ESCALATE / 60:.0f} minutes"
        text = f"gave up, because nothing has changed for {minutes}: {record.message}; it is still looked at"
        record = self.log(msgspec.structs.replace(record, escalated=record.reason), "gave-up", text)
        if record.commanded and self.seen.power_off:
            record = msgspec.structs.replace(record, left_off=f"its machine was powered off, and {record.message}")
        return msgspec.structs.replace(decision, record=record)

    def log(self, record: Remediation, what: str, text: str) -> Remediation:
        return logged(record, self.view.now, what, text)

    def wait(self, record: Remediation, reason: str, message: str) -> Decision:
        return self.act(record, reason, message)

    def act(self, record: Remediation, reason: str, message: str, *effects: Effect) -> Decision:
        since = record.since if record.since and record.reason == reason else self.view.now
        if effects and record.acted != reason:
            record = msgspec.structs.replace(record, progress_at=self.view.now, escalated="", acted=reason)
        record = msgspec.structs.replace(record, reason=reason, message=message, since=since)
        return Decision(record, effects, reason, message)

    def machine(self, record: Remediation) -> Machine | None:
        """Return the node's machine: the settled one, and before that the one that matches now."""
        return self.seen.settled if record.settled else self.seen.match.machine

    def guard(self, record: Remediation, node: KubeNode) -> tuple[str, str]:
        """Return why nothing may be done to this node's pods now, "" if it may."""
        if self.view.paused:
            return "failover-paused", f"failover is paused: {self.view.paused}"
        if self.view.problem:
            return "view-bad", f"our own view cannot be trusted: {self.view.problem}"
        if node.paused:
            return "paused", "the node has the annotation ferroscope.io/failover-paused"
        if (machine := self.machine(record)) is not None and machine.maintenance:
            return "maintenance", f"machine {machine.title} is in maintenance"
        return "", ""

    @property
    def unread(self) -> tuple[str, str]:
        """Why nothing may be done that depends on what is on the node."""
        return "cannot-read", f"what is on the node cannot be read from the API server: {self.seen.unread}"

    def held(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return why nothing is begun about this node now; None if it may be."""
        why = self.guard(record, node)
        if not why[0] and self.seen.unread:
            why = self.unread
        return self.wait(record, *why) if why[0] else self.storm(record)

    def storm(self, record: Remediation) -> Decision | None:
        """Return why too many nodes have failed for anything to be begun; None if it may be."""
        if not (storm := is_storm(self.view, self.rules)):
            return None
        return self.wait(postpone(record, self.view.now, self.rules.storm_cooldown), "storm", storm)

    def early(self, record: Remediation) -> bool:
        return self.view.now < record.not_before

    def places(self) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that could run on another node, and those that could not."""
        others = [one for one in self.view.nodes if one.name != self.seen.name]
        moving, fits = self.movable, [one for one in self.movable if any(self.fits(one, node) for node in others)]
        while len(fits) < len(moving) and any(one.affinity_to_pods for one in fits):
            moving = fits  # a pod that must be beside one that stays does not move either
            self._neighbors.moving = moving
            fits = [one for one in moving if any(self.fits(one, node) for node in others)]
        return fits, [one for one in self.movable if one not in fits]

    def fits(self, pod: Pod, node: KubeNode) -> bool:
        volumes = self.seen.volumes_of(pod)
        if pod.uid in self.seen.refused or not pod.fits(node) or not all(one.reaches(node) for one in volumes):
            return False
        return node.is_large_enough(self._requests.get(pod.uid, {})) and self._neighbors.allow(pod, node)

    def detachable(self, stuck: Sequence[Pod], moved: Container[str] = ()) -> list[Attachment]:
        """Return the attachments but those of pods that stay: these would only be attached again.

        ``moved``: volumes that pods elsewhere wait for, whoever stays.
        """
        stay = [*stuck, *(one for one in self.seen.pods if one.bound_to_node and one.runs)]
        kept = {volume.name for one in stay for volume in self.seen.volumes_of(one) if volume.name not in moved}
        if stuck:
            kept.add("")  # whose it is is not known
        found = [one for one in self.seen.attachments if one.volume not in kept]
        return [one for one in found if one.metadata.uid not in self.seen.refused]
