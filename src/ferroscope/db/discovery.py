"""Discovered machines in SQL: their MACs, how many were created in the current minute, and rejected ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from sqlalchemy import Select, bindparam, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.lookup import Rejection
from ferroscope.core.states import Provision
from ferroscope.db import schema
from ferroscope.db.engine import upsert
from ferroscope.db.mapping import Mapper, one_of, padded, several
from ferroscope.db.session import SqlSession

_REJECTION = Mapper(Rejection, schema.rejections)
_DISCOVERY: Final = "discovery"

_n, _m, _r, _t = schema.nodes.c, schema.machine_macs.c, schema.rejections.c, schema.tallies.c
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
_OF_SOURCE = select(_m.node).where(_m.source == bindparam("_source")).distinct().order_by(_m.node)
_ADD_MAC = insert(schema.machine_macs)
_MACS_OF = select(_m.address).where(_m.node == bindparam("_node")).order_by(_m.address)
_REJECTED = select(*_REJECTION.columns).order_by(_r.rejected_at.desc(), _r.address)
_FORGET = delete(schema.rejections).where(_r.rejected_at < bindparam("_before"))
_REMOVE = delete(schema.rejections).where(_r.address == bindparam("_address"))


@lru_cache(maxsize=16)
def _find(addresses: int) -> Select[Any]:
    return _REJECTED.where(one_of(_r.address, "address", addresses))


class SqlDiscoveries:
    """See ``contracts.data.Discoveries``."""

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def created_in(self, period: int) -> int:
        if self._tx.run(_START_PERIOD, {"_name": _DISCOVERY, "_period": period, "_next": period + 1}).rowcount == 0:
            self._tx.ask(
                _START,
                {"name": _DISCOVERY, "period": period, "made": 0},
                failed=lambda _: ConflictError("name", _DISCOVERY),
            )
        return int(self._tx.run(_CREATED, {"_name": _DISCOVERY}).scalars()[0])

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        self._tx.ask(_COUNT, {"_name": _DISCOVERY})
        for address in sorted(set(addresses)):
            self._tx.ask(
                _ADD_MAC,
                {"address": address, "node": node, "source": source or None},
                failed=partial(_taken, address),
            )

    def unclaimed(self, source: str | None = None) -> int:
        given = {"_yes": True, "_state": Provision.ENROLL.value}
        if source is None:
            return int(self._tx.run(_UNCLAIMED, given).scalars()[0])
        return int(self._tx.run(_UNCLAIMED_OF, given | {"_source": source}).scalars()[0])

    def of_source(self, source: str) -> Sequence[str]:
        return self._tx.run(_OF_SOURCE, {"_source": source}).scalars()

    def macs(self, node: str) -> Sequence[str]:
        return self._tx.run(_MACS_OF, {"_node": node}).scalars()


class SqlRejections:
    """See ``contracts.data.Rejections``."""

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        same = {"node": node, "rejected_at": self._tx.now, "source": source or None}
        rows = [{"address": address} | same for address in sorted(set(addresses))]
        for row in rows:
            self._tx.ask(upsert(self._tx.dialect.name, schema.rejections), row)

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        if not addresses:
            return []
        given = padded(addresses)
        rows = self._tx.run(_find(len(given)), several("address", given))
        return [_REJECTION.from_row(row) for row in rows]

    def list(self) -> Sequence[Rejection]:
        return [_REJECTION.from_row(row) for row in self._tx.run(_REJECTED)]

    def remove(self, address: str) -> bool:
        return self._tx.run(_REMOVE, {"_address": address}).rowcount > 0

    def forget(self, before: float) -> None:
        self._tx.ask(_FORGET, {"_before": before})


def _taken(address: str, _error: IntegrityError) -> Exception:
    return ConflictError("address", address)
