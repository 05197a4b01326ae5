"""The search index: its fields, and the rows in which a store keeps them.

A row is one part; ``KINDS`` defines its columns ``t1`` ... and ``n1`` .... Texts are folded: lower case, single spaces,
255 characters, known PCI vendors by name. The texts of a query are folded in the same way, so that all databases
compare alike. The summary, which is displayed, keeps the original texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.hardware import parts as hardware
from ferroscope_client.hardware.names import VENDORS
from ferroscope_client.hardware.readings import Kind
from ferroscope_client.hardware.search_fields import KINDS

VERSION: Final = b"5"
"""Part of the digest; increased by a release that derives or stores different rows for the same data."""

MAX_TEXT: Final = 255


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


# Components with firmware in the summary; a machine has some dozen kinds.
_MAX_COMPONENTS: Final = 48


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
