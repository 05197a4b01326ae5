"""The inspection data of a node: which inspection has it, and how its parts are put together.

The parts are JSON bytes and stay so: an answer is spliced, never decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferroscope.domain.model import Node
from ferroscope.ports.store import Part, Query, Transaction

PROCESSED: Final[tuple[Part, ...]] = ("inventory", "plugin_data")
UNPROCESSED: Final[tuple[Part, ...]] = ("inventory", "unprocessed")

_PAGE: Final = 20


def newest(tx: Transaction, node: Node, parts: Sequence[Part]) -> dict[Part, bytes] | None:
    """Return the parts of the newest inspection that has all of them; None where none has.

    An inspection that is under way, or that failed early, does not hide the data before it.
    """
    if node.inspection is None:
        return None
    found = tx.data.load(node.inspection, parts)
    if len(found) == len(parts):
        return found
    return _earlier(tx, node, parts)


def _earlier(tx: Transaction, node: Node, parts: Sequence[Part]) -> dict[Part, bytes] | None:
    marker: str | None = None
    while True:
        query = Query(filters={"node": node.uuid}, sort_key="started_at", descending=True, limit=_PAGE, marker=marker)
        page = tx.inspections.list(query)
        for inspection in page:
            found = tx.data.load(inspection.uuid, parts)
            if len(found) == len(parts):
                return found
        if len(page) < _PAGE:
            return None
        marker = page[-1].uuid


def side_by_side(parts: dict[Part, bytes]) -> bytes:
    """Return ``{"inventory": …, "plugin_data": …}``, as the Bare Metal API gives it."""
    return b"".join((b'{"inventory":', parts["inventory"], b',"plugin_data":', parts["plugin_data"], b"}"))


def merged(parts: dict[Part, bytes], beside: Part) -> bytes:
    """Return the inventory as one more key of the other part, as the Introspection API gives it."""
    rest = parts[beside].strip()[1:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join((b'{"inventory":', parts["inventory"], comma, rest))
