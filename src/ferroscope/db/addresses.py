"""The indexes that identify a machine that calls back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Select, bindparam, delete, or_, select

from ferroscope.core.callback_secret import Delivery, ended_secret
from ferroscope.core.lookup import MAX_MACS, Candidates, Evidence
from ferroscope.core.model import Node
from ferroscope.core.states import AWAITED
from ferroscope.db import mapping, schema
from ferroscope.db.mapping import one_of, padded, several
from ferroscope.db.nodes import NODE
from ferroscope.db.session import PendingAnswer, Session
from ferroscope.db.spellings import upsert

_i = schema.inspections.c
_p, _b, _m = schema.ports.c, schema.bmc_addresses.c, schema.machine_macs.c
_NODE_BY_UUID = select(*NODE.columns).where(schema.nodes.c.uuid == bindparam("uuid"))
_DELETE_BMC = delete(schema.bmc_addresses).where(_b.node == bindparam("_node"))
_CALLED_DAYS: Final = 30 * 86400.0
# Anybody can call as a machine that is waited for, from any number of addresses.
MAX_CALLERS: Final = 8

_c = schema.callers.c
_CALLS_OF = select(_c.at).where(_c.node == bindparam("_node"))
_FORGET_CALLERS = delete(schema.callers).where(_c.node == bindparam("_node"), _c.at < bindparam("_until"))
_BMC_OF = select(_b.address).where(_b.node == bindparam("node"))


@lru_cache(maxsize=16)
def _by_mac(addresses: int) -> Select[Any]:
    owners = select(_p.node).where(one_of(_p.address, "address", addresses))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners))


@lru_cache(maxsize=16)
def _by_machine(addresses: int) -> Select[Any]:
    owners = select(_m.node).where(one_of(_m.address, "address", addresses))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners))


@lru_cache(maxsize=16)
def _port_macs(addresses: int) -> Select[Any]:
    return select(_p.address, _p.node).where(one_of(_p.address, "address", addresses))


@lru_cache(maxsize=16)
def _machine_macs(addresses: int) -> Select[Any]:
    return select(_m.address, _m.node).where(one_of(_m.address, "address", addresses))


# Only the current inspection of a node counts; of one that has ended, the digest of the secret is stored.
_BY_SECRET = (
    select(*NODE.columns, _i.secret_delivery)
    .select_from(schema.inspections.join(schema.nodes, schema.nodes.c.uuid == _i.node))
    .where(one_of(_i.secret, "secret", 2), schema.nodes.c.inspection == _i.uuid)
)


@lru_cache(maxsize=16)
def _addresses_of(nodes: int) -> Select[Any]:
    return select(_b.node, _b.address).where(one_of(_b.node, "node", nodes))


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


class Addresses:
    """The indexes that identify a machine that calls back."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def candidates(self, evidence: Evidence, secret: str | None = None) -> Candidates:
        """Return the nodes that match, in a constant number of indexed queries.

        ``secret``: the one that the machine presented. ``same`` and ``different`` of the result are left to the caller.
        """
        macs, addresses = padded(evidence.macs), padded(evidence.bmc_addresses)
        parameters = several("address", macs)
        uuid_query = self._tx.ask(_NODE_BY_UUID, {"uuid": evidence.uuid}) if evidence.uuid else None
        mac_query = self._tx.ask(_by_mac(len(macs)), parameters) if macs else None
        port_query = self._tx.ask(_port_macs(len(macs)), parameters) if macs else None
        machine_query = self._tx.ask(_machine_macs(len(macs)), parameters) if macs else None
        bmc_query = self._tx.ask(_by_bmc(len(addresses)), several("address", addresses)) if addresses else None
        secrets = several("secret", (secret, ended_secret(secret))) if secret else {}
        secret_query = self._tx.ask(_BY_SECRET, secrets) if secrets else None
        by_uuid, by_mac, by_bmc = _nodes(uuid_query), _nodes(mac_query), _nodes(bmc_query)
        # A port has precedence over a discovered machine that called with its MAC.
        matches = _pairs(machine_query) | _pairs(port_query)
        discovered = set(matches.values()) - {node.uuid for node in by_mac}
        if discovered:
            owners = self._find(_by_machine(len(macs)), parameters)
            by_mac += [node for node in owners if node.uuid in discovered]
        proven = list(secret_query.answer()) if secret_query is not None else []
        return Candidates(
            by_uuid=by_uuid[0] if by_uuid else None,
            by_mac=by_mac,
            by_bmc=by_bmc,
            by_secret=NODE.from_row(proven[0][:-1]) if proven else None,
            over_bmc=bool(proven) and proven[0][-1] == Delivery.VIRTUAL_MEDIA,
            matches=matches,
        )

    def _find(self, statement: Select[Any], parameters: dict[str, Any]) -> list[Node]:
        return _nodes(self._tx.ask(statement, parameters))

    def select_owned(self, macs: Sequence[str]) -> set[str]:
        """Return those of these MACs that identify a node: by a port, or by its discovery."""
        owned: set[str] = set()
        for start in range(0, len(macs), MAX_MACS):
            part = padded(macs[start : start + MAX_MACS])
            parameters = several("address", part)
            owned.update(_pairs(self._tx.ask(_port_macs(len(part)), parameters)))
            owned.update(_pairs(self._tx.ask(_machine_macs(len(part)), parameters)))
        return owned

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        """Replace the BMC addresses of the node."""
        wanted = set(addresses)
        if set(self._tx.run(_BMC_OF, {"node": node}).scalars()) != wanted:
            self._tx.ask(_DELETE_BMC, {"_node": node})
            mapping.add(
                self._tx, schema.bmc_addresses, ("address", "node"), [(address, node) for address in sorted(wanted)]
            )

    def bmc_of(self, node: str) -> Sequence[str]:
        """Return the BMC addresses of the node."""
        return sorted(self._tx.run(_BMC_OF, {"node": node}).scalars())

    def of_nodes(self, nodes: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the BMC addresses of those of these nodes that have any."""
        if not nodes:
            return {}
        uuids = padded(nodes)
        stored: dict[str, list[str]] = {}
        for node, address in self._tx.run(_addresses_of(len(uuids)), several("node", uuids)):
            stored.setdefault(node, []).append(address)
        return stored

    def owners(self, bmc_addresses: Sequence[str]) -> Sequence[Node]:
        """Return the nodes with one of these BMC addresses, whatever their state."""
        if not bmc_addresses:
            return []
        addresses = padded(bmc_addresses)
        return self._find(_owners(len(addresses)), several("address", addresses))

    def sharing(self, nodes: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return, for each of these nodes that has any, the other nodes with one of its BMC addresses."""
        own, neighbor = schema.bmc_addresses.alias("own"), schema.bmc_addresses.alias("other")
        statement = (
            select(own.c.node, neighbor.c.node)
            .select_from(own.join(neighbor, own.c.address == neighbor.c.address))
            .where(own.c.node.in_(list(nodes)), neighbor.c.node != own.c.node)
            .order_by(own.c.node, neighbor.c.node)
        )
        sharing: dict[str, dict[str, None]] = {}  # several addresses may be shared
        for node, same in self._tx.connection.execute(statement):
            sharing.setdefault(node, {})[same] = None
        return {node: list(others) for node, others in sharing.items()}

    def called(self, node: str, source: str) -> None:
        """Record that the node's machine has just called from this address; of many, the latest are kept."""
        if source:
            row = {"source": source, "node": node, "at": self._tx.now}
            self._tx.ask(upsert(self._tx.dialect.name, schema.callers), row)
            # As a check it costs no round trip: the node is written in the same transaction, and checked as well.
            self._tx.ask(_CALLS_OF, {"_node": node}, check=lambda answer: self._forget_callers(node, answer.scalars()))

    def _forget_callers(self, node: str, times: Sequence[float]) -> None:
        latest = sorted(times, reverse=True)[:MAX_CALLERS]
        until = max(latest[0] - _CALLED_DAYS, latest[-1] if len(latest) == MAX_CALLERS else 0.0)
        if min(times) < until:
            self._tx.ask(_FORGET_CALLERS, {"_node": node, "_until": until})

    def callers(self, source: str) -> Sequence[Node]:
        """Return the nodes that wait for a callback and whose machines have called from this address before."""
        return self._find(_callers(), {"source": source}) if source else []


def _pairs(pending: PendingAnswer | None) -> dict[str, str]:
    return {} if pending is None else dict(pending.answer().rows)


def _nodes(pending: PendingAnswer | None) -> list[Node]:
    return [] if pending is None else [NODE.from_row(row) for row in pending.answer()]
