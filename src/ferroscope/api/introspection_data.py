"""The data of an introspection: processed, as it came, and run through the hooks once more.

Source: the Introspection API reference of ironic-inspector and what its clients do.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.api import reapplying, stored_data
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.idents import introspected_ident
from ferroscope.api.introspection import Accepted, introspected
from ferroscope.ports.data import Part


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
    reapplying.submit(context, introspected_ident(call), call.raw)
    return Reply(202, Accepted())


def _data(context: ApiContext, call: Call[NoQuery, None], parts: tuple[Part, ...], beside: Part) -> Reply:
    ident = introspected_ident(call)
    node, found = stored_data.of_node(context, lambda tx: introspected(tx, ident)[0], parts)
    return Reply(200, stored_data.merged(reapplying.there(node, found), beside))
