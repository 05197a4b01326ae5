"""The objects of Kubernetes as the controller reads them, above all the custom resource Machine. Pure.

The structs have the objects' own shape and names; what they do not declare is dropped. The schema that the API server
enforces is in deploy/kubernetes/crds; a test compares both.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
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
    """The parts of the status that the controller itself depends on; it writes more (see ``look.py``).

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


Document = dict[str, Any]

_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_VLANS: Final = 4094


def specification(inventory: Any, plugin_data: Any) -> Document:
    """Return ``spec`` of the HardwareData; what is unknown or not of its type is left out."""
    inventory, plugin_data = _document(inventory), _document(plugin_data)
    system = _document(inventory.get("system_vendor"))
    bios, cpu = _document(system.get("firmware")), _document(inventory.get("cpu"))
    memory = _document(inventory.get("memory"))
    pxe = _text(_document(inventory.get("boot")), "pxe_interface")
    lldp = _document(plugin_data.get("parsed_lldp"))
    found = {
        "hostname": _text(inventory, "hostname"),
        "systemVendor": _filled({
            "manufacturer": _text(system, "manufacturer"),
            "productName": _text(system, "product_name"),
            "serialNumber": _text(system, "serial_number"),
        }),
        "firmware": _filled({"bios": _filled({
            "vendor": _text(bios, "vendor"), "version": _text(bios, "version"), "date": _text(bios, "build_date"),
        })}),
        "cpu": _filled({
            "arch": _text(cpu, "architecture"),
            "model": _text(cpu, "model_name"),
            "clockMegahertz": _number(cpu.get("frequency"), float),
            "count": _number(cpu.get("count"), int),
            "flags": sorted(one for one in _list(cpu.get("flags")) if isinstance(one, str)),
        }),
        "ramMebibytes": _number(memory.get("physical_mb"), int),
        "nics": [nic for one in _list(inventory.get("interfaces")) for nic in _nics(_document(one), pxe, lldp)],
        "storage": [disk for one in _list(inventory.get("disks")) if (disk := _disk(_document(one)))],
    }  # fmt: skip
    return {"hardware": _filled(found)}


def _nics(nic: Document, pxe: str | None, lldp: Document) -> list[Document]:
    mac, name = _text(nic, "mac_address"), _text(nic, "name")
    if mac is None or not _MAC.fullmatch(mac):
        return []
    heard = _document(lldp.get(name or ""))
    ids = [one for key in ("vendor", "product") if (one := _text(nic, key))]
    speed, vlan = _number(nic.get("speed_mbps"), int), _vlan(heard.get("switch_port_untagged_vlan_id"))
    common = _filled({
        "name": name,
        "mac": mac.lower(),
        "model": " ".join(ids) or None,
        "pciAddress": _text(nic, "pci_address"),
        "pxe": pxe is not None and pxe.lower().removeprefix("01-").replace("-", ":") == mac.lower(),
        "speedGbps": None if speed is None else speed // 1000,
        "vlanId": vlan,
        "vlans": [
            _filled({"id": ident, "name": _text(one, "name")})
            for one in map(_document, _list(heard.get("switch_port_vlans")))
            if (ident := _vlan(one.get("id"))) is not None
        ],
        "lldp": _filled({
            "switchID": _text(heard, "switch_chassis_id"),
            "portID": _text(heard, "switch_port_id"),
            "switchSystemName": _text(heard, "switch_system_name"),
        }),
    })  # fmt: skip
    addresses = [one for key in ("ipv4_address", "ipv6_address") if (one := _text(nic, key))]
    return [common | {"ip": one} for one in addresses] or [common]


def _disk(disk: Document) -> Document:
    name, path = _text(disk, "name"), _text(disk, "by_path")
    rotational = disk.get("rotational") if isinstance(disk.get("rotational"), bool) else None
    kind = None if rotational is None else "HDD" if rotational else "NVME" if "nvme" in (name or "") else "SSD"
    return _filled({
        "name": path or name,
        "alternateNames": [one for one in (name, path) if one],
        "model": _text(disk, "model"),
        "vendor": _text(disk, "vendor"),
        "serialNumber": _text(disk, "serial"),
        "sizeBytes": _number(disk.get("size"), int),
        "rotational": rotational,
        "type": kind,
        "hctl": _text(disk, "hctl"),
        "wwn": _text(disk, "wwn"),
        "wwnVendorExtension": _text(disk, "wwn_vendor_extension"),
        "wwnWithExtension": _text(disk, "wwn_with_extension"),
    })  # fmt: skip


def _document(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(document: Document, key: str) -> str | None:
    value = document.get(key)
    return value[:1024] if isinstance(value, str) and value else None


def _number(value: Any, kind: Callable[[Any], Any]) -> Any:
    """Return a number of this kind, at least 0; IPA reports some of them as texts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**63 else None


def _vlan(value: Any) -> int | None:
    number = _number(value, int)
    return number if number is not None and number <= _VLANS else None


def _filled(document: Document) -> Document:
    return {name: value for name, value in document.items() if value not in (None, {}, [])}
