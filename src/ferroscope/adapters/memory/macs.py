"""Which MACs may boot, and what was changed about that, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ferroscope.adapters.memory.rows import MacChangeRow, Rows
from ferroscope.domain.gate import KnownMac, MacChange
from ferroscope.domain.states import MAY_BOOT
from ferroscope.ports.bus import MAC_CHANNELS, Channel


class _PortOfNode(msgspec.Struct, frozen=True):
    mac: str
    node: str
    booting: bool


class MemoryMacs:
    """``ports.store.Macs``; ``told`` are the channels that hear of it when the transaction commits."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now
        self.told: set[Channel] = set()

    def changed(self, node: str, *, booting: bool) -> None:
        ports = (self._rows.ports.get(uuid) for uuid in self._rows.ports_of_node.of(node))
        self.note(port.address for port in ports if port is not None)

    def note(self, macs: Iterable[str]) -> None:
        """Note that something about these MACs is changed by this transaction."""
        for mac in macs:
            self._rows.last_mac_change += 1
            change = MacChange(self._rows.last_mac_change, mac)
            self._rows.mac_changes.put(change.seq, MacChangeRow(change, self._now))
            self.told.update(MAC_CHANNELS)

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        return [row.change for row in self._rows.mac_changes.values() if row.change.seq > seq][:limit]

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        macs = None if node is None else {known.mac for known in self._all() if known.node == node}
        return max(
            (
                row.change.seq
                for row in self._rows.mac_changes.values()
                if (macs is None or row.change.mac in macs) and (before is None or row.at < before)
            ),
            default=0,
        )

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        ports = sorted(self._all(), key=lambda port: port.mac)
        found = [port for port in ports if (port.mac in macs if macs else port.mac > after)]
        return [KnownMac(port.mac, port.booting) for port in (found if macs else found[:limit])]

    def forget(self, before: float) -> int:
        old = [row.change.seq for row in self._rows.mac_changes.values() if row.at < before]
        for seq in old:
            self._rows.mac_changes.drop(seq)
        return len(old)

    def _all(self) -> Iterable[_PortOfNode]:
        for port in self._rows.ports.values():
            node = self._rows.nodes.get(port.node)
            if node is not None:
                yield _PortOfNode(port.address, node.uuid, node.state in MAY_BOOT)
