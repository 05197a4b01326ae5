"""The data of an introspection: processed, as it came, and run through the hooks once more.

Source: the Introspection API reference of ironic-inspector and what its clients do.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope import transition
from ferroscope.api import callback, stored_data
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import MissingError
from ferroscope.api.introspection import Accepted, introspected, node_ident
from ferroscope.domain.model import Node
from ferroscope.domain.states import Event
from ferroscope.ports.store import Part, Transaction


class IntrospectionData(msgspec.Struct, frozen=True):
    """The inventory, and beside it whatever else came with it or was added by hooks."""

    inventory: dict[str, Any]


def get_data(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the processed data of the newest introspection that has any."""
    return _data(context, call, stored_data.PROCESSED, "plugin_data")


def get_unprocessed_data(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the data of the newest introspection that has any, as the ramdisk sent it."""
    return _data(context, call, stored_data.UNPROCESSED, "unprocessed")


def reapply(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Process the stored data again, or the data that is given."""
    ident = node_ident(call)
    given = callback.split(call.raw, max_depth=context.settings.api.max_json_depth) if call.raw.strip() else None

    def work(tx: Transaction) -> None:
        node, inspection = introspected(tx, ident, lock=True)
        transition.submit(tx, node, Event.REAPPLY, process=context.process)
        tx.data.save(inspection, node.uuid, given or _stored(tx, node, stored_data.UNPROCESSED))

    context.store.write(work)
    return Reply(202, Accepted())


def _data(context: ApiContext, call: Call[NoQuery, None], parts: tuple[Part, ...], beside: Part) -> Reply:
    ident = node_ident(call)

    def work(tx: Transaction) -> bytes:
        return stored_data.merged(_stored(tx, introspected(tx, ident)[0], parts), beside)

    return Reply(200, context.store.read(work))


def _stored(tx: Transaction, node: Node, parts: tuple[Part, ...]) -> dict[Part, bytes]:
    found = stored_data.newest(tx, node, parts)
    if found is None:
        raise MissingError(f"There is no such introspection data of node {node.uuid}; introspect it first.")
    return found
