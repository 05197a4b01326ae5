"""Inspection data, journal, lookup indexes and members in SQL."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import LargeBinary, bindparam, delete, insert, select, update

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.dialect import db_now, largest_value, upsert
from ferroscope.adapters.sql.nodes import NODE
from ferroscope.adapters.sql.query import page
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.domain.lookup import Candidates, Evidence
from ferroscope.domain.model import Entry, Member, Node
from ferroscope.domain.states import State
from ferroscope.ports.store import Part, Query

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
_LOAD = select(_d.part, _d.codec, _d.content).where(
    _d.inspection == bindparam("inspection"), _d.part.in_(bindparam("parts", expanding=True))
)
_INSERT_ENTRY = insert(schema.journal)
_BY_UUID = select(*NODE.columns).where(schema.nodes.c.uuid == bindparam("uuid"))
_BY_MAC = select(*NODE.columns).where(
    schema.nodes.c.uuid.in_(select(_p.node).where(_p.address.in_(bindparam("addresses", expanding=True))))
)
_BY_BMC = select(*NODE.columns).where(
    schema.nodes.c.uuid.in_(select(_b.node).where(_b.address.in_(bindparam("addresses", expanding=True)))),
    schema.nodes.c.state.in_(_AWAITED),
)
_DELETE_BMC = delete(schema.bmc_addresses).where(_b.node == bindparam("_node"))
_FREE_LEASES = (
    update(schema.leases).where(schema.leases.c.holder == bindparam("_holder")).values(holder=None, expires_at=db_now())
)
_INSERT_BMC = insert(schema.bmc_addresses)


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
        rows = self._tx.connection.execute(_LOAD, {"inspection": inspection, "parts": list(parts)})
        return {part: zlib.decompress(content) for part, _codec, content in rows}


class SqlJournal:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def append(self, entries: Iterable[Entry]) -> None:
        rows = []
        for entry in entries:
            row = _ENTRY.to_row(entry)
            del row["id"]
            row["uuid"] = entry.uuid or str(uuid.uuid4())
            row["at"] = entry.at or self._tx.now
            rows.append(row)
        if rows:
            self._tx.run(_INSERT_ENTRY, rows)

    def list(self, query: Query) -> Sequence[Entry]:
        query = msgspec.structs.replace(query, sort_key="id")
        statement = page(self._tx.connection, _ENTRY, query, key="id")
        return [_ENTRY.from_row(row) for row in self._tx.connection.execute(statement)]


class SqlAddresses:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def candidates(self, evidence: Evidence) -> Candidates:
        execute = self._tx.connection.execute
        by_uuid: Node | None = None
        by_mac: Sequence[Node] = ()
        by_bmc: Sequence[Node] = ()
        if evidence.uuid:
            row = execute(_BY_UUID, {"uuid": evidence.uuid}).first()
            by_uuid = NODE.from_row(row) if row is not None else None
        if evidence.macs:
            rows = execute(_BY_MAC, {"addresses": list(evidence.macs)})
            by_mac = [NODE.from_row(row) for row in rows]
        if evidence.bmc_addresses:
            rows = execute(_BY_BMC, {"addresses": list(evidence.bmc_addresses)})
            by_bmc = [NODE.from_row(row) for row in rows]
        return Candidates(by_uuid=by_uuid, by_mac=by_mac, by_bmc=by_bmc)

    def set_bmc(self, node: str, addresses: Iterable[str]) -> None:
        self._tx.run(_DELETE_BMC, {"_node": node})
        rows = [{"address": address, "node": node} for address in sorted(set(addresses))]
        if rows:
            self._tx.run(_INSERT_BMC, rows)


class SqlMembers:
    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def beat(self, member: Member, ttl: float) -> None:
        table = schema.members
        row = _MEMBER.to_row(member)
        values = {"expires_at": db_now() + ttl, "sentence": member.sentence[:255], "detail": row["detail"]}
        alive = table.update().where(_m.id == member.id).values(values)
        if self._tx.connection.execute(alive).rowcount == 0:
            self._tx.connection.execute(table.insert().values(row | {"started_at": self._tx.now} | values))

    def leave(self, ident: str) -> None:
        self._tx.connection.execute(delete(schema.members).where(_m.id == ident))
        self._tx.run(_FREE_LEASES, {"_holder": ident})
        self._tx.wake("requests")
        self._tx.wake("leases")

    def list(self) -> Sequence[Member]:
        rows = self._tx.connection.execute(select(*_MEMBER.columns).order_by(_m.started_at, _m.id))
        return [_MEMBER.from_row(row) for row in rows]
