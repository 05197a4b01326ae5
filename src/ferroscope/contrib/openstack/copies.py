"""Our copy of the nodes and ports of an attached Ironic, in the store: for lookups, the PXE filter, hooks and rules.

Ironic's documents are the truth. A copy is saved by the periodic task, at the start of an inspection, and when a caller
or a machine names something that the copy lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core import driver_info, ironic_nodes
from ferroscope.core.model import Document, Node, Port
from ferroscope.db import Transaction

# Unique among our nodes as in Ironic: if another copy still has the value, that copy is out of date.
_UNIQUE: Final = ("name", "instance_uuid")


def is_current(node: Node, stored_ports: Sequence[Port], document: Document, ports: Sequence[Document]) -> bool:
    """Whether the node and its ports are as in Ironic, so that there is nothing to save."""
    present, current = {port.uuid: port for port in stored_ports}, _ports(node.uuid, ports)
    return (
        ironic_nodes.copy_node(document, node) == node
        and present.keys() == current.keys()
        and all(ironic_nodes.same_port(present[uuid], port) for uuid, port in current.items())
    )


def save(tx: Transaction, document: Document, ports: Sequence[Document]) -> Node:
    """Save a node and its ports as in Ironic; return the locked node."""
    try:
        before: Node | None = tx.nodes.get(str(document["uuid"]), lock=True)
    except NotFoundError:
        before = None
    node = ironic_nodes.copy_node(document, before)
    for field in _UNIQUE:
        value = getattr(node, field)
        if value is not None and (before is None or getattr(before, field) != value):
            _clear_elsewhere(tx, node, field, value)
    if before is None:
        tx.nodes.add(node)
    elif node != before:
        node = tx.nodes.update(node)
    if before is None or driver_info.moved_fields(before.driver_info, node.driver_info):
        tx.addresses.set_bmc(node.uuid, driver_info.literal_addresses(node.driver_info))
    save_ports(tx, node.uuid, ports)
    return node


def save_ports(tx: Transaction, node: str, documents: Sequence[Document]) -> None:
    """Replace the ports of the node by those that Ironic has."""
    present = {port.uuid: port for port in tx.ports.list(Query(filters={"node": node}))}
    wanted = _ports(node, documents)
    changed = [
        port for uuid, port in wanted.items() if uuid not in present or not ironic_nodes.same_port(present[uuid], port)
    ]
    obsolete = {port.uuid for port in _with_macs(tx, changed) if port.uuid not in wanted} | present.keys() - wanted
    if obsolete:
        tx.ports.remove(sorted(obsolete))
    tx.ports.add([port for port in changed if port.uuid not in present])
    for port in changed:
        if port.uuid in present:
            tx.ports.update(ironic_nodes.updated_port(present[port.uuid], port))


def _ports(node: str, documents: Sequence[Document]) -> dict[str, Port]:
    """Return Ironic's ports of the node that have a valid MAC."""
    return {port.uuid: port for port in map(ironic_nodes.port, documents) if port is not None and port.node == node}


def _with_macs(tx: Transaction, ports: Sequence[Port]) -> Sequence[Port]:
    """Return the ports of any node that already have these MACs."""
    macs = tuple(port.address for port in ports)
    return tx.ports.list(Query(filters={"address": macs})) if macs else ()


def _clear_elsewhere(tx: Transaction, node: Node, field: str, value: str) -> None:
    for holder in tx.nodes.list(Query(filters={field: value})):
        if holder.uuid != node.uuid:
            tx.nodes.update(msgspec.structs.replace(tx.nodes.get(holder.uuid, lock=True), **{field: None}))
