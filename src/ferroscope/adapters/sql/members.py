"""The party in SQL: the processes of the service and their heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Double, bindparam, delete, insert, select, update

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.dialect import db_now
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.contracts.queue import Channel
from ferroscope.core.model import Member

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_MEMBER = Mapper(Member, schema.members)

_m = schema.members.c
_FREE_LEASES = (
    update(schema.leases).where(schema.leases.c.holder == bindparam("_holder")).values(holder=None, expires_at=db_now())
)
_BEAT = {
    "expires_at": db_now() + bindparam("_ttl", type_=Double()),
    "sentence": bindparam("_sentence"),
    "detail": bindparam("_detail"),
    "ttl": bindparam("_ttl", type_=Double()),
}
_STILL_HERE = update(schema.members).where(_m.id == bindparam("_id")).values(_BEAT)
_JOIN = insert(schema.members).values({one.name: bindparam(f"_{one.name}") for one in schema.members.c} | _BEAT)
_LEAVE = delete(schema.members).where(_m.id == bindparam("_id"))
_PARTY = select(*_MEMBER.columns).order_by(_m.started_at, _m.id)


class SqlMembers:
    """See ``contracts.coordination.Members``."""

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
