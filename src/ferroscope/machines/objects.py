"""The objects of Kubernetes as the controller reads them, above all the custom resource Machine. Pure.

The structs have the objects' own shape and names; what they do not declare is dropped. The schema that the API server
enforces is in deploy/kubernetes/crds; a test compares both.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, Literal

import msgspec

GROUP: Final = "ferroscope.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "Machine"
PLURAL: Final = "machines"

FINALIZER: Final = f"{GROUP}/node"
# Annotations that order something once per value; an empty one is removed when it is done.
INSPECT: Final = (f"{GROUP}/inspect", "ferroscope/inspect")
APPLY: Final = (f"{GROUP}/apply",)
# The label of Machines that the controller has made for nodes which were enrolled elsewhere.
OBSERVED: Final = f"{GROUP}/observed"

# The node of a Machine without ``spec.uuid`` is found by this alone, whatever was lost in between.
_NAMESPACE: Final = uuid.UUID("5c0d1f5e-3f57-4b0e-9a86-5d2a1b0c7e64")

Policy = Literal["Manage", "Observe"]
OnDelete = Literal["Delete", "Keep"]


class Bmc(msgspec.Struct, frozen=True, rename="camel"):
    """How to reach the BMC. ``options`` are further keys of ``driver_info``, without secrets."""

    driver: str = ""
    address: str = ""
    credentials_secret: str = ""
    options: dict[str, str] = {}


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What a node shall be. ``name``: of the node, the object's own if it is empty; ``uuid``: of an existing node."""

    bmc: Bmc = Bmc()
    macs: list[str] = []
    name: str = ""
    uuid: str = ""
    description: str | None = None
    resource_class: str | None = None
    labels: dict[str, str] | None = None
    policy: Policy = "Manage"
    on_delete: OnDelete = "Delete"


class Order(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of an annotation that orders something. ``before``: the newest inspection when it was found."""

    value: str = ""
    before: str = ""
    done: bool = False


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of the status that the controller itself depends on; it writes more (see ``mapping.status_of``).

    ``applied``: by field, the value on which object and node agreed last, as text.
    """

    node_uuid: str = msgspec.field(default="", name="nodeUUID")
    applied: dict[str, str] | None = None
    credentials: str = ""
    inspect: Order | None = None
    apply: Order | None = None
    hardware_data: str = ""
    conditions: list[dict[str, Any]] = []


class OwnerReference(msgspec.Struct, frozen=True):
    uid: str = ""


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata`` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Machine(msgspec.Struct, frozen=True):
    """A Machine; ``status`` is as it was read, undecoded, so that it can be compared with the one to be written."""

    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: dict[str, Any] = {}

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def node(self) -> str:
        """The UUID of its node."""
        return self.spec.uuid.lower() or str(uuid.uuid5(_NAMESPACE, self.metadata.uid))

    @property
    def node_name(self) -> str:
        return self.spec.name or self.metadata.name

    @property
    def manages(self) -> bool:
        return self.spec.policy == "Manage"

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def age(self) -> tuple[str, str]:
        """What orders Machines that claim the same node: the oldest has it."""
        return self.metadata.creation_timestamp, self.metadata.uid

    def known(self) -> Status:
        """Return the status; an empty one if somebody has written nonsense into it."""
        try:
            return msgspec.convert(self.status, Status)
        except msgspec.ValidationError:
            return Status()

    def order(self, names: tuple[str, ...]) -> tuple[str, str] | None:
        """Return name and value of the annotation that orders something; None without one."""
        found = ((name, self.metadata.annotations[name]) for name in names if name in self.metadata.annotations)
        return next(found, None)


class Secret(msgspec.Struct, frozen=True):
    """A Secret; its values are base64."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class HardwareData(msgspec.Struct, frozen=True):
    """A HardwareData object of Metal3, its specification undecoded."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}
