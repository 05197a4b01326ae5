"""The indexes by which a machine that calls back is found, in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, bindparam, delete, or_, select

from ferroscope.adapters.sql import inserts, schema
from ferroscope.adapters.sql.batch import Asked
from ferroscope.adapters.sql.dialect import upsert
from ferroscope.adapters.sql.nodes import NODE
from ferroscope.adapters.sql.query import one_of, padded, several
from ferroscope.core.lookup import Candidates, Evidence
from ferroscope.core.model import Node
from ferroscope.core.states import AWAITED

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_p, _b = schema.ports.c, schema.bmc_addresses.c
_NODE_BY_UUID = select(*NODE.columns).where(schema.nodes.c.uuid == bindparam("uuid"))
_DELETE_BMC = delete(schema.bmc_addresses).where(_b.node == bindparam("_node"))
_CALLED_DAYS: Final = 30 * 86400.0

_c = schema.callers.c
_HEARD_LAST = delete(schema.callers).where(_c.node == bindparam("_node"), _c.at < bindparam("_before"))
_BMC_OF = select(_b.address).where(_b.node == bindparam("node"))


@lru_cache(maxsize=16)
def _by_mac(addresses: int) -> Select[Any]:
    owners = select(_p.node).where(one_of(_p.address, "address", addresses))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners))


@lru_cache(maxsize=16)
def _by_machine(addresses: int) -> Select[Any]:
    macs = schema.machine_macs.c
    owners = select(macs.node).where(one_of(macs.address, "address", addresses))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners))


@lru_cache(maxsize=16)
def _owners(addresses: int) -> Select[Any]:
    owners = select(_b.node).where(one_of(_b.address, "address", addresses))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners))


@lru_cache(maxsize=1)
def _callers() -> Select[Any]:
    callers = select(_c.node).where(_c.source == bindparam("source"))
    awaited = or_(*(schema.nodes.c.state == state for state in sorted(AWAITED)))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(callers), awaited)


@lru_cache(maxsize=16)
def _by_bmc(addresses: int) -> Select[Any]:
    owners = select(_b.node).where(one_of(_b.address, "address", addresses))
    awaited = or_(*(schema.nodes.c.state == state for state in sorted(AWAITED)))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners), awaited)


class SqlAddresses:
    """See ``contracts.store.Addresses``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def candidates(self, evidence: Evidence) -> Candidates:
        macs, addresses = padded(evidence.macs), padded(evidence.bmc_addresses)
        asked_uuid = self._tx.ask(_NODE_BY_UUID, {"uuid": evidence.uuid}) if evidence.uuid else None
        asked_mac = self._tx.ask(_by_mac(len(macs)), several("address", macs)) if macs else None
        asked_bmc = self._tx.ask(_by_bmc(len(addresses)), several("address", addresses)) if addresses else None
        by_uuid, by_mac, by_bmc = _nodes(asked_uuid), _nodes(asked_mac), _nodes(asked_bmc)
        if macs and not by_mac:
            by_mac = self._find(_by_machine(len(macs)), several("address", macs))
        return Candidates(by_uuid=by_uuid[0] if by_uuid else None, by_mac=by_mac, by_bmc=by_bmc)

    def _find(self, statement: Select[Any], given: dict[str, Any]) -> list[Node]:
        return _nodes(self._tx.ask(statement, given))

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        wanted = set(addresses)
        if set(self._tx.run(_BMC_OF, {"node": node}).scalars()) != wanted:
            self._tx.ask(_DELETE_BMC, {"_node": node})
            inserts.add(self._tx, schema.bmc_addresses, ("address", "node"), [(one, node) for one in sorted(wanted)])

    def bmc_of(self, node: str) -> Sequence[str]:
        return sorted(self._tx.run(_BMC_OF, {"node": node}).scalars())

    def owners(self, bmc_addresses: Sequence[str]) -> Sequence[Node]:
        if not bmc_addresses:
            return []
        addresses = padded(bmc_addresses)
        return self._find(_owners(len(addresses)), several("address", addresses))

    def called(self, node: str, source: str) -> None:
        now = self._tx.now
        if source:
            self._tx.ask(_HEARD_LAST, {"_node": node, "_before": now - _CALLED_DAYS})
            self._tx.ask(upsert(self._tx.dialect.name, schema.callers), {"source": source, "node": node, "at": now})

    def callers(self, source: str) -> Sequence[Node]:
        return self._find(_callers(), {"source": source}) if source else []


def _nodes(asked: Asked | None) -> list[Node]:
    return [] if asked is None else [NODE.from_row(row) for row in asked.answer()]
