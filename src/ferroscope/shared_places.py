"""Finds another node with the BMC of a node: the same rule for the api, for imports and for inspection rules.

It compares the written addresses and those that workers have stored; it resolves no names. The BMC address that only an
unauthenticated machine reported does not count. Otherwise, a machine could keep others from being enrolled.
"""

from __future__ import annotations

from collections.abc import Collection

from ferroscope.core import bmc_access
from ferroscope.core.lookup import DISCOVERY
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope_client.core import bmc_place
from ferroscope_client.core.bmc_place import Place


def find_shared(
    tx: Transaction, node: Node, resolved: Collection[str], *, was: Collection[Place] = (), claims: bool = False
) -> tuple[Place, Node] | None:
    """Return the place that this node shares with another one, and that node; None if there is none.

    Nodes that shared its old place already do not count. ``claims``: include addresses that only a machine reported,
    and nodes that share their BMC.
    """
    places_of = bmc_place.places if claims else bmc_place.exclusive_places
    written = bmc_access.literal_addresses(node.driver_info)
    sharers = [
        sharer
        for sharer in tx.addresses.owners(sorted(written.union(resolved)))
        if sharer.uuid != node.uuid and (claims or not _is_claim(sharer))
    ]
    stored = tx.addresses.of_nodes([sharer.uuid for sharer in sharers])
    own = places_of(node.driver_info, resolved)
    for sharer in sorted(sharers, key=lambda sharer: sharer.uuid):
        there = places_of(sharer.driver_info, stored.get(sharer.uuid, ()))
        place = bmc_place.first_shared(own, there)
        if place is not None and bmc_place.first_shared(was, there) is None:
            return place, sharer
    return None


def _is_claim(node: Node) -> bool:
    """Whether only the machine itself reported its BMC's address. An address from a scan was seen by an operator."""
    return bmc_access.is_unconfirmed(node) and bool(node.internal.get(DISCOVERY))
