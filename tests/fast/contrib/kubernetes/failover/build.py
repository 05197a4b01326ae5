"""Nodes, pods and machines of Kubernetes for the tests of the failed-node controller, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode
from ferroscope.contrib.kubernetes.failover.decision import decide
from ferroscope.contrib.kubernetes.failover.evidence import PodEvidence
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine, MachineMatch
from ferroscope.contrib.kubernetes.failover.placement import PodQuery
from ferroscope.contrib.kubernetes.failover.pods import PersistentVolume, Pod, VolumeAttachment
from ferroscope.contrib.kubernetes.failover.terms import (
    ClusterView,
    Decision,
    FailoverRules,
    NodeReading,
    PowerOff,
    SetCondition,
)
from ferroscope.core.remediation import Remediation

SYSTEM_UUID = "4c4c4544-0051-4b10-8057-b7c04f4a5931"
MACHINE = ClusterMachine(
    uuid="aaaaaaaa-0000-4000-8000-000000000001", name="m1", system_uuid=SYSTEM_UUID, serial="7QKWJY1"
)


def node(
    name: str = "n1",
    ready: str = "Unknown",
    *,
    boot: str = "boot-1",
    reason: str = "NodeStatusUnknown",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    taints: tuple[dict[str, str], ...] = (),
    provider: str = "",
    system_uuid: str = SYSTEM_UUID,
    cordoned: bool = False,
    allocatable: dict[str, str] | None = None,
) -> KubeNode:
    labels = {"kubernetes.io/hostname": name} | (labels or {})
    conditions = [{"type": "Ready", "status": ready, "reason": reason}] if ready else []
    document = {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": labels, "annotations": annotations,
        },
        "spec": {"providerID": provider, "taints": list(taints), "unschedulable": cordoned},
        "status": {
            "conditions": conditions, "nodeInfo": {"bootID": boot, "systemUUID": system_uuid},
            "allocatable": allocatable,
        },
    }  # fmt: skip
    found: KubeNode = _of(KubeNode, document)
    return found


def pod(name: str = "db-0", *, owner: str = "StatefulSet", terminating: bool = False, **more: Any) -> Pod:
    metadata: dict[str, Any] = {
        "name": name, "namespace": more.pop("namespace", "shop"), "uid": f"uid-{name}", "resourceVersion": "3",
        "labels": more.pop("labels", None), "annotations": more.pop("annotations", None),
        "ownerReferences": [{"kind": owner, "name": "owner", "controller": True}],
    }  # fmt: skip
    if terminating:
        metadata["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    for key in ("finalizers", "deletionGracePeriodSeconds"):
        metadata[key] = more.pop(key, None)
    if claim := more.pop("claim", None):
        more["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    status = {"phase": more.pop("phase", "Running")}
    found: Pod = _of(Pod, {"metadata": metadata, "spec": {"nodeName": "n1", **more}, "status": status})
    return found


def attachment(name: str = "va-1", volume: str | None = None) -> VolumeAttachment:
    spec = {"nodeName": "n1", "source": {"persistentVolumeName": volume}}
    found: VolumeAttachment = _of(VolumeAttachment, {"metadata": {"name": name, "uid": name}, "spec": spec})
    return found


def volume(name: str, only_on: str = "") -> PersistentVolume:
    """Return a PersistentVolume; ``only_on``: a local one, of this node."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [only_on]}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}} if only_on else None
    found: PersistentVolume = _of(PersistentVolume, {"metadata": {"name": name}, "spec": {"nodeAffinity": affinity}})
    return found


def _of(kind: type[Any], document: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


_POWER = {True: Power.OFF, False: Power.ON, None: Power.UNKNOWN}


class Case:
    """One node over time: change its attributes, then ``step``; the clock advances as the test says."""

    def __init__(self, rules: FailoverRules | None = None) -> None:
        self.rules = rules or FailoverRules()
        self.others = [node("n2", "True"), node("n3", "True"), node("n4", "True")]
        self.node: KubeNode | None = node()
        self.pods = [pod()]
        self.attachments: list[VolumeAttachment] = []
        self.volumes: dict[tuple[str, str], PersistentVolume] = {}
        self.match = MachineMatch(MACHINE)
        self.machines = [MACHINE]  # in the inventory
        self.power_off: bool | None = False
        self.power: Power | None = None  # instead of power_off
        self.command_error = ""
        self.answer_took = 0.0
        self.age = 0.0
        self.renewal = "r1"
        self.silent = 60.0
        self.now = 1000.0
        self.epoch = 1
        self.old: frozenset[str] = frozenset()
        self.switched: frozenset[str] = frozenset()
        self.refused: dict[str, str] = {}
        self.members_off: frozenset[tuple[str, str]] = frozenset()
        self.out_of_service: frozenset[str] = frozenset()
        self.powered_on_at = -1000.0
        self.neighbors: dict[PodQuery, Sequence[Pod] | None] = {}
        self.booting: bool | None = None
        self.power_offs: tuple[float, ...] = ()
        self.silent_nodes: frozenset[str] = frozenset()
        self.watched = 1000.0
        self.problem = self.paused = ""
        self.unread = self.unseen = ""
        self.evidence = PodEvidence(("system UUID of the BMC",))
        self.taints = False
        self.follows = False  # has this process watched the record, if it is that of another leader?
        self.record: Remediation | None = None

    def step(self, seconds: float = 0.0) -> Decision:
        self.now += seconds
        nodes = [*([] if self.node is None else [self.node]), *self.others]
        view = ClusterView(
            cluster="c", nodes=nodes, now=self.now, clock=self.now, epoch=self.epoch, problem=self.problem,
            silent=self.silent_nodes, switched=self.switched, old=self.old, taints=self.taints,
            watched=self.watched, paused=self.paused, members_off=self.members_off,
            out_of_service=self.out_of_service, powered_on_at=self.powered_on_at,
        )  # fmt: skip
        known = [*self.machines, *([] if self.match.machine is None else [self.match.machine])]
        stored = {one.uuid: one for one in known}
        settled = stored.get(self.record.machine) if self.record is not None and self.record.settled else None
        reading = NodeReading(
            name="n1", node=self.node, renewal=self.renewal, silent=self.silent, match=self.match, settled=settled,
            power=self.power or _POWER[self.power_off], power_error="timed out",
            command_error=self.command_error, asked_at=self.now - self.answer_took,
            read_at=self.now, pods=self.pods, attachments=self.attachments,
            volumes=self.volumes, refused=self.refused, unread=self.unread, unseen=self.unseen,
            evidence=self.evidence, age=self.age, neighbors=self.neighbors, booting=self.booting,
            power_offs=self.power_offs,
        )  # fmt: skip
        if self.follows and self.record is not None:
            reading = msgspec.structs.replace(reading, followed=self.now - self.record.updated_at)
        self.reading = reading
        decision = decide(view, reading, self.record, self.rules, lambda: "record-1")
        # What is said on the Node is a matter of its own.
        self.conditions = [one.message for one in decision.effects if isinstance(one, SetCondition)]
        effects = tuple(one for one in decision.effects if not isinstance(one, SetCondition))
        decision = msgspec.structs.replace(decision, effects=effects)
        self.record = None if decision.record is None or decision.record.ended else decision.record
        return decision

    def set(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def commanded(self) -> Case:
        """Wait out the dwell time, after which its machine is commanded off, where that is allowed."""
        self.step()
        assert self.step(20.0).effects == (PowerOff(),) or not self.rules.power_off
        return self

    def seen_off(self) -> Case:
        """Command it off, and see it off once."""
        self.commanded().power_off = True
        self.step(1.0)
        return self

    def proven(self) -> Decision:
        """Power it off, and see it off twice; return the decision that forces."""
        return self.seen_off().step(5.0)

    def freed(self) -> Decision:
        """Let the pods be gone; return the decision that notices it."""
        self.pods = []
        return self.step(1.0)
