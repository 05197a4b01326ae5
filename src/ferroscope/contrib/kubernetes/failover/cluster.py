"""The parts of Kubernetes' objects that the controller reads. Pure.

The structs have the objects' own shape and names, so msgspec decodes the API's answers into them and drops the rest: a
node of 10 kB becomes some hundred bytes. A field that the API leaves out has its default.
Source: the Kubernetes API reference, core/v1, storage/v1 and coordination/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ferroscope.contrib.kubernetes.failover.scheduling import Taint, amount_of

# Annotations that operators set on a Node.
PREFIX: Final = "ferroscope.io"
PAUSED: Final = f"{PREFIX}/failover-paused"
CONFIRMED_OFF: Final = f"{PREFIX}/confirmed-off"
MACHINE: Final = f"{PREFIX}/machine"
SERIAL: Final = f"{PREFIX}/serial-number"

# The condition with which we say on a Node that its machine stays off.
LEFT_OFF: Final = f"{PREFIX}/MachineLeftOff"

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
# The reason of a node whose kubelet has never reported anything.
_NEVER: Final = "NodeStatusNeverUpdated"
_CONTROL_PLANE: Final = frozenset(
    f"node-role.kubernetes.io/{role}" for role in ("control-plane", "controlplane", "master", "etcd")
)
# Set by what drains a node beside kubectl, which cordons it: the cluster autoscaler, and medik8s' maintenance operator.
_DRAINS: Final = frozenset({"ToBeDeletedByClusterAutoscaler", "medik8s.io/drain"})


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
    deletion_grace_period_seconds: int | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None


class NodeCondition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str = msgspec.field(default="", name="bootID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class _NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[Taint] | None = None


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[NodeCondition] | None = None
    allocatable: dict[str, str | int | float] | None = None
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

    def _of_type(self, name: str) -> NodeCondition:
        conditions = [condition for condition in self.status.conditions or () if condition.type == name]
        return conditions[0] if conditions else NodeCondition()

    @property
    def _condition(self) -> NodeCondition:
        return self._of_type("Ready")

    @property
    def unready_since(self) -> str:
        """When it was marked as not ready, as RFC 3339; "" if unknown."""
        return self._condition.last_transition_time or ""

    @property
    def left_off(self) -> str:
        """The message of our condition that its machine stays off, "" without one."""
        condition = self._of_type(LEFT_OFF)
        return condition.message if condition.status == "True" else ""

    @property
    def control_plane(self) -> bool:
        """Whether it runs a part of the control plane, as its labels or taints say."""
        return not _CONTROL_PLANE.isdisjoint({*self.labels, *(taint.key for taint in self.taints)})

    @property
    def is_drained(self) -> bool:
        """Whether it is cordoned, or is being drained."""
        return self.spec.unschedulable or any(taint.key in _DRAINS for taint in self.taints)

    def is_large_enough(self, requests: Mapping[str, float]) -> bool:
        """Whether it has this much of each resource, free or not. A node that reports nothing is large enough."""
        has = self.status.allocatable
        return not has or all(amount_of(has.get(name, 0)) >= amount for name, amount in requests.items())

    @property
    def ready(self) -> bool:
        return self._condition.status == "True"

    @property
    def has_failed(self) -> bool:
        """Whether the node was ready once and is not any more: its condition is False, Unknown or missing."""
        return not self.ready and self._condition.reason != _NEVER and bool(self.boot_id)

    @property
    def kubelet_reports(self) -> bool:
        """Whether the kubelet itself says that the node is not ready."""
        return self._condition.status == "False"

    @property
    def is_paused(self) -> bool:
        return self.annotations.get(PAUSED, "false").lower() not in ("", "false", "no")

    @property
    def confirmed_off(self) -> bool:
        """Whether its annotation says that the machine of this boot is off."""
        return bool(self.boot_id) and self.annotations.get(CONFIRMED_OFF) == self.boot_id

    @property
    def out_of_service(self) -> bool:
        return any(taint.key == OUT_OF_SERVICE for taint in self.taints)


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    renew_time: str | None = None


class KubeletLease(msgspec.Struct, frozen=True, rename="camel"):
    """The Lease with which a kubelet says that it lives; its name is that of the node."""

    metadata: Meta = Meta()
    spec: _LeaseSpec = _LeaseSpec()

    @property
    def renewal(self) -> str:
        """What changes with each renewal."""
        return self.spec.renew_time or ""
