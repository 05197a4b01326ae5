"""The members: the processes of the service, with their heartbeats."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Double, bindparam, case, delete, insert, select, update

from ferroscope.contracts.store import Channel
from ferroscope.core.losses import GAP_SHARE
from ferroscope.core.model import Member
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, db_now
from ferroscope.db.session import Repository

_MEMBER = Mapper(Member, schema.members)

_m = schema.members.c
_FREE_LEASES = (
    update(schema.leases).where(schema.leases.c.holder == bindparam("_holder")).values(holder=None, expires_at=db_now())
)
# Compared by the database's clock. MariaDB assigns in the order of the statement, so this comes before what it reads.
_STEADY_SINCE = case((_m.expires_at < db_now() + _m.ttl * (1.0 - GAP_SHARE), db_now()), else_=_m.steady_since)
_BEAT = {
    "left_at": None,
    "died_at": None,
    "expires_at": db_now() + bindparam("_ttl", type_=Double()),
    "status": bindparam("_status"),
    "detail": bindparam("_detail"),
    "ttl": bindparam("_ttl", type_=Double()),
}
_HEARTBEAT = (
    update(schema.members)
    .where(_m.id == bindparam("_id"))
    .ordered_values(("steady_since", _STEADY_SINCE), *_BEAT.items())
)
_JOIN = insert(schema.members).values(
    {column.name: bindparam(f"_{column.name}") for column in schema.members.c} | _BEAT | {"steady_since": db_now()}
)
_LEAVE = update(schema.members).where(_m.id == bindparam("_id")).values(left_at=db_now(), expires_at=db_now(), ttl=0.0)
_DIE = _LEAVE.values(died_at=db_now())
_LIST_ALL = select(*_MEMBER.columns).order_by(_m.started_at, _m.id)
_LIST_MEMBERS = _LIST_ALL.where(_m.left_at.is_(None))
_FORGET_MEMBERS = delete(schema.members).where(_m.expires_at < bindparam("_before", type_=Double()))


class Members(Repository):
    """The members: all running processes of the service."""

    def beat(self, member: Member, ttl: float) -> None:
        """Add the member, or renew it: it is alive for another ``ttl`` seconds."""
        row = {f"_{name}": value for name, value in _MEMBER.to_row(member).items()}
        values = {"_status": member.status[:255], "_detail": row["_detail"], "_ttl": ttl}
        if self._tx.run(_HEARTBEAT, values | {"_id": member.id}).rowcount == 0:
            for name in ("_expires_at", "_steady_since", "_left_at", "_died_at"):
                del row[name]
            self._tx.run(_JOIN, row | values | {"_started_at": self._tx.now})

    def leave(self, ident: str, *, died: bool = False) -> None:
        """End the membership, and release the member's leases and claims at once.

        ``died``: because of what it did, so that the requests it held count this as an attempt (``core.losses``).
        """
        self._tx.run(_DIE if died else _LEAVE, {"_id": ident})
        self._tx.run(_FREE_LEASES, {"_holder": ident})
        self._tx.woken.add(Channel.REQUESTS)
        self._tx.woken.add(Channel.LEASES)

    def list(self, *, left: bool = False) -> Sequence[Member]:
        """Return all members, including dead ones that have not been forgotten yet; ``left``: and those that left."""
        return [_MEMBER.from_row(row) for row in self._tx.run(_LIST_ALL if left else _LIST_MEMBERS)]

    def forget(self, before: float) -> None:
        """Delete members that died or left before this time."""
        self._tx.ask(_FORGET_MEMBERS, {"_before": before})
