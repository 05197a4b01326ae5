"""Three-way merge of a node: what a task changed on its copy, applied to what is stored by now.

An operator may edit a node while its inspection runs; neither side's work may be lost.
Documents merge by key, other fields as a whole; where both changed the same, the task wins.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.core.node import STORED, Document, Node

# Owned by ``transition`` and the store, never taken from a task's copy.
_NOT_MERGED: Final = frozenset(field.name for field in STORED if not field.merged)


def three_way(before: Node, after: Node, current: Node) -> Node:
    """Return ``current`` with every change from ``before`` to ``after`` applied to it."""
    changes: dict[str, Any] = {}
    for field in Node.__struct_fields__:
        old, new = getattr(before, field), getattr(after, field)
        if field in _NOT_MERGED or old == new:
            continue
        if isinstance(new, dict):
            new = _merge_documents(old, new, getattr(current, field))
        changes[field] = new
    return msgspec.structs.replace(current, **changes)


def _merge_documents(before: Document, after: Document, current: Document) -> Document:
    merged = {key: value for key, value in current.items() if key not in before or key in after}
    merged.update({key: value for key, value in after.items() if key not in before or before[key] != value})
    return merged
