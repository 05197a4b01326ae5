"""GET /v1/nodes/{node}/inventory: what the ramdisk found, and what hooks made of it.

This is read by provisioners for every node, so it costs two indexed queries and a copy.
Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.api import stored_data
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import MissingError
from ferroscope.api.nodes import node_ident
from ferroscope.ports.store import Transaction


class NodeInventory(msgspec.Struct, frozen=True):
    """The inventory as ironic-python-agent defines it, and everything that came with it or was added."""

    inventory: dict[str, Any]
    plugin_data: dict[str, Any]


def get_inventory(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the data of the newest inspection that was processed."""
    ident = node_ident(call)

    def work(tx: Transaction) -> bytes | None:
        parts = stored_data.newest(tx, tx.nodes.get(ident), stored_data.PROCESSED)
        return None if parts is None else stored_data.side_by_side(parts)

    body = context.store.read(work)
    if body is None:
        raise MissingError(f"Node {ident} has no inventory yet: no inspection of it has finished. Inspect it first.")
    return Reply(200, body)
