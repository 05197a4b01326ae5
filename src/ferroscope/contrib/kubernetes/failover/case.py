"""One node in one pass: stores and explains a decision, and finds what forbids any action on its pods."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Final

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.guards import is_wanted
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine
from ferroscope.contrib.kubernetes.failover.placement import Neighbors
from ferroscope.contrib.kubernetes.failover.pods import Pod, VolumeAttachment
from ferroscope.contrib.kubernetes.failover.terms import (
    ClusterView,
    Decision,
    DeletePod,
    Effect,
    FailoverRules,
    NodeReading,
    is_storm,
)
from ferroscope.core.remediation import Phase, Remediation, log_evidence, postpone

ESCALATE_SECONDS: Final = 600.0  # seconds without a change, after which people are called
# Reasons that have called already.
_CALLED_REASONS: Final = frozenset({"gave-up", "left-off", "flapping"})


def call_due_at(record: Remediation) -> float:
    """Return when people are called if nothing is done until then; infinity if they were called, or disabled it."""
    if not record.progress_at or record.reason in _CALLED_REASONS or record.reason == record.escalated:
        return math.inf
    return (max(record.progress_at, record.since) if record.escalated else record.progress_at) + ESCALATE_SECONDS


class Case:
    """The facts about the node, and the steps that phases share; the phases are functions, see ``decision.PHASES``."""

    def __init__(
        self, view: ClusterView, reading: NodeReading, rules: FailoverRules, new_uuid: Callable[[], str]
    ) -> None:
        self.view = view
        self.reading = reading
        self.rules = rules
        self.new_uuid = new_uuid
        pods = [pod for pod in reading.pods if not pod.bound_to_node and (pod.terminating or pod.runs)]
        self.movable = [pod for pod in pods if not pod.awaits_finalizers]
        self.finalizing = [pod for pod in pods if pod.awaits_finalizers]
        self._requests = {pod.uid: pod.requests for pod in self.movable}
        self._neighbors = Neighbors(view.nodes, reading.name, reading.neighbors, self.movable)

    def end(self, record: Remediation, phase: Phase, reason: str, message: str, *effects: Effect) -> Decision:
        record = self.log(msgspec.structs.replace(record, phase=phase, ended_at=self.view.now), reason, message)
        return self.act(record, reason, message, *effects)

    def remember_deletions(self, decision: Decision) -> Decision:
        """Add what a reboot proves, and remember which pods are being deleted."""
        record = decision.record
        if record is None or record.ended or self.reading.unread:
            return decision
        present = {pod.uid: pod for pod in self.reading.pods}
        dead = tuple(uid for uid in record.dead if uid in present and present[uid].terminating)
        deleted = {effect.pod.uid for effect in decision.effects if isinstance(effect, DeletePod)}
        node = self.reading.node
        allowed = not (self.view.problem or self.view.paused) and node is not None and not node.is_paused
        effects = tuple(
            DeletePod(present[uid])
            for uid in dead
            if uid not in deleted and allowed and not present[uid].awaits_finalizers
        )
        if node is not None and node.boot_id == record.boot_id:
            times = {uid: record.terminating.get(uid, self.view.now) for uid, pod in present.items() if pod.terminating}
            record = msgspec.structs.replace(record, terminating=times)
        record = msgspec.structs.replace(record, dead=dead)
        return msgspec.structs.replace(decision, record=record, effects=decision.effects + effects)

    def escalate(self, decision: Decision) -> Decision:
        """Call for people once, if nothing was done for long, or if the reason for that has changed for long.

        Not if they took the node out of service before it failed, or if mode ``label`` has freed its pods.
        """
        record, node, now = decision.record, self.reading.node, self.view.now
        if record is None or record.ended or node is None:
            return decision
        freed = self.rules.mode == "label" and record.reason == "nothing-to-free"
        if freed or is_wanted(record, node, self.machine(record)):
            return msgspec.structs.replace(decision, record=msgspec.structs.replace(record, progress_at=0.0))
        record = msgspec.structs.replace(record, progress_at=record.progress_at or now)
        decision = msgspec.structs.replace(decision, record=record)
        if now < call_due_at(record):
            return decision
        minutes = f"{ESCALATE_SECONDS / 60:.0f} minutes"
        text = f"gave up, because nothing has changed for {minutes}: {record.message}; it is still looked at"
        record = self.log(msgspec.structs.replace(record, escalated=record.reason), "gave-up", text)
        if record.commanded and self.reading.power_off:
            record = msgspec.structs.replace(record, left_off=f"its machine was powered off, and {record.message}")
        return msgspec.structs.replace(decision, record=record)

    def log(self, record: Remediation, code: str, text: str) -> Remediation:
        return log_evidence(record, self.view.now, code, text)

    def wait(self, record: Remediation, reason: str, message: str) -> Decision:
        return self.act(record, reason, message)

    def act(self, record: Remediation, reason: str, message: str, *effects: Effect) -> Decision:
        since = record.since if record.since and record.reason == reason else self.view.now
        if effects and record.acted != reason:
            record = msgspec.structs.replace(record, progress_at=self.view.now, escalated="", acted=reason)
        record = msgspec.structs.replace(record, reason=reason, message=message, since=since)
        return Decision(record, effects, reason, message)

    def machine(self, record: Remediation) -> ClusterMachine | None:
        """Return the node's machine: the settled one, and before that the one that matches now."""
        return self.reading.settled if record.settled else self.reading.match.machine

    def guard(self, record: Remediation, node: KubeNode) -> tuple[str, str]:
        """Return why nothing may be done to this node's pods now, "" if it may."""
        if self.view.paused:
            return "failover-paused", f"failover is paused: {self.view.paused}"
        if self.view.problem:
            return "view-bad", f"our own view cannot be trusted: {self.view.problem}"
        if node.is_paused:
            return "paused", "the node has the annotation ferroscope.io/failover-paused"
        if (machine := self.machine(record)) is not None and machine.maintenance:
            return "maintenance", f"machine {machine.title} is in maintenance"
        return "", ""

    @property
    def unread(self) -> tuple[str, str]:
        """Why nothing may be done that depends on what is on the node."""
        return "cannot-read", f"the node's pods and volumes cannot be read from the API server: {self.reading.unread}"

    def hold(self, record: Remediation, node: KubeNode) -> Decision | None:
        """Return why nothing is begun about this node now; None if it may be."""
        why = self.guard(record, node)
        if not why[0] and self.reading.unread:
            why = self.unread
        return self.wait(record, *why) if why[0] else self.storm(record)

    def storm(self, record: Remediation) -> Decision | None:
        """Return why too many nodes have failed for anything to be begun; None if it may be."""
        if not (storm := is_storm(self.view, self.rules)):
            return None
        return self.wait(postpone(record, self.view.now, self.rules.storm_cooldown), "storm", storm)

    def is_early(self, record: Remediation) -> bool:
        return self.view.now < record.not_before

    def sort_by_fit(self) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that could run on another node, and those that could not."""
        others = [node for node in self.view.nodes if node.name != self.reading.name]
        moving, fits = self.movable, [pod for pod in self.movable if any(self.fits(pod, node) for node in others)]
        while len(fits) < len(moving) and any(pod.affinity_to_pods for pod in fits):
            moving = fits  # a pod that must be beside one that stays does not move either
            self._neighbors.moving = moving
            fits = [pod for pod in moving if any(self.fits(pod, node) for node in others)]
        return fits, [pod for pod in self.movable if pod not in fits]

    def fits(self, pod: Pod, node: KubeNode) -> bool:
        volumes = self.reading.volumes_of(pod)
        if pod.uid in self.reading.refused or not pod.fits(node) or not all(volume.reaches(node) for volume in volumes):
            return False
        return node.is_large_enough(self._requests.get(pod.uid, {})) and self._neighbors.allow(pod, node)

    def detachable(self, stuck: Sequence[Pod], moved: Container[str] = ()) -> list[VolumeAttachment]:
        """Return the attachments except those of pods that stay, which would only be attached again.

        ``moved``: volumes that pods elsewhere wait for, regardless of the pods that stay.
        """
        stay = [*stuck, *(pod for pod in self.reading.pods if pod.bound_to_node and pod.runs)]
        kept = {volume.name for pod in stay for volume in self.reading.volumes_of(pod) if volume.name not in moved}
        if stuck:
            kept.add("")  # whose it is is not known
        attachments = [attachment for attachment in self.reading.attachments if attachment.volume not in kept]
        return [attachment for attachment in attachments if attachment.metadata.uid not in self.reading.refused]
