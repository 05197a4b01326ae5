"""Inspection data, journal, lookup indexes and members in SQL."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import Double, LargeBinary, Select, and_, bindparam, delete, insert, or_, select, update

from ferroscope.adapters.sql import inserts, schema
from ferroscope.adapters.sql.dialect import db_now, largest_value, upsert
from ferroscope.adapters.sql.nodes import NODE
from ferroscope.adapters.sql.query import one_of, padded, page, several
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.domain.lookup import Candidates, Evidence
from ferroscope.domain.model import Entry, Member, Node
from ferroscope.domain.states import State
from ferroscope.ports.bus import Channel
from ferroscope.ports.data import Held, Part
from ferroscope.ports.store import Query

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_ENTRY = Mapper(Entry, schema.journal)
_MEMBER = Mapper(Member, schema.members)

_CODEC: Final = "zlib"
# Level 1 makes a tenth of an inventory in a third of a millisecond; more gains little.
_LEVEL: Final = 1
_AWAITED: Final = (State.STARTING, State.WAITING)

_d, _p, _b, _m = schema.inspection_data.c, schema.ports.c, schema.bmc_addresses.c, schema.members.c
_APPEND_PART = (
    update(schema.inspection_data)
    .where(_d.inspection == bindparam("_inspection"), _d.part == bindparam("_part"))
    .values(content=_d.content.concat(bindparam("_more", type_=LargeBinary())))
)
_NEW_ENTRY: Final = tuple(name for name in _ENTRY.fields if name != "id")
_BY_UUID = select(*NODE.columns).where(schema.nodes.c.uuid == bindparam("uuid"))
_DELETE_BMC = delete(schema.bmc_addresses).where(_b.node == bindparam("_node"))
_FREE_LEASES = (
    update(schema.leases).where(schema.leases.c.holder == bindparam("_holder")).values(holder=None, expires_at=db_now())
)
_BMC_OF = select(_b.address).where(_b.node == bindparam("node"))
_BEAT = {
    "expires_at": db_now() + bindparam("_ttl", type_=Double()),
    "sentence": bindparam("_sentence"),
    "detail": bindparam("_detail"),
}
_STILL_HERE = update(schema.members).where(_m.id == bindparam("_id")).values(_BEAT)
_JOIN = insert(schema.members).values({one.name: bindparam(f"_{one.name}") for one in schema.members.c} | _BEAT)
_LEAVE = delete(schema.members).where(_m.id == bindparam("_id"))
_PARTY = select(*_MEMBER.columns).order_by(_m.started_at, _m.id)
_HELD = select(_d.inspection, _d.part, _d.node, _d.created_at).order_by(_d.inspection, _d.part)
_i = schema.inspections.c
_HELD_OF_ENDED = (
    _HELD.join(schema.inspections, _i.uuid == _d.inspection)
    .where(
        or_(_i.state == State.FINISHED.value, _i.state == State.ERROR.value),
        or_(
            _d.inspection > bindparam("inspection"),
            and_(_d.inspection == bindparam("inspection"), _d.part > bindparam("part")),
        ),
    )
    .limit(bindparam("page_limit"))
)
_HELD_OF_NODE = _HELD.where(_d.node == bindparam("node"))
_DROP = delete(schema.inspection_data).where(
    _d.inspection == bindparam("inspection"), _d.part == bindparam("part"), _d.created_at == bindparam("at")
)


@lru_cache(maxsize=16)
def _load(parts: int) -> Select[Any]:
    return select(_d.part, _d.codec, _d.content).where(
        _d.inspection == bindparam("inspection"), one_of(_d.part, "part", parts)
    )


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
def _by_bmc(addresses: int) -> Select[Any]:
    owners = select(_b.node).where(one_of(_b.address, "address", addresses))
    awaited = or_(*(schema.nodes.c.state == state for state in _AWAITED))
    return select(*NODE.columns).where(schema.nodes.c.uuid.in_(owners), awaited)


class SqlInspectionData:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def save(self, inspection: str, node: str, parts: dict[Part, bytes]) -> None:
        if not parts:
            return
        size = largest_value(self._tx.connection)
        rows, rests = [], []
        for part, content in parts.items():
            key = {"inspection": inspection, "part": part}
            packed = zlib.compress(content, _LEVEL)
            first = packed[:size]
            rows.append(key | {"node": node, "codec": _CODEC, "content": first, "created_at": self._tx.now})
            rests += [
                {"_inspection": inspection, "_part": part, "_more": packed[start : start + size]}
                for start in range(size, len(packed), size)
            ]
        self._tx.run(upsert(self._tx.connection.dialect.name, schema.inspection_data), rows)
        for rest in rests:
            self._tx.run(_APPEND_PART, rest)

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        given = {"inspection": inspection} | several("part", tuple(parts))
        rows = self._tx.run(_load(len(parts)), given)
        return {part: zlib.decompress(content) for part, _codec, content in rows}

    def held(self, limit: int, *, after: tuple[str, str] = ("", "")) -> Sequence[Held]:
        given = {"inspection": after[0], "part": after[1], "page_limit": limit}
        return [_held(row) for row in self._tx.run(_HELD_OF_ENDED, given)]

    def of_node(self, node: str) -> Sequence[Held]:
        return [_held(row) for row in self._tx.run(_HELD_OF_NODE, {"node": node})]

    def drop(self, held: Held) -> bool:
        given = {"inspection": held.inspection, "part": held.part, "at": held.at}
        return self._tx.run(_DROP, given).rowcount == 1


def _held(row: Any) -> Held:
    inspection, part, node, at = row
    return Held(inspection=inspection, part=part, node=node, at=at)


class SqlJournal:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def append(self, entries: Iterable[Entry]) -> None:
        rows = []
        for entry in entries:
            row = _ENTRY.to_row(entry)
            row["uuid"] = entry.uuid or str(uuid.uuid4())
            row["at"] = entry.at or self._tx.now
            rows.append([row[name] for name in _NEW_ENTRY])
        inserts.add(self._tx, schema.journal, _NEW_ENTRY, rows)

    def list(self, query: Query) -> Sequence[Entry]:
        query = msgspec.structs.replace(query, sort_key="id")
        return page(self._tx, _ENTRY, query, key="id")


class SqlAddresses:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def candidates(self, evidence: Evidence) -> Candidates:
        by_uuid: Sequence[Node] = ()
        by_mac: Sequence[Node] = ()
        by_bmc: Sequence[Node] = ()
        if evidence.uuid:
            by_uuid = self._find(_BY_UUID, {"uuid": evidence.uuid})
        if evidence.macs:
            macs = padded(evidence.macs)
            by_mac = self._find(_by_mac(len(macs)), several("address", macs))
            by_mac = by_mac or self._find(_by_machine(len(macs)), several("address", macs))
        if evidence.bmc_addresses:
            addresses = padded(evidence.bmc_addresses)
            by_bmc = self._find(_by_bmc(len(addresses)), several("address", addresses))
        return Candidates(by_uuid=by_uuid[0] if by_uuid else None, by_mac=by_mac, by_bmc=by_bmc)

    def _find(self, statement: Select[Any], given: dict[str, Any]) -> list[Node]:
        return [NODE.from_row(row) for row in self._tx.run(statement, given)]

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        wanted = set(addresses)
        if set(self._tx.run(_BMC_OF, {"node": node}).scalars()) != wanted:
            self._tx.run(_DELETE_BMC, {"_node": node})
            inserts.add(self._tx, schema.bmc_addresses, ("address", "node"), [(one, node) for one in sorted(wanted)])


class SqlMembers:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def beat(self, member: Member, ttl: float) -> None:
        row = {f"_{name}": value for name, value in _MEMBER.to_row(member).items()}
        said = {"_sentence": member.sentence[:255], "_detail": row["_detail"], "_ttl": ttl}
        if self._tx.run(_STILL_HERE, said | {"_id": member.id}).rowcount == 0:
            del row["_expires_at"]
            self._tx.run(_JOIN, row | said | {"_started_at": self._tx.now})

    def leave(self, ident: str) -> None:
        self._tx.run(_LEAVE, {"_id": ident})
        self._tx.run(_FREE_LEASES, {"_holder": ident})
        self._tx.wake(Channel.REQUESTS)
        self._tx.wake(Channel.LEASES)

    def list(self) -> Sequence[Member]:
        return [_MEMBER.from_row(row) for row in self._tx.run(_PARTY)]
