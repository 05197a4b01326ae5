"""What is on a node: pods, their volumes, and VolumeAttachments, in the shape that ``cluster`` explains. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import KubeNode, Meta
from ferroscope.contrib.kubernetes.failover.scheduling import LabelSelector, NodeSelector, Toleration, amount_of

_MIRROR: Final = "kubernetes.io/config.mirror"
_NO_SCHEDULE: Final = ("NoSchedule", "NoExecute")


class _NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    """A term of a pod's affinity to other pods: those with these labels, in the same part of the topology."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class _PodAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: list[PodTerm] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity = _PodAffinity()
    pod_anti_affinity: _PodAffinity = _PodAffinity()


class _Resources(msgspec.Struct, frozen=True, rename="camel"):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    resources: _Resources = _Resources()

    @property
    def requests(self) -> dict[str, float]:
        """Its requests; a limit without a request counts as one."""
        named = {**(self.resources.limits or {}), **(self.resources.requests or {})}
        return {name: amount_of(quantity) for name, quantity in named.items()}


class _ClaimSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class _PodVolume(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: dict[str, msgspec.Raw] | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: _Affinity | None = None
    volumes: list[_PodVolume] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod."""

    metadata: Meta = Meta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def awaits_finalizers(self) -> bool:
        """Whether it was deleted without grace already, and only finalizers keep the object: nobody starts it again."""
        meta = self.metadata
        return self.terminating and meta.deletion_grace_period_seconds == 0 and bool(meta.finalizers)

    @property
    def title(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def claims(self) -> list[str]:
        """The names of the claims, in its namespace, of its persistent volumes."""
        names = []
        for volume in self.spec.volumes or ():
            if volume.persistent_volume_claim is not None:
                names.append(volume.persistent_volume_claim.claim_name)
            elif volume.ephemeral is not None:
                names.append(f"{self.metadata.name}-{volume.name}")
        return names

    @property
    def requests(self) -> dict[str, float]:
        """What it needs of each resource: all its containers together, or the init container that needs the most."""
        total: dict[str, float] = defaultdict(float)
        for container in self.spec.containers or ():
            for name, amount in container.requests.items():
                total[name] += amount
        for container in self.spec.init_containers or ():
            for name, amount in container.requests.items():
                total[name] = max(total[name], amount)
        return total

    @property
    def affinity_to_pods(self) -> list[PodTerm]:
        """The terms that name the pods beside which it must run."""
        affinity = self.spec.affinity
        return (affinity.pod_affinity.required if affinity else None) or []

    @property
    def anti_affinity_to_pods(self) -> list[PodTerm]:
        """The terms that name the pods beside which it must not run."""
        affinity = self.spec.affinity
        return (affinity.pod_anti_affinity.required if affinity else None) or []

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself."""
        return self.status.phase not in ("Succeeded", "Failed")

    @property
    def bound_to_node(self) -> bool:
        """Whether it cannot leave its node: a mirror of a static pod, or a pod of a DaemonSet."""
        if _MIRROR in (self.metadata.annotations or {}):
            return True
        return any(owner.kind in ("DaemonSet", "Node") for owner in self.metadata.owner_references or ())

    def fits(self, node: KubeNode) -> bool:
        """Whether the scheduler's rules about nodes allow the pod there; its size is not compared here."""
        if not node.ready or node.spec.unschedulable or node.metadata.deletion_timestamp is not None:
            return False
        tolerations = self.spec.tolerations or ()
        for taint in node.taints:
            if taint.effect in _NO_SCHEDULE and not any(toleration.tolerates(taint) for toleration in tolerations):
                return False
        if any(node.labels.get(key) != value for key, value in (self.spec.node_selector or {}).items()):
            return False
        affinity = self.spec.affinity and self.spec.affinity.node_affinity
        if not affinity or affinity.required is None:
            return True
        return affinity.required.matches(node.name, node.labels)


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class VolumeClaim(msgspec.Struct, frozen=True, rename="camel"):
    """A PersistentVolumeClaim."""

    metadata: Meta = Meta()
    spec: _ClaimSpec = _ClaimSpec()


class _VolumeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: NodeSelector | None = None


class _VolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _VolumeAffinity | None = None


class PersistentVolume(msgspec.Struct, frozen=True, rename="camel"):
    """A PersistentVolume."""

    metadata: Meta = Meta()
    spec: _VolumeSpec = _VolumeSpec()

    @property
    def name(self) -> str:
        return self.metadata.name

    def reaches(self, node: KubeNode) -> bool:
        """Whether the volume can be used on the node: local ones only on their own."""
        affinity = self.spec.node_affinity
        return affinity is None or affinity.required is None or affinity.required.matches(node.name, node.labels)


class _AttachmentSource(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_name: str | None = None


class _AttachmentSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    source: _AttachmentSource = _AttachmentSource()


class VolumeAttachment(msgspec.Struct, frozen=True, rename="camel"):
    """A VolumeAttachment."""

    metadata: Meta = Meta()
    spec: _AttachmentSpec = _AttachmentSpec()

    @property
    def volume(self) -> str:
        """The name of its PersistentVolume, "" if it has another source."""
        return self.spec.source.persistent_volume_name or ""

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None
