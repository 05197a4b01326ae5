"""The registry of nodes in memory, and the addresses by which a machine is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ferroscope.adapters.memory.objects import MemoryObjects
from ferroscope.adapters.memory.pages import ordering, page
from ferroscope.adapters.memory.ports import MemoryPorts
from ferroscope.adapters.memory.rows import Rows
from ferroscope.adapters.memory.tables import copy
from ferroscope.domain.lookup import Candidates, Evidence
from ferroscope.domain.model import Node
from ferroscope.domain.states import AWAITED
from ferroscope.ports.errors import ConflictError, NotFoundError, StaleError
from ferroscope.ports.store import Query


class MemoryNodes:
    """``ports.store.Nodes``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float, ports: MemoryPorts) -> None:
        self._rows = rows
        self._now = now
        self._ports = ports

    def add(self, node: Node) -> None:
        if node.uuid in self._rows.nodes:
            raise ConflictError("uuid", node.uuid)
        self._rows.unique_of_nodes.take(node.uuid, node)
        self._rows.nodes.put(node.uuid, copy(msgspec.structs.replace(node, created_at=node.created_at or self._now)))

    def get(self, ident: str, *, lock: bool = False) -> Node:
        uuid = ident if ident in self._rows.nodes else self._rows.unique_of_nodes.owner("name", ident)
        return copy(self._stored(uuid or ident))

    def update(self, node: Node) -> Node:
        stored = self._stored(node.uuid)
        if stored.version != node.version:
            raise StaleError(f"node {node.uuid} is at version {stored.version}, not {node.version}")
        self._rows.unique_of_nodes.change(node.uuid, stored, node)
        saved = msgspec.structs.replace(node, version=node.version + 1, updated_at=self._now)
        self._rows.nodes.put(node.uuid, copy(msgspec.structs.replace(saved, created_at=stored.created_at)))
        return saved

    def remove(self, uuid: str) -> None:
        rows = self._rows
        node = rows.nodes.drop(uuid)
        if node is not None:
            rows.unique_of_nodes.free(node)
        self._ports.remove(rows.ports_of_node.of(uuid))
        for inspection in rows.inspections_of_node.drop(uuid):
            rows.inspections.drop(inspection)
        for key in rows.data_of_node.drop(uuid):
            rows.data.drop(key)
            rows.data_at.drop(key)
        MemoryObjects(rows, self._now).discard_keys(rows.objects_of_node.of(uuid))
        rows.facts.drop(uuid)
        for request in rows.requests_of_node.drop(uuid):
            rows.requests.drop(request)
        rows.claimed.drop(uuid)
        for entry in rows.entries_of_node.drop(uuid):
            rows.entries.drop(entry)
        MemoryAddresses(rows).set_bmc(uuid, ())
        for address in rows.macs_of_node.drop(uuid):
            rows.machine_macs.drop(address)
        rows.discovered_from.drop(uuid)
        for source in rows.callers_of_node.drop(uuid):
            rows.nodes_of_caller.discard(source, uuid)

    def list(self, query: Query) -> Sequence[Node]:
        marker = None if query.marker is None else self._stored(query.marker)
        return page(self._rows.nodes.values(), query, marker=marker, key=ordering(query.sort_key, "uuid"))

    def orphans(self) -> Mapping[str, float | None]:
        return {node.uuid: node.orphaned_at for node in self._rows.nodes.values()}

    def _stored(self, uuid: str) -> Node:
        node = self._rows.nodes.get(uuid)
        if node is None:
            raise NotFoundError("node", uuid)
        return node


class MemoryAddresses:
    """``ports.store.Addresses``."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def candidates(self, evidence: Evidence) -> Candidates:
        rows = self._rows
        by_uuid = rows.nodes.get(evidence.uuid) if evidence.uuid else None
        ports = (rows.unique_of_ports.owner("address", mac) for mac in evidence.macs)
        of_macs = {port.node for uuid in ports if uuid and (port := rows.ports.get(uuid))}
        if not of_macs:
            of_macs = {node for mac in evidence.macs if (node := rows.machine_macs.get(mac))}
        of_bmc = {node for address in evidence.bmc_addresses for node in rows.nodes_of_bmc.of(address)}
        return Candidates(
            by_uuid=copy(by_uuid) if by_uuid else None,
            by_mac=self._nodes(of_macs),
            by_bmc=[node for node in self._nodes(of_bmc) if node.state in AWAITED],
        )

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        for address in self._rows.bmc_addresses.drop(node):
            self._rows.nodes_of_bmc.discard(address, node)
        for address in sorted(set(addresses)):
            self._rows.bmc_addresses.add(node, address)
            self._rows.nodes_of_bmc.add(address, node)

    def bmc_of(self, node: str) -> Sequence[str]:
        return sorted(self._rows.bmc_addresses.of(node))

    def owners(self, bmc_addresses: Sequence[str]) -> Sequence[Node]:
        return self._nodes({node for address in bmc_addresses for node in self._rows.nodes_of_bmc.of(address)})

    def called(self, node: str, source: str) -> None:
        if source and node not in self._rows.nodes_of_caller.of(source):
            self._rows.nodes_of_caller.add(source, node)
            self._rows.callers_of_node.add(node, source)

    def callers(self, source: str) -> Sequence[Node]:
        return [node for node in self._nodes(self._rows.nodes_of_caller.of(source)) if node.state in AWAITED]

    def _nodes(self, uuids: Iterable[str]) -> Sequence[Node]:
        nodes = (self._rows.nodes.get(uuid) for uuid in sorted(uuids))
        return [copy(node) for node in nodes if node is not None]
