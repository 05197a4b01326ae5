"""Changes of a node: merging those of a task with those made meanwhile, and where each value comes from. Pure."""

from __future__ import annotations

from enum import StrEnum
from itertools import compress
from operator import ne
from typing import Any, Final

import msgspec

from ferroscope_client.core.node import STORED, Document, Node

# Owned by ``transition`` and the store, never taken from a task's copy.
_NOT_MERGED: Final = frozenset(field.name for field in STORED if not field.merged)


def merged_fields() -> tuple[str, ...]:
    """Return the fields that a task may change: all except those of the state and of the row."""
    return tuple(name for name in Node.__struct_fields__ if name not in _NOT_MERGED)


def three_way(before: Node, after: Node, current: Node) -> Node:
    """Return ``current`` with every change from ``before`` to ``after`` applied to it.

    An operator may edit a node during its inspection, and neither side's changes may be lost. Documents are merged by
    key, traits one by one, other fields as a whole; if both sides changed the same, the task wins.
    """
    changes: dict[str, Any] = {}
    old_values, new_values = msgspec.structs.astuple(before), msgspec.structs.astuple(after)
    for field, old, new in compress(
        zip(Node.__struct_fields__, old_values, new_values, strict=True), map(ne, old_values, new_values)
    ):
        if field in _NOT_MERGED:
            continue
        if isinstance(new, dict):
            new = _merge_documents(old, new, getattr(current, field))
        if field == "attributes":
            new = _merge_traits(old, getattr(after, field), current.attributes, new)
        changes[field] = new
    return msgspec.structs.replace(current, **changes)


def _merge_documents(before: Document, after: Document, current: Document) -> Document:
    merged = {key: value for key, value in current.items() if key not in before or key in after}
    merged.update({key: value for key, value in after.items() if key not in before or before[key] != value})
    return merged


def _merge_traits(before: Document, after: Document, current: Document, merged: Document) -> Document:
    old, new, now = (document.get("traits", []) for document in (before, after, current))
    kept = [trait for trait in now if trait in new or trait not in old]
    traits = kept + [trait for trait in new if trait not in old and trait not in kept]
    rest = {name: value for name, value in merged.items() if name != "traits"}
    return rest | {"traits": traits} if traits else rest


class ValueSource(StrEnum):
    """Who set a value: a caller of the API, an inspection rule, or a hook, from the data of the ramdisk or the BMC."""

    OPERATOR = "operator"
    RULE = "rule"
    IN_BAND = "in band"
    OUT_OF_BAND = "out of band"


_SOURCED: Final = ("name", "driver", "owner", "resource_class")
_SOURCED_DOCUMENTS: Final = ("properties", "labels")
_SOURCED_ATTRIBUTES: Final = ("description", "lessee", "traits")


def sourced_values(node: Node) -> dict[str, bytes]:
    """Return the values whose source is recorded, by path, such as ``properties.cpus``."""
    by_path = {name: getattr(node, name) for name in _SOURCED}
    by_path |= {name: node.attributes.get(name) for name in _SOURCED_ATTRIBUTES}
    for name in _SOURCED_DOCUMENTS:
        by_path |= {f"{name}.{key}": value for key, value in (getattr(node, name) or {}).items()}
    return {path: msgspec.json.encode(value) for path, value in by_path.items() if value is not None}


def update_sources(before: dict[str, bytes], node: Node, source: ValueSource) -> Document:
    """Return ``node.sources``, with ``source`` for each value that differs from ``before``."""
    now = sourced_values(node)
    changed = {path: str(source) for path, value in now.items() if before.get(path) != value}
    return {path: origin for path, origin in node.sources.items() if path in now} | changed
