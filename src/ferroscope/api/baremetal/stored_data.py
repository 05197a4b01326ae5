"""The inspection data of a node in both APIs: find the inspection, combine its parts, and process it again.

The parts are JSON bytes: a response is concatenated, never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ferroscope import transition
from ferroscope.api.baremetal import callback_body, quotas
from ferroscope.api.errors import MissingError
from ferroscope.api.http.context import ApiContext, DataAccess, ProcessContext
from ferroscope.api.http.route import RouteCall
from ferroscope.contracts.errors import StaleError
from ferroscope.contracts.store import Packed, Part, packed
from ferroscope.core.delivery import take
from ferroscope.core.model import GIVEN, Inspection, Node
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.storage.reader import StoredParts, newest
from ferroscope_client.core.states import State

PROCESSED: Final[tuple[Part, ...]] = ("inventory", "plugin_data")
UNPROCESSED: Final[tuple[Part, ...]] = ("inventory", "unprocessed")


def introspected_node(tx: Transaction, ident: str, *, lock: bool = False) -> tuple[Node, str]:
    """Return the node with this UUID or name, and the UUID of its newest inspection."""
    node = tx.nodes.get(ident, lock=lock)
    if node.inspection is None:
        raise MissingError(f"Node {ident} has never been introspected; start an introspection first.")
    return node, node.inspection


def of_node(
    data: DataAccess, find: Callable[[Transaction], Node], parts: tuple[Part, ...]
) -> tuple[Node, dict[Part, bytes] | None]:
    """Return the node from ``find``, and the parts of its newest inspection that has all of them."""

    def work(tx: Transaction) -> tuple[Node, StoredParts | None]:
        node = find(tx)
        return node, newest(tx, node, parts)

    node, location = data.store.read(work)
    return node, None if location is None else data.archive.fetch(location)


def side_by_side(parts: dict[Part, bytes]) -> bytes:
    """Return ``{"inventory": …, "plugin_data": …}``, the form of the Bare Metal API."""
    return b"".join((b'{"inventory":', parts["inventory"], b',"plugin_data":', parts["plugin_data"], b"}"))


def merge_inventory(parts: dict[Part, bytes], beside: Part) -> bytes:
    """Return the other part with the inventory as an additional key, the form of the Introspection API."""
    rest = parts[beside].strip()[1:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join((b'{"inventory":', parts["inventory"], comma, rest))


# Reapply: process stored or given data again; the same for both APIs.
#
# A reapply is a separate inspection. Its data is stored with it, in the transaction that queues the request, and does
# not replace existing data. So if it fails, the previous data is unchanged.


def submit(
    context: ApiContext, call: RouteCall[Any, Any], ident: str, may: Callable[[Node], None] = lambda _node: None
) -> None:
    """Queue a reapply; the body is that of a callback, or empty for the stored data.

    ``may`` raises if the caller may not supply data for the node.

    If a reapply of stored data is already queued and has not begun, nothing is added.
    """
    if call.raw.strip():
        parts = callback_body.split(call.raw)
        parts.pop("logs", None)
        supplied = packed(parts)

        def queue_supplied(tx: Transaction) -> None:
            node = introspected_node(tx, ident, lock=True)[0]
            may(node)
            _begin(context.process, tx, node, GIVEN, supplied)
            quotas.check(context, call, tx, node.owner)

        context.data.store.write(queue_supplied)
        return
    node, location = context.data.store.read(lambda tx: _find_stored(tx, ident))
    if location is None:
        return
    stored = packed(
        context.data.archive.fetch(location) | context.data.archive.load(location.inspection, ("out_of_band",))
    )

    def work(tx: Transaction) -> None:
        now = introspected_node(tx, ident, lock=True)[0]
        if _is_queued(tx, now):
            return
        if now.inspection != node.inspection:
            raise StaleError
        _begin(context.process, tx, now, location.inspection, stored)

    context.data.store.write(work)


def require_parts(node: Node, parts: dict[Part, bytes] | None) -> dict[Part, bytes]:
    """Return the data; ``MissingError`` if there is none."""
    if parts is None:
        raise _nothing(node)
    return parts


def _find_stored(tx: Transaction, ident: str) -> tuple[Node, StoredParts | None]:
    """Return the node and its stored data; None if already queued. Raises an error at once in a wrong state."""
    node = introspected_node(tx, ident)[0]
    if _is_queued(tx, node):
        return node, None
    take(node, Event.REAPPLY)
    location = newest(tx, node, UNPROCESSED)
    if location is None:
        raise _nothing(node)
    return node, location


def _nothing(node: Node) -> MissingError:
    return MissingError(f"Node {node.uuid} has no such introspection data; introspect it first.")


def _is_queued(tx: Transaction, node: Node) -> bool:
    if node.state is not State.REAPPLYING or tx.inspections.get(str(node.inspection)).reapplies == GIVEN:
        return False
    return any(request.event is Event.REAPPLY and not request.begun for request in tx.requests.pending(node.uuid))


def _begin(process: ProcessContext, tx: Transaction, node: Node, of: str, parts: dict[Part, Packed]) -> None:
    """Start an inspection of this data: the data of the inspection ``of``, or ``GIVEN``."""
    digest = None
    if of != GIVEN:
        source = tx.inspections.get(of)
        # The machine may repeat its callback if the response to the first one was lost.
        digest = source.digest
        if source.reapplies not in (None, GIVEN):
            of = str(source.reapplies)
    new = Inspection(
        uuid=process.new_uuid(),
        node=node.uuid,
        state=State.REAPPLYING,
        started_at=tx.now,
        manage_boot=False,
        digest=digest,
        reapplies=of,
    )
    transition.reapply(tx, node, new, process=process.name)
    tx.data.save(new.uuid, node.uuid, parts)
