"""A hold: inspection data that waits for an operator's approval before it is processed. Pure.

It is a record in the node's internal data, beside the flag ``inbox``. The inspection stays in its state, its clock
stopped, until the data is approved or rejected, or the inspection is ended in another way, which ends the hold too.
"""

from __future__ import annotations

from typing import Any, Final

from ferroscope.core.model import Document, Node

KEY: Final = "held"
# The key of the machine's identity, as its last processed callback reported it.
IDENTITY: Final = "machine_identity"


def of(node: Node) -> Document | None:
    """Return the hold of the node's current inspection, None if there is none."""
    found = node.internal.get(KEY)
    return found if isinstance(found, dict) and found.get("inspection") == node.inspection else None


def placed(node: Node, record: Document) -> Document:
    """Return the fields of the node with this hold; ``inbox`` of the record is what the flag was before."""
    record = {"inspection": node.inspection, "inbox": node.inbox} | record
    return {"inbox": True, "internal": node.internal | {KEY: record}}


def lifted(node: Node) -> dict[str, Any]:
    """Return the fields of the node without a hold; nothing if it has none."""
    record = node.internal.get(KEY)
    if record is None:
        return {}
    before = bool(record.get("inbox")) if isinstance(record, dict) else False
    return {"inbox": before, "internal": {key: value for key, value in node.internal.items() if key != KEY}}
