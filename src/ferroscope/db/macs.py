"""Which MACs may boot, and the changes to that, in SQL.

Each change is a separate row instead of an increment of a counter, so transactions that change different nodes do not
wait for each other. Rows get their numbers before the commit, so a reader may see a greater number first; see
``core.boot_macs.ChangeWindow``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, delete, func, select

from ferroscope.contracts.queue import Channel
from ferroscope.core.boot_macs import KnownMac, MacChange
from ferroscope.core.model import Port
from ferroscope.core.states import MAY_BOOT
from ferroscope.db import mapping, schema
from ferroscope.db.mapping import one_of, several
from ferroscope.db.session import SqlSession

_BATCH: Final = 5000
# If a transaction changes more MACs than this, its messages do not list them.
_NAMED: Final = 32

_c, _p, _n = schema.mac_changes.c, schema.ports.c, schema.nodes.c
_STATES: Final = frozenset(str(state) for state in MAY_BOOT)

_PORTS_OF = select(_p.uuid, _p.address).where(_p.node == bindparam("node"))
_STATE_OF = select(_n.state).where(_n.uuid == bindparam("node"))
_SINCE = select(_c.seq, _c.mac).where(_c.seq > bindparam("seq")).order_by(_c.seq).limit(bindparam("limit"))
_NEWEST = select(func.max(_c.seq))
_NEWEST_OF = (select(func.max(_c.seq)).select_from(schema.mac_changes.join(schema.ports, _p.address == _c.mac))).where(
    _p.node == bindparam("node")
)
_NEWEST_BEFORE = select(_c.seq).where(_c.at < bindparam("before")).order_by(_c.seq.desc()).limit(1)
_KNOWN = select(_p.address, _n.state).select_from(schema.ports.join(schema.nodes, _n.uuid == _p.node))
# A subquery selects the page of ports before the join: otherwise, if there are few nodes, MariaDB begins with these and
# reads and sorts all ports for each page.
_PAGE = (
    select(_p.address, _p.node).where(_p.address > bindparam("after")).order_by(_p.address).limit(bindparam("limit"))
).subquery("page")
_KNOWN_AFTER = (
    select(_PAGE.c.address, _n.state).join_from(_PAGE, schema.nodes, _n.uuid == _PAGE.c.node).order_by(_PAGE.c.address)
)
_OLD = select(_c.seq).where(_c.at < bindparam("before")).order_by(_c.seq).limit(_BATCH)
_DELETE = delete(schema.mac_changes).where(_c.seq <= bindparam("seq"), _c.at < bindparam("before"))


class SqlMacs:
    """See ``contracts.store.Macs``."""

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def changed(self, node: str, *, booting: bool) -> None:
        ports = [(uuid, mac) for uuid, mac in self._tx.run(_PORTS_OF, {"node": node})]
        self._note(ports)
        self._publish(Channel.ALLOW, "add" if booting else "remove", ports)
        self._publish(Channel.DENY, "remove" if booting else "add", ports)

    def added(self, ports: Sequence[Port]) -> None:
        """Record that these ports are new, or have been moved to another node."""
        named = [(port.uuid, port.address) for port in ports]
        self._note(named)
        if len(ports) > _NAMED:
            self._publish(Channel.DENY, "add", named)
            return
        for port in ports:
            row = self._tx.run(_STATE_OF, {"node": port.node}).first()
            booting = row is not None and row[0] in _STATES
            self._publish(Channel.ALLOW if booting else Channel.DENY, "add", [(port.uuid, port.address)])

    def removed(self, ports: Sequence[tuple[str, str]]) -> None:
        """Record that these ports, as (UUID, MAC), were removed or moved to another node."""
        self._note(ports)
        self._publish(Channel.ALLOW, "remove", ports)
        self._publish(Channel.DENY, "remove", ports)

    def removed_with(self, node: str) -> None:
        """Record that all ports of the node are about to be removed."""
        self.removed([(uuid, mac) for uuid, mac in self._tx.run(_PORTS_OF, {"node": node})])

    def _note(self, ports: Sequence[tuple[str, str]]) -> None:
        mapping.add(self._tx, schema.mac_changes, ("mac", "at"), [(mac, self._tx.now) for _, mac in ports])

    def _publish(self, channel: Channel, action: str, ports: Sequence[tuple[str, str]]) -> None:
        """Publish ``action port-uuid mac`` for each port, or only the channel's name if there are many."""
        if len(ports) > _NAMED:
            self._tx.wake(channel)
        else:
            for uuid, mac in ports:
                self._tx.wake(f"{channel} {action} {uuid} {mac}")

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        return [MacChange(*row) for row in self._tx.run(_SINCE, {"seq": seq, "limit": limit})]

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        if node is not None:
            row = self._tx.run(_NEWEST_OF, {"node": node}).first()
        elif before is not None:
            row = self._tx.run(_NEWEST_BEFORE, {"before": before}).first()
        else:
            row = self._tx.run(_NEWEST).first()
        return int(row[0]) if row and row[0] is not None else 0

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        if not macs:
            rows = self._tx.run(_KNOWN_AFTER, {"after": after, "limit": limit}).rows
        else:
            statement = _KNOWN.where(one_of(_p.address, "mac", len(macs))).order_by(_p.address)
            rows = list(self._tx.connection.execute(statement, several("mac", tuple(macs))))
        return [KnownMac(mac, state in _STATES) for mac, state in rows]

    def forget(self, before: float) -> int:
        old = self._tx.run(_OLD, {"before": before}).scalars()
        if old:
            self._tx.run(_DELETE, {"seq": old[-1], "before": before})
        return len(old)
