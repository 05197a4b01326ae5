"""The search index: its fields, and the rows in which a store keeps them.

A row is one part; ``KINDS`` defines its columns ``t1`` ... and ``n1`` .... Texts are folded: lower case, single spaces,
255 characters, known PCI vendors by name. The texts of a query are folded in the same way, so that all databases
compare alike. The summary, which is displayed, keeps the original texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from ferroscope.core.reasons import Reason
from ferroscope.core.states import PUBLISHED_STATES
from ferroscope.hardware import parts as hardware
from ferroscope.hardware.parts import Kind
from ferroscope.hardware.sources import VENDORS

VERSION: Final = b"5"
"""Part of the digest; increased by a release that derives or stores different rows for the same data."""

MAX_TEXT: Final = 255

Unit = Literal["", "bytes", "bits/s", "hertz", "transfers/s"]


class IndexRow(msgspec.Struct, frozen=True, array_like=True):
    """One part of one node, as stored."""

    kind: Kind
    position: int
    t1: str | None = None
    t2: str | None = None
    t3: str | None = None
    t4: str | None = None
    t5: str | None = None
    t6: str | None = None
    t7: str | None = None
    n1: float | None = None
    n2: float | None = None
    n3: float | None = None
    n4: float | None = None


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
# Components with firmware in the summary; a machine has some dozen kinds.
_MAX_COMPONENTS: Final = 48

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


def fold(text: str, *, vendor: bool = False) -> str:
    """Return the text as stored and compared."""
    return (_folded_vendor if vendor else _folded)(text if len(text) <= MAX_TEXT else _fold(text))


def _fold(text: str) -> str:
    return " ".join(text.lower().split()).replace("\0", "")[:MAX_TEXT].rstrip()


def _fold_vendor(text: str) -> str:
    folded = _fold(text)
    return VENDORS.get(folded.removeprefix("0x"), folded)


# Machines of a site have most of their texts in common.
_folded: Final = lru_cache(maxsize=4096)(_fold)
_folded_vendor: Final = lru_cache(maxsize=1024)(_fold_vendor)


def text(row: IndexRow, field: str) -> str | None:
    """Return the value of a text field of the part; see ``KINDS``."""
    value: str | None = getattr(row, KINDS[row.kind][field].column)
    return value


def number(row: IndexRow, field: str) -> float | None:
    """Return the value of a numeric field of the part, in its unit; see ``KINDS``."""
    value: float | None = getattr(row, KINDS[row.kind][field].column)
    return value


class Learned(msgspec.Struct, frozen=True):
    """The result of an inspection for searches: the index rows, the summary for lists, and their digest.

    The summary has original texts, sizes in bytes, the number of parts of each kind, and the machine's IP address.
    """

    rows: list[IndexRow]
    summary: dict[str, Any]
    digest: str


# No machine has more of anything, and the digest's encoding holds no larger numbers.
_MAX_NUMBER: Final = 2.0**63


def learn(inventory: Any, plugin_data: Any) -> Learned:
    """Return the search data of a machine; the same data always gives the same result."""
    rows: list[IndexRow] = []
    parts = hardware.parts(inventory, plugin_data)
    counts: dict[str, int] = {}
    for part in parts:
        position = counts.get(part.kind, 0)
        counts[part.kind] = position + 1
        rows.append(_index_row(part, position))
    summary = _summary(parts, counts)
    digest = _digest(rows, summary)
    # Not a part of the digest: DHCP may give the machine a different address each time.
    address = hardware.ip(inventory)
    return Learned(rows, summary if address is None else summary | {"ip": address}, digest)


def _digest(rows: Sequence[IndexRow], summary: Mapping[str, Any]) -> str:
    """Return a digest of the rows, of 64 characters."""
    digest = hashlib.sha256(VERSION + msgspec.msgpack.encode((rows, summary), order="sorted")).hexdigest()
    return f"w{digest[1:]}"  # as earlier releases mark that the rows have their words


def _summary(parts: Sequence[hardware.Part], counts: Mapping[str, int]) -> dict[str, Any]:
    node = parts[0].fields
    cpu = next((part.fields for part in parts if part.kind == "cpu"), {})
    texts = {name: node.get(name) for name in ("vendor", "product", "serial", "firmware")}
    texts |= {"cpu": cpu.get("model"), "arch": cpu.get("arch")}
    numbers = {"cpus": cpu.get("count"), "memory": node.get("memory"), "storage": node.get("storage")}
    summary: dict[str, Any] = {name: value[:MAX_TEXT] for name, value in texts.items() if isinstance(value, str)}
    summary |= {
        name: int(value) for name, value in numbers.items() if isinstance(value, float) and abs(value) < _MAX_NUMBER
    }
    summary |= {f"{kind}s": counts[kind] for kind in ("disk", "nic", "dimm", "gpu") if counts.get(kind)}
    components = _components(parts)
    return _health(parts) | summary | ({"components": components} if components else {})


def _health(parts: Sequence[hardware.Part]) -> dict[str, Any]:
    """Return the machine's health and the number of its drives with a problem.

    They come first, where they are counted.
    """
    problems = [part.fields for part in parts if part.kind == "health"]
    state = next((part["state"] for part in problems if part["component"] == "machine"), None)
    drives = sum(part["component"] == "drive" for part in problems)
    summary = {"health": state, "failing_drives": drives}
    return {name: value for name, value in summary.items() if state and value}


def _components(parts: Sequence[hardware.Part]) -> list[dict[str, Any]]:
    """Return the firmware of each model of component once, without the BIOS."""
    components: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in parts:
        fields = part.fields
        if part.kind == "firmware" and fields["component"] != "bios":
            component: dict[str, Any] = {
                name: str(fields[name])[:MAX_TEXT] for name in ("component", "model", "version") if name in fields
            }
            components.setdefault(tuple(component.values()), component)
    return list(components.values())[:_MAX_COMPONENTS]


def _index_row(part: hardware.Part, position: int) -> IndexRow:
    columns = _COLUMNS[part.kind]
    values: dict[str, Any] = {}
    for name, value in part.fields.items():
        column, folded = columns[name]
        if type(value) is str:
            values[column] = folded(value if len(value) <= MAX_TEXT else _fold(value)) or None
        else:
            values[column] = value
    return IndexRow(part.kind, position, **values)


_COLUMNS: Final = {
    kind: {name: (field.column, _folded_vendor if field.vendor else _folded) for name, field in fields.items()}
    for kind, fields in KINDS.items()
}
