"""Machines that called before they were nodes: enrolled, rejected or refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from sqlalchemy import Select, bindparam, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.lookup import RefusedCaller, Rejection
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, one_of, padded, several, upsert
from ferroscope.db.nodes import Addresses
from ferroscope.db.session import Repository
from ferroscope_client.core.states import Provision

_REJECTION = Mapper(Rejection, schema.rejections)
_DISCOVERY: Final = "discovery"

_n = schema.nodes.c
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
    """Return the queries for the bytes of these nodes' inspection data, in the database and elsewhere.

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


class Discoveries(Repository):
    """Machines that were enrolled as nodes when they called. Call ``created_in`` before creating such a node."""

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


class Rejections(Repository):
    """The MACs of machines that must not be discovered again."""

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


_CALLER = Mapper(RefusedCaller, schema.refused_callers)
_c = schema.refused_callers.c
_OF_MACHINE = (_c.source == bindparam("_source"), _c.machine == bindparam("_machine"))
_LIST = select(*_CALLER.columns).order_by(_c.called_at.desc(), _c.source, _c.machine)
_LAST_CALL = select(_c.called_at).where(*_OF_MACHINE)
_REMOVE_CALLER = delete(schema.refused_callers).where(*_OF_MACHINE)


class RefusedCallers(Repository):
    """The last call of each machine from each source address."""

    def list(self) -> Sequence[RefusedCaller]:
        """Return all, the newest first."""
        return [_CALLER.from_row(row) for row in self._tx.run(_LIST)]

    def list_unknown(self, since: float) -> Sequence[RefusedCaller]:
        """Return those that have called since then, and whose machines belong to no node yet, the newest first."""
        recent = [caller for caller in self.list() if caller.called_at >= since]
        owned = Addresses(self._tx).select_owned([mac for caller in recent for mac in caller.macs])
        return [caller for caller in recent if owned.isdisjoint(caller.macs)]

    def read_last_call(self, source: str, machine: str) -> float | None:
        """Return when this machine called from this address; None if it has not."""
        row = self._tx.run(_LAST_CALL, {"_source": source, "_machine": machine}).first()
        return None if row is None else float(row[0])

    def put(self, caller: RefusedCaller) -> None:
        """Record this call in the place of the machine's call before."""
        self._tx.ask(upsert(self._tx.dialect.name, schema.refused_callers), _CALLER.to_row(caller))

    def remove(self, callers: Sequence[RefusedCaller]) -> None:
        """Forget these machines."""
        for caller in callers:
            self._tx.ask(_REMOVE_CALLER, {"_source": caller.source, "_machine": caller.machine})
