"""Two nodes at one BMC: refused, because each would switch the other's machine, unless one says that it shares it.

Compared are the addresses that are written, and those that workers have stored: an api process resolves no names. What
only an unauthenticated machine has said of its BMC is not a place yet; else it could keep others from being enrolled.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ferroscope.api.auth import access
from ferroscope.api.baremetal import discovery
from ferroscope.api.errors import StateConflictError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Call
from ferroscope.core import bmc_access, bmc_place
from ferroscope.core.bmc_place import Place
from ferroscope.core.model import Node
from ferroscope.db.transaction import Transaction


def refuse_shared(
    context: ApiContext, call: Call[Any, Any], tx: Transaction, node: Node, resolved: Collection[str] = ()
) -> None:
    """Raise ``StateConflictError`` if another node is at the place of this one.

    ``resolved``: the addresses that are stored for this node.
    """
    shared = find_shared(tx, node, resolved)
    if shared is not None:
        raise _conflict(context, call, *shared)


def refuse_newly_shared(context: ApiContext, call: Call[Any, Any], tx: Transaction, before: Node, node: Node) -> None:
    """Raise ``StateConflictError`` if the change brings the node to the place of another one."""
    was_no_place = bmc_access.unconfirmed(before)
    is_at_old_place = bmc_place.exclusive_places(before.driver_info) == bmc_place.exclusive_places(node.driver_info)
    if is_at_old_place and was_no_place == bmc_access.unconfirmed(node):
        return
    stored = tx.addresses.bmc_of(node.uuid)
    was = () if was_no_place else bmc_place.exclusive_places(before.driver_info, stored)
    is_moved = bmc_access.moved(before.driver_info, node.driver_info)
    shared = find_shared(tx, node, () if is_moved else stored, was=was)
    if shared is not None:
        raise _conflict(context, call, *shared)


def find_shared(
    tx: Transaction, node: Node, resolved: Collection[str], *, was: Collection[Place] = (), claims: bool = False
) -> tuple[Place, Node] | None:
    """Return the place of this node that is also that of another one, and that node; None if there is none.

    Nodes that were at its old place already do not count. ``claims``: what only a machine has said counts, too, and so
    do nodes that share their BMC.
    """
    places_of = bmc_place.places if claims else bmc_place.exclusive_places
    written = bmc_access.literal(node.driver_info)
    others = [
        other
        for other in tx.addresses.owners(sorted(written.union(resolved)))
        if other.uuid != node.uuid and (claims or not _is_claim(other))
    ]
    stored = tx.addresses.of_nodes([other.uuid for other in others])
    own = places_of(node.driver_info, resolved)
    for other in sorted(others, key=lambda other: other.uuid):
        there = places_of(other.driver_info, stored.get(other.uuid, ()))
        place = bmc_place.shared(own, there)
        if place is not None and bmc_place.shared(was, there) is None:
            return place, other
    return None


def _is_claim(node: Node) -> bool:
    """Whether only the machine itself has said where its BMC is; what a scan has found was seen by an operator."""
    return bmc_access.unconfirmed(node) and bool(discovery.origin(node))


def _conflict(context: ApiContext, call: Call[Any, Any], place: Place, other: Node) -> StateConflictError:
    if not access.sees(context.access.policy, call.identity, other):
        where = "is that of another node, which you may not see"
    else:
        where = f"is in the inbox as {other.name or other.uuid}" if other.inbox else f"is that of node {_label(other)}"
    message = bmc_place.shared_message(place, where)
    return StateConflictError(f"{message[0].upper()}{message[1:]}.")


def _label(node: Node) -> str:
    return f"{node.name} ({node.uuid})" if node.name else node.uuid
