"""The fields of the search query language: those of each part of a machine, and those of the node itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import PUBLISHED_STATES
from ferroscope_client.hardware.readings import Kind

Unit = Literal["", "bytes", "bits/s", "hertz", "transfers/s"]


class IndexedField(msgspec.Struct, frozen=True):
    """A field of a part: its column and description; ``factor``: converts a query's number to ``unit``.

    ``own``: a field of the node itself; the column is a field of ``core.model.Node``, or, if it is boolean, one of its
    ``attributes``, which a node has or has not. ``among``: all values that there are. ``coded``: the field is a code in
    parentheses within the text of the column.
    """

    column: str
    about: str
    unit: Unit = ""
    factor: float = 1.0
    boolean: bool = False
    vendor: bool = False
    moment: bool = False
    own: bool = False
    among: tuple[str, ...] = ()
    coded: bool = False

    @property
    def is_text(self) -> bool:
        return not (self.boolean or self.moment) if self.own else self.column.startswith("t")


_BYTES_PER_GIB: Final = float(2**30)

KINDS: Final[Mapping[Kind, Mapping[str, IndexedField]]] = {
    "node": {
        "vendor": IndexedField("t1", "Manufacturer", vendor=True),
        "product": IndexedField("t2", "Its model"),
        "serial": IndexedField("t3", "Serial number"),
        "firmware": IndexedField("t4", "Firmware (BIOS) version"),
        "boot_mode": IndexedField("t5", "Boot mode: bios or uefi", among=("bios", "uefi")),
        "hostname": IndexedField("t6", "Host name of the ramdisk"),
        "bmc": IndexedField("t7", "BMC address"),
        "memory": IndexedField("n1", "All memory", "bytes"),
        "memory_gb": IndexedField("n1", "Total memory, in GiB", "bytes", factor=_BYTES_PER_GIB),
        "memory_mb": IndexedField("n1", "Total memory, in MiB", "bytes", factor=float(2**20)),
        "storage": IndexedField("n2", "Total size of all disks", "bytes"),
    },
    "cpu": {
        "model": IndexedField("t1", "Processor model name"),
        "arch": IndexedField("t2", "Architecture, such as x86_64"),
        "count": IndexedField("n1", "Logical processors"),
        "sockets": IndexedField("n2", "Number of sockets, if reported"),
        "frequency": IndexedField("n3", "Maximum clock rate", "hertz"),
    },
    "nic": {
        "name": IndexedField("t1", "Name in the ramdisk"),
        "mac": IndexedField("t2", "MAC address"),
        "vendor": IndexedField("t3", "Vendor: a name such as mellanox, or the PCI ID", vendor=True),
        "product": IndexedField("t4", "PCI ID of the product"),
        "driver": IndexedField("t5", "Kernel driver"),
        "switch": IndexedField("t6", "Switch at the other end, from LLDP"),
        "port": IndexedField("t7", "Port of the switch, from LLDP"),
        "speed": IndexedField("n1", "Link speed", "bits/s"),
        "link": IndexedField("n2", "Whether there is a link", boolean=True),
        "vlan": IndexedField("n3", "Untagged VLAN of the switch's port, from LLDP"),
        "mtu": IndexedField("n4", "Largest frame of the switch's port, from LLDP"),
    },
    "disk": {
        "name": IndexedField("t1", "Name in the ramdisk"),
        "vendor": IndexedField("t2", "Vendor", vendor=True),
        "model": IndexedField("t3", "Model"),
        "serial": IndexedField("t4", "Serial number"),
        "wwn": IndexedField("t5", "World wide name, with extension if any"),
        "type": IndexedField("t6", "hdd, ssd or nvme", among=("hdd", "ssd", "nvme")),
        "size": IndexedField("n1", "Size", "bytes"),
    },
    "dimm": {
        "slot": IndexedField("t1", "Slot"),
        "vendor": IndexedField("t2", "Vendor", vendor=True),
        "model": IndexedField("t3", "Part number"),
        "serial": IndexedField("t4", "Serial number"),
        "type": IndexedField("t5", "Type, such as ddr4"),
        "size": IndexedField("n1", "Size", "bytes"),
        "speed": IndexedField("n2", "Speed", "transfers/s"),
    },
    "gpu": {
        "vendor": IndexedField("t1", "Vendor: a name such as nvidia, or the PCI ID", vendor=True),
        "product": IndexedField("t2", "PCI ID of the product"),
        "address": IndexedField("t3", "PCI address"),
    },
    "firmware": {
        "component": IndexedField("t1", "What it belongs to: bios, bmc, nic, disk, controller, power supply or other"),
        "name": IndexedField("t2", "Name of the component"),
        "model": IndexedField("t3", "Model of the component"),
        "version": IndexedField("t4", "Version"),
        "vendor": IndexedField("t5", "Vendor", vendor=True),
        "serial": IndexedField("t6", "Serial number of the component"),
    },
    "health": {
        "component": IndexedField(
            "t1", "drive, storage, memory, processor, fan or power supply; machine: all together"
        ),
        "name": IndexedField("t2", "Name of the component"),
        "state": IndexedField(
            "t3",
            "warning or critical, as the BMC reports it; of the machine also ok",
            among=("ok", "warning", "critical"),
        ),
        "problem": IndexedField("t4", "What is wrong, such as 'failure predicted'"),
        "serial": IndexedField("t5", "Serial number of the component"),
        "complete": IndexedField("n1", "Of the machine: whether the BMC answered everything in time", boolean=True),
    },
    "result": {
        "collector": IndexedField("t1", "Collector of the ramdisk, such as smart"),
        "name": IndexedField("t2", "Name of the value in its JSON"),
        "value": IndexedField("t3", "The value, if it is a text, or true or false"),
        "number": IndexedField("n1", "The value, if it is a number"),
        "exit_code": IndexedField("n2", "Exit code of the collector"),
        "error": IndexedField("t4", "Why the collector failed"),
    },
}

OWN: Final[Mapping[str, IndexedField]] = {
    "name": IndexedField("name", "Node name", own=True),
    "uuid": IndexedField("uuid", "Node UUID", own=True),
    "state": IndexedField(
        "provision_state", "Provision state, such as available or inspect-failed", own=True, among=PUBLISHED_STATES
    ),
    "power": IndexedField(
        "power_state", "Power state: on or off; none if unknown", own=True, among=("power on", "power off")
    ),
    "driver": IndexedField("driver", "BMC driver", own=True),
    "owner": IndexedField("owner", "Owner", own=True),
    "resource_class": IndexedField("resource_class", "Resource class", own=True),
    "error": IndexedField("last_error", "Last error", own=True),
    "reason": IndexedField(
        "last_error",
        "Reason code of the last error, such as timeout",
        own=True,
        coded=True,
        among=tuple(map(str, Reason)),
    ),
    "maintenance": IndexedField("maintenance", "Whether the node is in maintenance", own=True, boolean=True),
    "discovered": IndexedField("auto_discovered", "Whether the node was discovered", own=True, boolean=True),
    "inbox": IndexedField("inbox", "Whether the node awaits approval in the inbox", own=True, boolean=True),
    "deviating": IndexedField("deviations", "Whether the hardware is not as expected", own=True, boolean=True),
    "orphaned": IndexedField(
        "orphaned_at", "Since when the attached registry does not list the node", own=True, moment=True
    ),
    "created": IndexedField("created_at", "Time of enrollment", own=True, moment=True),
    "inspected": IndexedField("inspection_finished_at", "End of the last inspection", own=True, moment=True),
}
"""The fields of the node itself, whether it was inspected or not."""

SPELLED: Final = {field.column: name for name, field in OWN.items() if field.column != name and not field.coded}
"""The fields of nodes in the API that have another name in queries; both are understood."""

LABEL: Final = "label"


def label(key: str) -> IndexedField:
    """Return the field ``label.KEY``; keys, like all texts, are compared in lower case."""
    return IndexedField(f"{LABEL}.{key.lower()}", "Label of the node", own=True)


def fields() -> list[tuple[str, str, str, str]]:
    """Return every field for the reference: syntax, type, unit and description."""
    rows: list[tuple[str, str, str, str]] = []
    for kind, kind_fields in KINDS.items():
        for name, field in kind_fields.items():
            syntax = name if kind == "node" else f"{kind}.{name}"
            type_ = "text" if field.is_text else "yes or no" if field.boolean else "number"
            rows.append((syntax, type_, "" if field.factor != 1.0 else field.unit, field.about))
    for name, field in OWN.items():
        type_ = "text" if field.is_text else "yes or no" if field.boolean else "time"
        rows.append((name, type_, "", field.about))
    return [*rows, (f"{LABEL}.KEY", "text", "", "Label of the node; has label.KEY: whether there is one")]
