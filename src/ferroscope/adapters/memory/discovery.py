"""Discovered machines in memory: their MACs, how many came of late, and those that were rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ferroscope.adapters.memory.rows import Rows
from ferroscope.domain.discovery import Rejection
from ferroscope.domain.provision import Provision
from ferroscope.ports.errors import ConflictError


class MemoryDiscoveries:
    """``ports.store.Discoveries``."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def made(self, period: int) -> int:
        last, made = self._rows.tallies.get("discovery") or (period, 0)
        if last == period + 1:  # who began in the period before and waited does not count from 0 again
            return made
        if last != period:
            made = 0
        self._rows.tallies.put("discovery", (period, made))
        return made

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        period, made = self._rows.tallies.get("discovery") or (0, 0)
        self._rows.tallies.put("discovery", (period, made + 1))
        for address in sorted(set(addresses)):
            if address in self._rows.machine_macs:
                raise ConflictError("address", address)
            self._rows.machine_macs.put(address, node)
            self._rows.macs_of_node.add(node, address)
            if source:
                self._rows.discovered_from.put(node, source)

    def unclaimed(self, source: str | None = None) -> int:
        nodes = [node for node in self._rows.nodes.values() if node.auto_discovered]
        if source is not None:
            nodes = [node for node in nodes if self._rows.discovered_from.get(node.uuid) == source]
        return sum(node.provision_state is Provision.ENROLL for node in nodes)

    def of_source(self, source: str) -> Sequence[str]:
        return sorted(node for node in self._rows.discovered_from if self._rows.discovered_from.get(node) == source)

    def macs(self, node: str) -> Sequence[str]:
        return sorted(self._rows.macs_of_node.of(node))


class MemoryRejections:
    """``ports.store.Rejections``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        for address in addresses:
            given = Rejection(address=address, node=node, rejected_at=self._now, source=source or None)
            self._rows.rejections.put(address, given)

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        wanted = set(addresses)
        return [rejection for rejection in self.list() if rejection.address in wanted]

    def list(self) -> Sequence[Rejection]:
        return sorted(self._rows.rejections.values(), key=lambda one: (-one.rejected_at, one.address))

    def remove(self, address: str) -> bool:
        return self._rows.rejections.drop(address) is not None

    def forget(self, before: float) -> None:
        for rejection in self._rows.rejections.values():
            if rejection.rejected_at < before:
                self._rows.rejections.drop(rejection.address)
