"""Refuses two nodes with one BMC, unless one says that it shares it: each would switch the other's machine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ferroscope.api.auth import access
from ferroscope.api.errors import StateConflictError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import RouteCall
from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.shared_places import find_shared
from ferroscope_client.core import bmc_place
from ferroscope_client.core.bmc_place import Place


def refuse_shared(
    context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, node: Node, resolved: Collection[str] = ()
) -> None:
    """Raise ``StateConflictError`` if another node has the BMC of this one.

    ``resolved``: the addresses that are stored for this node.
    """
    shared = find_shared(tx, node, resolved)
    if shared is not None:
        raise _conflict(context, call, *shared)


def refuse_newly_shared(
    context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, before: Node, node: Node
) -> None:
    """Raise ``StateConflictError`` if the change gives the node the BMC of another one."""
    was_no_place = bmc_access.is_unconfirmed(before)
    is_at_old_place = bmc_place.exclusive_places(before.driver_info) == bmc_place.exclusive_places(node.driver_info)
    if is_at_old_place and was_no_place == bmc_access.is_unconfirmed(node):
        return
    stored = tx.addresses.bmc_of(node.uuid)
    was = () if was_no_place else bmc_place.exclusive_places(before.driver_info, stored)
    is_moved = bmc_access.moved_fields(before.driver_info, node.driver_info)
    shared = find_shared(tx, node, () if is_moved else stored, was=was)
    if shared is not None:
        raise _conflict(context, call, *shared)


def _conflict(context: ApiContext, call: RouteCall[Any, Any], place: Place, owner: Node) -> StateConflictError:
    if not access.sees(context.access.policy, call.identity, owner):
        message = bmc_place.shared_message(place, "is that of another node, which you may not see")
    elif owner.inbox:
        message = bmc_place.in_inbox_message(place, owner.name or owner.uuid)
    else:
        message = bmc_place.shared_message(place, f"is that of node {_label(owner)}")
    return StateConflictError(f"{message[0].upper()}{message[1:]}.")


def _label(node: Node) -> str:
    return f"{node.name} ({node.uuid})" if node.name else node.uuid
