"""MACs in SQL: which may boot, those of discovered machines, and those that were rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from sqlalchemy import Select, bindparam, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from ferroscope.contracts.errors import ConflictError
from ferroscope.contracts.queue import Channel
from ferroscope.core.boot_macs import KnownMac, MacChange
from ferroscope.core.lookup import Rejection
from ferroscope.core.model import Port
from ferroscope.core.states import MAY_BOOT, Provision
from ferroscope.db import mapping, schema
from ferroscope.db.mapping import Mapper, one_of, padded, several
from ferroscope.db.session import PendingAnswer, Session
from ferroscope.db.spellings import upsert

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
# Numbers are in the order of time, so the first ones are the oldest, which needs no index of the time.
_oldest = select(_c.seq, _c.at).order_by(_c.seq).limit(_BATCH_SIZE).subquery("oldest")
_OLD = select(_oldest.c.seq).where(_oldest.c.at < bindparam("before")).order_by(_oldest.c.seq)
_DELETE = delete(schema.mac_changes).where(_c.seq <= bindparam("seq"), _c.at < bindparam("before"))


class Macs:
    """Which MACs may boot, and the changes to that, for the PXE filters.

    Adding, moving or removing a port and removing a node record the changed MACs automatically; a change of a node's
    state calls ``changed``. Both publish on the channels ``allow`` and ``deny``.
    """

    def __init__(self, tx: Session) -> None:
        self._tx = tx
        self._asked: dict[str, PendingAnswer] = {}  # by node: its ports, as ``changed`` needs them

    def ahead(self, node: str) -> None:
        """Ask for what ``changed`` needs, to be sent with what is asked before.

        Call it when the node was asked to be locked, in a transaction that changes no ports of it.
        """
        self._asked[node] = self._tx.ask(_PORTS_OF, {"node": node})

    def changed(self, node: str, *, booting: bool) -> None:
        """Record that the node's MACs may boot, or no longer may, from this transaction on."""
        asked = self._asked.pop(node, None) or self._tx.ask(_PORTS_OF, {"node": node})
        ports = [(uuid, mac) for uuid, mac in asked.answer()]
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
        self.removed([(uuid, mac) for uuid, mac in self._tx.run(_PORTS_OF, {"node": node})])

    def _note(self, ports: Sequence[tuple[str, str]]) -> None:
        mapping.add(self._tx, schema.mac_changes, ("mac", "at"), [(mac, self._tx.now) for _, mac in ports])

    def _publish(self, channel: Channel, action: str, ports: Sequence[tuple[str, str]]) -> None:
        """Publish ``action port-uuid mac`` for each port, or only the channel's name if there are many."""
        if len(ports) > _MAX_NAMED:
            self._tx.wake(channel)
        else:
            for uuid, mac in ports:
                self._tx.wake(f"{channel} {action} {uuid} {mac}")

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


_REJECTION = Mapper(Rejection, schema.rejections)
_DISCOVERY: Final = "discovery"

_m, _r, _t = schema.machine_macs.c, schema.rejections.c, schema.tallies.c
# A transaction that began in the previous period and waited for the row must not reset the counter of the next one; a
# clock that was set back by more than a period does.
_LATE: Final = _t.period == bindparam("_next")
# The order matters: MariaDB assigns from left to right, and later expressions see the new values.
_START_PERIOD = (
    update(schema.tallies)
    .where(_t.name == bindparam("_name"))
    .ordered_values(
        (_t.made, case((_t.period == bindparam("_period"), _t.made), (_LATE, _t.made), else_=0)),
        (_t.period, case((_LATE, _t.period), else_=bindparam("_period"))),
    )
)
_START = insert(schema.tallies)
_CREATED = select(_t.made).where(_t.name == bindparam("_name"))
_COUNT = update(schema.tallies).where(_t.name == bindparam("_name")).values(made=_t.made + 1)
_UNCLAIMED = select(func.count()).where(
    _n.auto_discovered == bindparam("_yes"), _n.provision_state == bindparam("_state")
)
_UNCLAIMED_OF = _UNCLAIMED.where(_n.uuid.in_(select(_m.node).where(_m.source == bindparam("_source"))))
_d, _o = schema.inspection_data.c, schema.objects.c


def _stored_bytes(nodes: Select[Any]) -> tuple[Select[Any], ...]:
    """Return the queries of what is stored of the inspections of these nodes, in the database and elsewhere.

    The length of binary data is known without reading it, and has the same name on all databases.
    """
    return (
        select(func.sum(func.length(_d.content))).where(_d.node.in_(nodes)),
        select(func.sum(_o.size)).where(_o.node.in_(nodes)),
    )


_UNCLAIMED_BYTES = _stored_bytes(_UNCLAIMED.with_only_columns(_n.uuid))
_UNCLAIMED_BYTES_OF = _stored_bytes(_UNCLAIMED_OF.with_only_columns(_n.uuid))
_OF_SOURCE = select(_m.node).where(_m.source == bindparam("_source")).distinct().order_by(_m.node)
_ADD_MAC = insert(schema.machine_macs)
_MACS_OF = select(_m.address).where(_m.node == bindparam("_node")).order_by(_m.address)
_REJECTED = select(*_REJECTION.columns).order_by(_r.rejected_at.desc(), _r.address)
_FORGET = delete(schema.rejections).where(_r.rejected_at < bindparam("_before"))
_REMOVE = delete(schema.rejections).where(_r.address == bindparam("_address"))


@lru_cache(maxsize=16)
def _find(addresses: int) -> Select[Any]:
    return _REJECTED.where(one_of(_r.address, "address", addresses))


class Discoveries:
    """Machines that were enrolled as nodes when they called. Call ``created_in`` before creating such a node."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def created_in(self, period: int) -> int:
        """Return how many nodes were created in this period, or in the next one if that has already begun.

        It locks the counter, so no other transaction can create one before the end of this one. ``ConflictError`` if
        another one has just created the counter: retry in a new transaction.
        """
        if self._tx.run(_START_PERIOD, {"_name": _DISCOVERY, "_period": period, "_next": period + 1}).rowcount == 0:
            self._tx.ask(
                _START,
                {"name": _DISCOVERY, "period": period, "made": 0},
                failed=lambda _: ConflictError("name", _DISCOVERY),
            )
        return int(self._tx.run(_CREATED, {"_name": _DISCOVERY}).scalars()[0])

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Count the node, and identify it by these MACs if no port has them; ``source`` is the caller's address.

        ``ConflictError`` (field ``address``) if one of them already identifies a discovered node.
        """
        self._tx.ask(_COUNT, {"_name": _DISCOVERY})
        for address in sorted(set(addresses)):
            self._tx.ask(
                _ADD_MAC,
                {"address": address, "node": node, "source": source or None},
                failed=partial(_conflict, address),
            )

    def unclaimed(self, source: str | None = None) -> int:
        """Return how many discovered nodes (of this source) are still in ``enroll``, approved or not."""
        parameters = {"_yes": True, "_state": Provision.ENROLL.value}
        if source is None:
            return int(self._tx.run(_UNCLAIMED, parameters).scalars()[0])
        return int(self._tx.run(_UNCLAIMED_OF, parameters | {"_source": source}).scalars()[0])

    def unclaimed_bytes(self, source: str | None = None) -> int:
        """Return the bytes of the inspection data of discovered nodes (of this source) that are in ``enroll``."""
        parameters = {"_yes": True, "_state": Provision.ENROLL.value} | ({} if source is None else {"_source": source})
        queries = _UNCLAIMED_BYTES if source is None else _UNCLAIMED_BYTES_OF
        return sum(int(self._tx.run(query, parameters).scalars()[0] or 0) for query in queries)

    def of_source(self, source: str) -> Sequence[str]:
        """Return the nodes that were discovered by calls from this source."""
        return self._tx.run(_OF_SOURCE, {"_source": source}).scalars()

    def macs(self, node: str) -> Sequence[str]:
        """Return the MACs with which the node was discovered."""
        return self._tx.run(_MACS_OF, {"_node": node}).scalars()


class Rejections:
    """The MACs of machines that must not be discovered again."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Record these MACs as rejected now; ``source`` is the address from which the machine called."""
        same = {"node": node, "rejected_at": self._tx.now, "source": source or None}
        rows = [{"address": address} | same for address in sorted(set(addresses))]
        for row in rows:
            self._tx.ask(upsert(self._tx.dialect.name, schema.rejections), row)

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        """Return the rejections of these MACs, newest first."""
        if not addresses:
            return []
        padded_addresses = padded(addresses)
        rows = self._tx.run(_find(len(padded_addresses)), several("address", padded_addresses))
        return [_REJECTION.from_row(row) for row in rows]

    def list(self) -> Sequence[Rejection]:
        """Return all rejections, newest first."""
        return [_REJECTION.from_row(row) for row in self._tx.run(_REJECTED)]

    def remove(self, address: str) -> bool:
        """Remove the rejection of this MAC; return whether there was one."""
        return self._tx.run(_REMOVE, {"_address": address}).rowcount > 0

    def forget(self, before: float) -> None:
        """Remove the rejections from before this time."""
        self._tx.ask(_FORGET, {"_before": before})


def _conflict(address: str, _error: IntegrityError) -> Exception:
    return ConflictError("address", address)
