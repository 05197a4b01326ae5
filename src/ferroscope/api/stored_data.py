"""The inspection data of a node as the APIs give it: which inspection has it, and its parts put together.

The parts are JSON bytes and stay so: an answer is spliced, never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferroscope.api.context import ApiContext
from ferroscope.contracts.data import Part
from ferroscope.contracts.store import Transaction
from ferroscope.core.model import Node
from ferroscope.storage.reader import Found, newest

PROCESSED: Final[tuple[Part, ...]] = ("inventory", "plugin_data")
UNPROCESSED: Final[tuple[Part, ...]] = ("inventory", "unprocessed")


def of_node(
    context: ApiContext, find: Callable[[Transaction], Node], parts: tuple[Part, ...]
) -> tuple[Node, dict[Part, bytes] | None]:
    """Return the node that ``find`` finds, and the parts of its newest inspection that has all of them."""

    def work(tx: Transaction) -> tuple[Node, Found | None]:
        node = find(tx)
        return node, newest(tx, node, parts)

    node, found = context.store.read(work)
    return node, None if found is None else context.archive.fetch(found)


def side_by_side(parts: dict[Part, bytes]) -> bytes:
    """Return ``{"inventory": …, "plugin_data": …}``, as the Bare Metal API gives it."""
    return b"".join((b'{"inventory":', parts["inventory"], b',"plugin_data":', parts["plugin_data"], b"}"))


def merged(parts: dict[Part, bytes], beside: Part) -> bytes:
    """Return the inventory as one more key of the other part, as the Introspection API gives it."""
    rest = parts[beside].strip()[1:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join((b'{"inventory":', parts["inventory"], comma, rest))
