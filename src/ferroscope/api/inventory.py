"""GET /v1/nodes/{node}/inventory: what the ramdisk found, and what hooks made of it.

This is read by provisioners for every node, so it costs two indexed queries and a copy.
Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.api import inventory_revisions, reapplying, stored_data
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import MissingError
from ferroscope.api.idents import node_ident


class NodeInventory(msgspec.Struct, frozen=True):
    """The inventory as ironic-python-agent defines it, and everything that came with it or was added."""

    inventory: dict[str, Any]
    plugin_data: dict[str, Any]


class InventoryQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/inventory; without it, the newest that was processed."""

    revision: inventory_revisions.Revision | None = None


def get_inventory(context: ApiContext, call: Call[InventoryQuery, None]) -> Reply:
    """Return the data of the newest inspection that was processed, or of the revision that is asked for."""
    ident = node_ident(call)
    if call.query.revision is not None:
        chosen = inventory_revisions.load(context, ident, call.query.revision)
        return Reply(200, stored_data.side_by_side(chosen))

    _, parts = stored_data.of_node(context, lambda tx: tx.nodes.get(ident), stored_data.PROCESSED)
    if parts is None:
        raise MissingError(f"Node {ident} has no inventory yet: no inspection of it has finished. Inspect it first.")
    return Reply(200, stored_data.side_by_side(parts))


def reapply(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Run the hooks once more over the stored data, or over the data that is given."""
    reapplying.submit(context, node_ident(call), call.raw)
    return Reply(202)
