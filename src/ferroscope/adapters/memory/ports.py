"""The NICs of all nodes in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ferroscope.adapters.memory.macs import MemoryMacs
from ferroscope.adapters.memory.pages import ordering, page
from ferroscope.adapters.memory.rows import Rows
from ferroscope.adapters.memory.tables import copy
from ferroscope.domain.model import Port
from ferroscope.ports.errors import ConflictError, NotFoundError
from ferroscope.ports.store import Query


class MemoryPorts:
    """``ports.store.Ports``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float, macs: MemoryMacs) -> None:
        self._rows = rows
        self._now = now
        self._macs = macs

    def add(self, ports: Iterable[Port]) -> None:
        added: list[str] = []
        for port in ports:
            try:
                self._add(port)
            except ConflictError:
                self.remove(added)
                raise
            added.append(port.uuid)

    def get(self, ident: str) -> Port:
        uuid = ident if ident in self._rows.ports else self._rows.unique_of_ports.owner("address", ident)
        return copy(self._stored(uuid or ident))

    def update(self, port: Port) -> Port:
        stored = self._stored(port.uuid)
        self._rows.unique_of_ports.change(port.uuid, stored, port)
        if (stored.address, stored.node) != (port.address, port.node):
            self._macs.note({stored.address, port.address})
        if stored.node != port.node:
            self._rows.ports_of_node.discard(stored.node, port.uuid)
            self._rows.ports_of_node.add(port.node, port.uuid)
        saved = msgspec.structs.replace(port, updated_at=self._now)
        self._rows.ports.put(port.uuid, copy(msgspec.structs.replace(saved, created_at=stored.created_at)))
        return saved

    def remove(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            port = self._rows.ports.drop(uuid)
            if port is not None:
                self._rows.unique_of_ports.free(port)
                self._macs.note([port.address])
                self._rows.ports_of_node.discard(port.node, uuid)

    def list(self, query: Query) -> Sequence[Port]:
        marker = None if query.marker is None else self._stored(query.marker)
        node = query.filters.get("node")
        if isinstance(node, str):
            rows = [self._stored(uuid) for uuid in self._rows.ports_of_node.of(node)]
        else:
            rows = list(self._rows.ports.values())
        return page(rows, query, marker=marker, key=ordering(query.sort_key, "uuid"))

    def _stored(self, uuid: str) -> Port:
        port = self._rows.ports.get(uuid)
        if port is None:
            raise NotFoundError("port", uuid)
        return port

    def _add(self, port: Port) -> None:
        if port.uuid in self._rows.ports:
            raise ConflictError("uuid", port.uuid)
        self._rows.unique_of_ports.take(port.uuid, port)
        self._rows.ports.put(port.uuid, copy(msgspec.structs.replace(port, created_at=port.created_at or self._now)))
        self._rows.ports_of_node.add(port.node, port.uuid)
        self._macs.note([port.address])
