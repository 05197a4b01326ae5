"""Differences between two inspections of a machine, or between two machines.

Parts are matched by constant values (a NIC by its MAC, a disk by its serial number), or else by their position. The
same part with other values was changed; another part in the same position is a replacement. Values that may change with
every boot (such as device names) are reported only together with their part. Two machines have no part in common, so
there position and properties are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from ferroscope.hardware.parts import Part, Value, parts
from ferroscope_client.hardware.readings import Kind
from ferroscope_client.hardware.search_fields import KINDS

ChangeKind = Literal["added", "removed", "changed", "replaced"]

# kind -> fields that identify a part, best first; and its position.
_IDENTITY: Final[dict[Kind, tuple[str, ...]]] = {
    "node": (),
    "cpu": (),
    "nic": ("mac",),
    "disk": ("serial", "wwn"),
    "dimm": ("serial",),
    "gpu": (),
    "firmware": (),
    "health": ("serial",),
}
_PLACE: Final[dict[Kind, tuple[str, ...]]] = {
    "node": (),
    "cpu": (),
    "nic": ("name",),
    "disk": ("name",),
    "dimm": ("slot",),
    "gpu": ("address",),
    "firmware": ("name",),
    "health": ("name",),
}
# Values that change with every boot, are derived from other parts, or belong to the switch.
_NO_NEWS: Final[dict[Kind, frozenset[str]]] = {
    "node": frozenset({"hostname", "storage"}),
    "cpu": frozenset({"frequency"}),
    "nic": frozenset({"name", "vlan", "mtu"}),
    "disk": frozenset({"name"}),
    "dimm": frozenset(),
    "gpu": frozenset(),
    "firmware": frozenset({"model", "vendor", "serial"}),
    "health": frozenset({"name", "problem"}),
}
# Always different between two machines.
_ITS_OWN: Final[dict[Kind, frozenset[str]]] = {
    "node": frozenset({"serial", "bmc"}),
    "cpu": frozenset(),
    "nic": frozenset({"mac", "switch", "port"}),
    "disk": frozenset({"serial", "wwn"}),
    "dimm": frozenset({"serial"}),
    "gpu": frozenset(),
    "firmware": frozenset({"serial"}),
    "health": frozenset({"serial"}),
}
# The kinds that are compared. Results of collectors are not: they may differ each time.
_TITLES: Final[dict[Kind, str]] = {
    "node": "machine",
    "cpu": "CPU",
    "nic": "NIC",
    "disk": "disk",
    "dimm": "DIMM",
    "gpu": "GPU",
    "firmware": "firmware",
    "health": "problem",
}
_DESCRIBING_FIELDS: Final[dict[Kind, tuple[str, ...]]] = {
    "node": ("vendor", "product"),
    "cpu": ("model",),
    "nic": ("mac", "vendor", "product", "speed"),
    "disk": ("type", "size", "vendor", "model", "serial"),
    "dimm": ("size", "type", "model", "serial"),
    "gpu": ("vendor", "product"),
    "firmware": ("component", "model", "version"),
    "health": ("component", "state", "problem", "serial"),
}
# Reported elsewhere: the BIOS as a field of the machine. The health of the whole machine follows its temperatures.
_NOT_COMPARED: Final = frozenset({("firmware", "bios"), ("health", "machine")})


class HardwareChange(msgspec.Struct, frozen=True):
    """One difference. ``where`` names the part; ``field`` is set if one of its fields changed.

    ``text`` is the complete message.
    """

    what: ChangeKind
    kind: Kind
    where: str
    text: str
    field: str | None = None
    before: Value | None = None
    after: Value | None = None


def compare(before: tuple[Any, Any], after: tuple[Any, Any], *, machines: int = 1) -> list[HardwareChange]:
    """Return the changes from one (inventory, plugin data) to another, ordered by kind and position.

    ``machines``: 2 to compare different machines.
    """
    old, new = parts(*before), parts(*after)
    if not (_is_health_known(old) and _is_health_known(new)):
        old, new = ([part for part in side if part.kind != "health"] for side in (old, new))
    changes = [change for kind in _TITLES for change in _compare(kind, _of(kind, old), _of(kind, new), machines)]
    return changes if machines == 1 else [change for change in changes if change.field not in _ITS_OWN[change.kind]]


def _of(kind: Kind, side: Sequence[Part]) -> list[Part]:
    return [part for part in side if part.kind == kind and (kind, part.fields.get("component")) not in _NOT_COMPARED]


def _is_health_known(side: Sequence[Part]) -> bool:
    """Whether the BMC has reported everything; otherwise a problem may exist that is not listed."""
    return any(part.kind == "health" and part.fields.get("complete") for part in side)


def _compare(kind: Kind, old: list[Part], new: list[Part], machines: int) -> list[HardwareChange]:
    if machines == 2:
        pairs, old, new = _pair(old, new, _PLACE[kind] or None)
        same_place: list[tuple[Part, Part]] = []
    else:
        pairs, old, new = _pair(old, new, _IDENTITY[kind])
        same_place, old, new = _pair(old, new, _PLACE[kind] or None)
    changes = [change for before, after in pairs for change in _field_changes(before, after)]
    for before, after in same_place:
        changes += _replacement(before, after) if _are_different(before, after) else _field_changes(before, after)
    if kind == "firmware":
        return changes  # a BMC lists as many parts as its time allows, and changed hardware is reported itself
    changes += [_gone_or_new("removed", part) for part in old]
    changes += [_gone_or_new("added", part) for part in new]
    return changes


def _pair(
    old: list[Part], new: list[Part], fields: tuple[str, ...] | None
) -> tuple[list[tuple[Part, Part]], list[Part], list[Part]]:
    """Return the parts that match by one of the fields, and the unmatched ones of both sides.

    None: a machine has only one such part. A value that several parts share identifies none of them.
    """
    if fields is None:
        return list(zip(old, new, strict=False)), old[len(new) :], new[len(old) :]
    pairs: list[tuple[Part, Part]] = []
    for field in fields:
        old_by_value, new_by_value = _unique_by(field, old), _unique_by(field, new)
        for value in [value for value in old_by_value if value in new_by_value]:
            pairs.append((old_by_value[value], new_by_value[value]))
        paired = {id(part) for pair in pairs for part in pair}
        old = [part for part in old if id(part) not in paired]
        new = [part for part in new if id(part) not in paired]
    return pairs, old, new


def _unique_by(field: str, unmatched: list[Part]) -> dict[str, Part]:
    by_value: dict[str, list[Part]] = {}
    for part in unmatched:
        value = part.fields.get(field)
        if isinstance(value, str):
            by_value.setdefault(value.lower(), []).append(part)
    return {value: sharing[0] for value, sharing in by_value.items() if len(sharing) == 1}


def _are_different(before: Part, after: Part) -> bool:
    """Whether two parts in one position are known to be different ones."""
    return any(
        field in before.fields and field in after.fields and before.fields[field] != after.fields[field]
        for field in _IDENTITY[before.kind]
    )


def _field_changes(before: Part, after: Part) -> list[HardwareChange]:
    changes = []
    for field in KINDS[before.kind]:
        old, new = before.fields.get(field), after.fields.get(field)
        if old == new or field in _NO_NEWS[before.kind]:
            continue
        if isinstance(old, str) and isinstance(new, str) and old.lower() == new.lower():
            continue
        where = _where(after)
        name = field.replace("_", " ")
        change = f"{format_value(before.kind, field, old)} -> {format_value(before.kind, field, new)}"
        text = f"{where}: {name} {change}"
        changes.append(HardwareChange("changed", before.kind, where, text, field, old, new))
    return changes


def _replacement(before: Part, after: Part) -> list[HardwareChange]:
    where = _where(after)
    text = f"{where} was replaced: {_describe(before)} -> {_describe(after)}"
    return [HardwareChange("replaced", before.kind, where, text)]


def _gone_or_new(change_kind: ChangeKind, part: Part) -> HardwareChange:
    where = _where(part)
    verb = "is new" if change_kind == "added" else "is gone"
    description = _describe(part)
    return HardwareChange(
        change_kind, part.kind, where, f"{where} {verb}" + (f": {description}" if description else "")
    )


def _where(part: Part) -> str:
    place = next((str(part.fields[field]) for field in _PLACE[part.kind] if field in part.fields), "")
    if not place:
        place = next((str(part.fields[field]) for field in _IDENTITY[part.kind] if field in part.fields), "")
    return f"{_TITLES[part.kind]} {place}".rstrip()


def _describe(part: Part) -> str:
    words = []
    for field in _DESCRIBING_FIELDS[part.kind]:
        if field in part.fields:
            text = format_value(part.kind, field, part.fields[field])
            words.append(f"serial {text}" if field == "serial" else text)
    return ", ".join(words)


def format_value(kind: Kind, field: str, value: Value | None) -> str:
    """Return a value with its unit, for display."""
    if value is None:
        return "unknown"
    definition = KINDS[kind].get(field)
    if isinstance(value, str) or definition is None:
        return str(value)
    if definition.boolean:
        return "yes" if value else "no"
    if definition.unit == "bytes":
        return _binary(value) if kind in ("dimm",) or field.startswith("memory") else _decimal(value, "B")
    if definition.unit == "bits/s":
        return _decimal(value, "bit/s")
    if definition.unit == "hertz":
        return _decimal(value, "Hz")
    return f"{value:g}"


def _decimal(value: float, unit: str) -> str:
    for power, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{round(value / power, 2):g} {prefix}{unit}"
    return f"{value:g} {unit}"


def _binary(value: float) -> str:
    for power, prefix in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if abs(value) >= power:
            return f"{round(value / power, 2):g} {prefix}"
    return f"{value:g} B"
