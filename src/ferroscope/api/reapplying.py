"""Run the hooks once more, over stored data or over data that is given; the same for both APIs.

What is processed is saved with the node's newest inspection, in the transaction that queues the
request, so a worker finds it in the database whatever happens to an object store meanwhile.
"""

from __future__ import annotations

from ferroscope import transition
from ferroscope.api import callback, stored_data
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import MissingError
from ferroscope.api.introspection import introspected
from ferroscope.archive.reading import Found, locate
from ferroscope.domain.machine import advance
from ferroscope.domain.model import Node
from ferroscope.domain.states import Event
from ferroscope.ports.data import Part
from ferroscope.ports.store import Transaction


def submit(context: ApiContext, ident: str, raw: bytes) -> None:
    """Queue a reapply; ``raw`` is the body of a callback, or nothing for what is stored."""
    if raw.strip():
        parts, _inventory = callback.split(raw, max_depth=context.settings.api.max_json_depth)
    else:
        parts = _stored(context, ident)
    of, moved = _moved_plugin_data(context, ident)

    def work(tx: Transaction) -> None:
        node, inspection = introspected(tx, ident, lock=True)
        transition.submit(tx, node, Event.REAPPLY, process=context.process)
        wanted = parts | moved if inspection == of else parts
        tx.data.save(inspection, node.uuid, wanted)
        tx.objects.discard(inspection, tuple(wanted))

    context.store.write(work)


def _moved_plugin_data(context: ApiContext, ident: str) -> tuple[str, dict[Part, bytes]]:
    """Return the newest inspection, and its plugin data where that has moved: the BMC's part of it is used again."""

    def find(tx: Transaction) -> Found:
        return locate(tx, introspected(tx, ident)[1], ("plugin_data",))

    found = context.store.read(find)
    return found.inspection, context.archive.fetch(found) if found.elsewhere else {}


def there(node: Node, found: dict[Part, bytes] | None) -> dict[Part, bytes]:
    """Return the data that was found; ``MissingError`` where there is none."""
    if found is None:
        raise MissingError(f"There is no such introspection data of node {node.uuid}; introspect it first.")
    return found


def _stored(context: ApiContext, ident: str) -> dict[Part, bytes]:
    def find(tx: Transaction) -> Node:
        node = introspected(tx, ident)[0]
        advance(node.state, Event.REAPPLY)  # a wrong state is refused before anything is fetched
        return node

    return there(*stored_data.of_node(context, find, stored_data.UNPROCESSED))
