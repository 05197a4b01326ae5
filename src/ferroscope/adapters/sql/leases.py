"""Leases in SQL: one row each, changed only by conditional updates on the database's clock.

The fence is an UPDATE. A SELECT of the row, even in the same transaction, lets an old leader's
write commit after a newer epoch was issued: its row lock is what keeps the takeover waiting.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Double, bindparam, case, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.dialect import db_now
from ferroscope.domain.lease import Lease
from ferroscope.ports.bus import Channel
from ferroscope.ports.errors import LeaseHeldError, LeaseLostError

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_l = schema.leases.c
_MINE = (_l.name == bindparam("_name"), _l.epoch == bindparam("_epoch"), _l.term == bindparam("_term"))
_LATER = db_now() + bindparam("_duration", type_=Double())
_STORED = [_l[name] for name in Lease.__struct_fields__ if name != "remaining"]
_REMAINING = case((_l.holder.is_(None), 0.0), else_=_l.expires_at - db_now()).label("remaining")

_SELECT = select(*_STORED, _REMAINING)
_ONE = _SELECT.where(_l.name == bindparam("_name"))
_LISTED = _SELECT.where(_l.name.like(bindparam("pattern"), escape="/")).order_by(_l.name)
_ESCAPED: Final = re.compile("[%_/]")
_TAKEN = {
    "holder": bindparam("_holder"),
    "term": bindparam("_term"),
    "duration": bindparam("_duration", type_=Double()),
    "acquired_at": db_now(),
    "renewed_at": db_now(),
    "expires_at": _LATER,
    "data": bindparam("_data"),
}
_TAKE = (
    update(schema.leases)
    .where(_l.name == bindparam("_name"), or_(_l.holder.is_(None), _l.expires_at <= db_now()))
    .values(_TAKEN | {"epoch": _l.epoch + 1})
)
_CREATE = insert(schema.leases).values(_TAKEN | {"name": bindparam("_name"), "epoch": 1, "touched": 0})
_RENEW = (
    update(schema.leases)
    .where(*_MINE, _l.holder.is_not(None))
    .values(duration=bindparam("_duration", type_=Double()), renewed_at=db_now(), expires_at=_LATER)
)
_RENEW_DATA = _RENEW.values(data=bindparam("_data"))
_RELEASE = update(schema.leases).where(*_MINE).values(holder=None, expires_at=db_now())
_TOUCH = update(schema.leases).where(*_MINE, _l.holder.is_not(None)).values(touched=_l.touched + 1)


class SqlLeases:
    """See ``ports.store.Leases``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "") -> Lease:
        values = {"_name": name, "_holder": holder, "_duration": duration, "_data": data, "_term": str(uuid.uuid4())}
        if self._tx.run(_TAKE, values).rowcount == 0:
            present = self._get(name)
            if present is not None:
                raise LeaseHeldError(present)
            self._create(values)
        lease = self._get(name)
        if lease is None or lease.term != values["_term"]:
            raise LeaseLostError(f"{name} was taken by somebody else at this moment")
        return lease

    def renew(self, lease: Lease, duration: float, *, data: str | None = None) -> Lease:
        statement = _RENEW if data is None else _RENEW_DATA
        values = {"_duration": duration} if data is None else {"_duration": duration, "_data": data}
        self._mine(statement, lease, values)
        renewed = self._get(lease.name)
        if renewed is None:
            raise LeaseLostError(f"{lease.name} is gone")
        return renewed

    def release(self, lease: Lease) -> None:
        self._mine(_RELEASE, lease, {})
        self._tx.wake(Channel.LEASES)

    def hold(self, lease: Lease) -> None:
        self._mine(_TOUCH, lease, {})

    def list(self, prefix: str = "") -> Sequence[Lease]:
        return [_lease(row) for row in self._tx.run(_LISTED, {"pattern": _ESCAPED.sub(r"/\g<0>", prefix) + "%"})]

    def _create(self, values: dict[str, Any]) -> None:
        try:
            self._tx.run(_CREATE, values)
        except IntegrityError as exc:  # created by somebody else at this moment
            raise LeaseHeldError(_unknown(values["_name"])) from exc

    def _get(self, name: str) -> Lease | None:
        row = self._tx.run(_ONE, {"_name": name}).first()
        return None if row is None else _lease(row)

    def _mine(self, statement: Any, lease: Lease, values: dict[str, Any]) -> None:
        mine = {"_name": lease.name, "_epoch": lease.epoch, "_term": lease.term}
        if self._tx.run(statement, mine | values).rowcount == 0:
            raise LeaseLostError(f"epoch {lease.epoch} of {lease.name} is over")


def _lease(row: Any) -> Lease:
    values = dict(zip([column.name for column in _STORED], row, strict=False))
    return Lease(**values, remaining=max(0.0, float(row[-1])))


def _unknown(name: str) -> Lease:
    return Lease(
        name=name, holder="somebody", epoch=1, term="", duration=0.0, acquired_at=0.0, renewed_at=0.0, expires_at=0.0
    )
