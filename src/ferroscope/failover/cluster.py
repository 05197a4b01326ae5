"""What the controller knows about a cluster: the parts of Kubernetes' objects that it reads. Pure.

The structs have the objects' own shape and names, so that msgspec decodes the API's answers into them, and drops all
else: a node of 10 kB becomes one of some hundred bytes. A field that the API leaves out has its default.
Source: the Kubernetes API reference, core/v1, storage/v1 and coordination/v1.
"""

from __future__ import annotations

from typing import Final

import msgspec

# Annotations that operators set on a Node.
PREFIX: Final = "ferroscope.io"
PAUSED: Final = f"{PREFIX}/failover-paused"
CONFIRMED_OFF: Final = f"{PREFIX}/confirmed-off"
MACHINE: Final = f"{PREFIX}/machine"
SERIAL: Final = f"{PREFIX}/serial-number"

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_MIRROR: Final = "kubernetes.io/config.mirror"
# The reason of a node whose kubelet has never reported anything.
_NEVER: Final = "NodeStatusNeverUpdated"
_NO_SCHEDULE: Final = ("NoSchedule", "NoExecute")


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata`` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str = msgspec.field(default="", name="bootID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class _NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[Taint] | None = None


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[Condition] | None = None
    node_info: NodeInfo = NodeInfo()


class KubeNode(msgspec.Struct, frozen=True, rename="camel"):
    """A Node of Kubernetes."""

    metadata: Meta = Meta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def boot_id(self) -> str:
        return self.status.node_info.boot_id

    @property
    def taints(self) -> list[Taint]:
        return self.spec.taints or []

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def _condition(self) -> Condition:
        found = [one for one in self.status.conditions or () if one.type == "Ready"]
        return found[0] if found else Condition()

    @property
    def ready(self) -> bool:
        return self._condition.status == "True"

    @property
    def failed(self) -> bool:
        """Whether the node was ready once and is not any more: its condition is False, Unknown or missing."""
        return not self.ready and self._condition.reason != _NEVER and bool(self.boot_id)

    @property
    def kubelet_reports(self) -> bool:
        """Whether the kubelet itself says that the node is not ready."""
        return self._condition.status == "False"

    @property
    def paused(self) -> bool:
        return self.annotations.get(PAUSED, "false").lower() not in ("", "false", "no")

    @property
    def out_of_service(self) -> bool:
        return any(one.key == OUT_OF_SERVICE for one in self.taints)


class Toleration(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


class Requirement(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def matches(self, values: dict[str, str]) -> bool:
        wanted, present = self.values or [], values.get(self.key)
        if self.operator == "In":
            return present in wanted
        if self.operator == "NotIn":
            return present not in wanted
        if self.operator == "Exists":
            return present is not None
        if self.operator == "DoesNotExist":
            return present is None
        try:
            have, limit = int(present or ""), int(wanted[0])
        except (ValueError, IndexError):
            return False
        return have > limit if self.operator == "Gt" else self.operator == "Lt" and have < limit


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class _Required(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None
    affinity: _Affinity | None = None


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
    def bound_to_node(self) -> bool:
        """Whether it belongs to its node for good: a mirror of a static pod, or a pod of a DaemonSet."""
        if _MIRROR in (self.metadata.annotations or {}):
            return True
        return any(one.kind in ("DaemonSet", "Node") for one in self.metadata.owner_references or ())

    def fits(self, node: KubeNode) -> bool:
        """Whether the scheduler's rules about nodes allow the pod there; its free capacity is not known here."""
        if not node.ready or node.spec.unschedulable or node.metadata.deletion_timestamp is not None:
            return False
        tolerations = self.spec.tolerations or ()
        for taint in node.taints:
            if taint.effect in _NO_SCHEDULE and not any(one.tolerates(taint) for one in tolerations):
                return False
        if any(node.labels.get(key) != value for key, value in (self.spec.node_selector or {}).items()):
            return False
        affinity = self.spec.affinity and self.spec.affinity.node_affinity
        if not affinity or affinity.required is None:
            return True
        fields = {"metadata.name": node.name}
        return any(
            all(one.matches(node.labels) for one in term.match_expressions or ())
            and all(one.matches(fields) for one in term.match_fields or ())
            and bool(term.match_expressions or term.match_fields)
            for term in affinity.required.node_selector_terms or ()
        )


class _AttachmentSpec(msgspec.Struct, frozen=True, rename="camel"):
    attacher: str = ""
    node_name: str = ""


class Attachment(msgspec.Struct, frozen=True, rename="camel"):
    """A VolumeAttachment."""

    metadata: Meta = Meta()
    spec: _AttachmentSpec = _AttachmentSpec()

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class KubeletLease(msgspec.Struct, frozen=True, rename="camel"):
    """The Lease with which a kubelet says that it lives; its name is that of the node."""

    metadata: Meta = Meta()
    spec: _LeaseSpec = _LeaseSpec()

    @property
    def renewal(self) -> str:
        """What changes with each renewal."""
        return self.spec.renew_time or ""
