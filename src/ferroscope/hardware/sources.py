"""Combines two inventories of one machine, recording the source of each value: the ramdisk, or the BMC.

The ramdisk's values take precedence, because it sees the machine as an operating system will; the BMC's values fill the
gaps, and differences are recorded. Neither inventory is changed. Pure. List members are matched by MAC for NICs, by
serial number or name for disks.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.core.model import Document
from ferroscope_client.core import mac_addresses

IN_BAND: Final = "agent"

_MISSING: Final[tuple[Any, ...]] = (None, "", [], {})
_LISTS: Final = ("interfaces", "disks")
_NOT_COMPARED: Final = ("name", "mac_address")
# Limits the size of the result; more differences would not help anyone.
_MAX_DIFFERENCES: Final = 100
_MAX_SOURCES: Final = 20_000
# Characters. With one long name, the paths of all values below it would take gigabytes.
_MAX_PATH: Final = 200


class Hardware(msgspec.Struct):
    """``sources``: path of a value -> its source; ``differences``: path -> source -> value."""

    inventory: Document = {}
    sources: dict[str, str] = {}
    differences: dict[str, dict[str, Any]] = {}


def combine(in_band: Document, out_of_band: Document, source: str) -> Hardware:
    """Return both combined; ``source`` is the name of the source of ``out_of_band``."""
    hardware = Hardware(inventory={}, sources={}, differences={})
    for name in dict.fromkeys((*in_band, *out_of_band)):
        ours, theirs = in_band.get(name), out_of_band.get(name)
        if name in _LISTS and isinstance(ours or [], list) and isinstance(theirs or [], list):
            hardware.inventory[name] = _lists(hardware, name, ours or [], theirs or [], source)
        else:
            hardware.inventory[name] = _value(hardware, name, ours, theirs, source)
    return hardware


def _value(hardware: Hardware, path: str, ours: Any, theirs: Any, source: str) -> Any:
    if (isinstance(ours, dict) and isinstance(theirs, dict)) or _only_document(ours, theirs):
        our, their = ours or {}, theirs or {}
        return {
            key: _value(hardware, f"{path}.{key[:_MAX_PATH]}"[:_MAX_PATH], our.get(key), their.get(key), source)
            for key in dict.fromkeys((*our, *their))
        }
    if ours in _MISSING and theirs in _MISSING:
        return ours
    if ours in _MISSING:
        _note_source(hardware, path, source)
        return theirs
    _note_source(hardware, path, IN_BAND)
    if theirs not in _MISSING and theirs != ours and len(hardware.differences) < _MAX_DIFFERENCES:
        hardware.differences[path] = {IN_BAND: ours, source: theirs}
    return ours


def _note_source(hardware: Hardware, path: str, source: str) -> None:
    if len(hardware.sources) < _MAX_SOURCES:
        hardware.sources[path] = source


def _only_document(ours: Any, theirs: Any) -> bool:
    """Whether one is a document and the other has no value."""
    return (isinstance(ours, dict) and theirs in _MISSING) or (isinstance(theirs, dict) and ours in _MISSING)


def _lists(hardware: Hardware, name: str, ours: list[Any], theirs: list[Any], source: str) -> list[Any]:
    unmatched = {key: item for item in theirs if (key := _identity(name, item)) is not None}
    merged = []
    for number, item in enumerate(ours):
        key = _identity(name, item)
        partner = unmatched.pop(key, None) if key is not None else None
        # Names depend on the source, and MACs were used for matching, so neither is a difference.
        comparable = {field: value for field, value in (partner or {}).items() if field not in _NOT_COMPARED}
        merged.append(_value(hardware, f"{name}[{key or number}]"[:_MAX_PATH], item, comparable, source))
    for key, item in unmatched.items():
        merged.append(_value(hardware, f"{name}[{key}]"[:_MAX_PATH], None, item, source))
    return merged


def _identity(name: str, item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    if name == "interfaces":
        return mac_addresses.normalized_mac(item.get("mac_address"))
    key = item.get("serial") or item.get("wwn") or item.get("name")
    return key if isinstance(key, str) else None


# Vendor names: PCI vendors by ID, and the spellings of a vendor's name.
#
# Names are compared without the legal form of the company, so that ``vendor == dell`` finds "Dell Inc.".


# How firmware spells them, folded; the first one is the common name.
_MAKERS: Final = (
    ("dell", "dell emc", "dell computer"),
    ("hpe", "hp", "hewlett-packard", "hewlett packard", "hewlett packard enterprise"),
    ("supermicro", "super micro", "super micro computer"),
    ("cisco", "cisco systems"),
    ("lenovo", "lenovo group", "lenovo(beijing)"),
    ("fujitsu", "fujitsu siemens", "fujitsu client computing"),
    ("asus", "asustek", "asustek computer"),
    ("gigabyte", "gigabyte technology", "giga computing", "giga-byte technology"),
    ("asrock", "asrockrack", "asrock rack"),
    ("quanta", "quanta computer", "quanta cloud technology"),
    ("huawei", "huawei technologies"),
    ("intel", "intel(r)"),
    ("mellanox", "mellanox technologies"),
    ("hynix", "sk hynix"),
    ("wdc", "wd", "western digital"),
    ("amd", "advanced micro devices", "authenticamd"),
)
_COMPANIES: Final = (
    "", " inc.", ", inc.", " inc", " corporation", " corp.", " corp", " technology", " technologies", " electronics",
    " ltd.", " limited", " co., ltd.", " co.,ltd.", " gmbh", " ag",
)  # fmt: skip
_GROUPS: Final = {spelled: group for group in _MAKERS for spelled in group}


def spellings(name: str) -> tuple[str, ...]:
    """Return all stored spellings of this (folded) vendor name, this one first."""
    base = name
    for company in sorted(_COMPANIES, key=len, reverse=True):
        if company and name.endswith(company):
            base = name.removesuffix(company)
            break
    names = _GROUPS.get(name) or _GROUPS.get(base) or (base,)
    return tuple(dict.fromkeys((name, *(f"{spelling}{company}" for spelling in names for company in _COMPANIES))))
