"""The NICs of all nodes, and which of their MACs may boot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, func, insert, or_, select, update

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Channel, Later, Query
from ferroscope.core.boot_macs import KnownMac, MacChange
from ferroscope.core.model import Port
from ferroscope.db import mapping, schema
from ferroscope.db.errors import conflict
from ferroscope.db.mapping import Mapper, one_of, page, page_later, several, sizes
from ferroscope.db.session import Answer, PendingAnswer, Repository
from ferroscope_client.core.states import MAY_BOOT

_BATCH_SIZE: Final = 5000
# If a transaction changes more MACs than this, its messages do not list them.
_MAX_NAMED: Final = 32

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
# Numbers are in the order of time, so the first ones are the oldest: an index of the time is unnecessary.
_oldest = select(_c.seq, _c.at).order_by(_c.seq).limit(_BATCH_SIZE).subquery("oldest")
_OLD = select(_oldest.c.seq).where(_oldest.c.at < bindparam("before")).order_by(_oldest.c.seq)
_DELETE = delete(schema.mac_changes).where(_c.seq <= bindparam("seq"), _c.at < bindparam("before"))


class Macs(Repository):
    """Which MACs may boot, and the changes to that, for the PXE filters.

    Adding, moving or removing a port and removing a node record the changed MACs automatically; a change of a node's
    state calls ``changed``. Both publish on the channels ``allow`` and ``deny``.

    ``_asked``: by node, its ports, as ``changed`` needs them.
    """

    _asked: dict[str, PendingAnswer] = {}

    def ahead(self, node: str) -> None:
        """Ask for what ``changed`` needs, to be sent with what is asked before.

        Call it when the node was asked to be locked, in a transaction that changes no ports of it.
        """
        self._asked[node] = self._tx.ask(_PORTS_OF, {"node": node})

    def changed(self, node: str, *, booting: bool) -> None:
        """Record that the node's MACs may boot, or no longer may, from this transaction on."""
        asked = self._asked.pop(node, None) or self._tx.ask(_PORTS_OF, {"node": node})
        ports = asked.answer().rows
        self._note(ports)
        self._publish(Channel.ALLOW, "add" if booting else "remove", ports)
        self._publish(Channel.DENY, "remove" if booting else "add", ports)

    def added(self, ports: Sequence[Port]) -> None:
        """Record that these ports are new, or have been moved to another node."""
        named = [(port.uuid, port.address) for port in ports]
        self._note(named)
        if len(ports) > _MAX_NAMED:
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
        self.removed(self._tx.run(_PORTS_OF, {"node": node}).rows)

    def _note(self, ports: Sequence[tuple[str, str]]) -> None:
        mapping.add(self._tx, schema.mac_changes, ("mac", "at"), [(mac, self._tx.now) for _, mac in ports])

    def _publish(self, channel: Channel, action: str, ports: Sequence[tuple[str, str]]) -> None:
        """Publish ``action port-uuid mac`` for each port, or only the channel's name if there are many."""
        if len(ports) > _MAX_NAMED:
            self._tx.woken.add(channel)
        else:
            for uuid, mac in ports:
                self._tx.woken.add(f"{channel} {action} {uuid} {mac}")

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        """Return the changes with greater numbers than ``seq``, in order; see ``core.boot_macs.ChangeWindow``."""
        return [MacChange(*row) for row in self._tx.run(_SINCE, {"seq": seq, "limit": limit})]

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        """Return the greatest number: of all changes, of this node's MACs, or from before ``before``; 0 if none."""
        if node is not None:
            row = self._tx.run(_NEWEST_OF, {"node": node}).first()
        elif before is not None:
            row = self._tx.run(_NEWEST_BEFORE, {"before": before}).first()
        else:
            row = self._tx.run(_NEWEST).first()
        return int(row[0]) if row and row[0] is not None else 0

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        """Return MACs of known nodes, by MAC: those of ``macs``, or the first ``limit`` ones after ``after``."""
        if not macs:
            rows = self._tx.run(_KNOWN_AFTER, {"after": after, "limit": limit}).rows
        else:
            statement = _KNOWN.where(one_of(_p.address, "mac", len(macs))).order_by(_p.address)
            rows = list(self._tx.connection.execute(statement, several("mac", tuple(macs))))
        return [KnownMac(mac, state in _STATES) for mac, state in rows]

    def forget(self, before: float) -> int:
        """Delete changes from before this time, some thousands per call; return their number."""
        old = self._tx.run(_OLD, {"before": before}).scalars()
        if old:
            self._tx.run(_DELETE, {"seq": old[-1], "before": before})
        return len(old)


# The NICs.

_PORT = Mapper(Port, schema.ports)

_INSERT_PORT = insert(schema.ports)
_SELECT_PORT = select(*_PORT.columns).where(or_(_p.uuid == bindparam("ident"), _p.address == bindparam("ident")))
_UPDATE_PORT = (
    update(schema.ports)
    .where(_p.uuid == bindparam("_uuid"))
    .values({name: bindparam(name) for name in Port.__struct_fields__ if name not in ("uuid", "created_at")})
)


class Ports(Repository):
    """The NICs of all nodes."""

    def add(self, ports: Iterable[Port]) -> None:
        """Store new ports; on ``ConflictError`` (field ``address`` or ``uuid``) none is stored."""
        added = []
        for port in ports:
            row = _PORT.to_row(port)
            row["created_at"] = port.created_at or self._tx.now
            self._tx.ask(_INSERT_PORT, row, failed=partial(conflict, row=row, table=schema.ports))
            self._tx.written.note("port", port.uuid, port.updated_at)
            added.append(port)
        Macs(self._tx).added(added)

    def get(self, ident: str) -> Port:
        """Return the port with this UUID or MAC; ``NotFoundError``."""
        row = self._tx.run(_SELECT_PORT, {"ident": ident}).first()
        if row is None:
            raise NotFoundError("port", ident)
        return _PORT.from_row(row)

    def update(self, port: Port) -> Port:
        """Save all fields and return the port with its new ``updated_at``; ``ConflictError``."""
        self._tx.written.check("port", port.uuid, port.updated_at)
        before = self.get(port.uuid)
        changed = msgspec.structs.replace(port, updated_at=self._tx.now)
        row = _PORT.to_row(changed)

        def check(answer: Answer) -> None:
            if answer.rowcount == 0:
                raise NotFoundError("port", port.uuid)

        self._tx.ask(
            _UPDATE_PORT,
            row | {"_uuid": port.uuid},
            check=check,
            failed=partial(conflict, row=row, table=schema.ports),
        )
        if (before.address, before.node) != (port.address, port.node):
            Macs(self._tx).removed([(port.uuid, before.address)])
            Macs(self._tx).added([port])
        self._tx.written.note("port", port.uuid, changed.updated_at)
        return changed

    def remove(self, uuids: Iterable[str]) -> None:
        """Delete these ports; those that do not exist are ignored."""
        wanted = list(uuids)
        removed_ports = self._tx.connection.execute(select(_p.uuid, _p.address).where(_p.uuid.in_(wanted)))
        Macs(self._tx).removed([(uuid, mac) for uuid, mac in removed_ports])
        self._tx.connection.execute(delete(schema.ports).where(_p.uuid.in_(wanted)))

    def list(self, query: Query) -> Sequence[Port]:
        """Return one page of ports."""
        return page(self._tx, _PORT, query)

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        return sizes(self._tx, _PORT, query)

    def list_later(self, query: Query) -> Later[Sequence[Port]]:
        """Like ``list``, but read later; see ``Later``."""
        return page_later(self._tx, _PORT, query)
