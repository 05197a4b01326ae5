"""Leases in SQL: one row each, changed only by conditional updates on the database's clock.

The fence is an UPDATE. A SELECT of the row, even in the same transaction, lets an old leader's
write commit after a newer epoch was issued: its row lock is what keeps the takeover waiting.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Double, bindparam, case, delete, insert, literal, or_, select, update

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.dialect import db_now
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError
from ferroscope.contracts.queue import Channel
from ferroscope.core.model import Lease

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
_BRIEFLY = [literal("").label("data") if column.name == "data" else column for column in _STORED]
_LISTED_BRIEFLY = select(*_BRIEFLY, _REMAINING).where(_l.name.like(bindparam("pattern"), escape="/")).order_by(_l.name)
_UNUSED = (
    select(*_BRIEFLY, _REMAINING)
    .where(_l.expires_at < bindparam("_before", type_=Double()))
    .order_by(_l.expires_at)
    .limit(bindparam("page_limit"))
)
_ESCAPED: Final = re.compile("[%_/]")
_TAKEN = {
    "holder": bindparam("_holder"),
    "term": bindparam("_term"),
    "duration": bindparam("_duration", type_=Double()),
    "acquired_at": db_now(),
    "renewed_at": db_now(),
    "expires_at": _LATER,
    "data": bindparam("_data"),
    "source": bindparam("_source"),
}
_TAKE = (
    update(schema.leases)
    .where(_l.name == bindparam("_name"), or_(_l.holder.is_(None), _l.expires_at <= db_now()))
    .values(_TAKEN | {"epoch": _l.epoch + 1})
)
_CREATE = insert(schema.leases).values(
    _TAKEN | {"name": bindparam("_name"), "epoch": bindparam("_first"), "touched": 0}
)
# Whoever makes a name, or forgets one, writes this row first: so one waits for the other, and reads what it left.
_e = schema.lease_epochs.c
_FLOOR_ID: Final = 1
_HOLD_FLOOR = update(schema.lease_epochs).where(_e.id == bindparam("_id")).values(touched=_e.touched + 1)
_FLOOR = select(_e.epoch).where(_e.id == bindparam("_id"))
_RAISE_FLOOR = (
    update(schema.lease_epochs)
    .where(_e.id == bindparam("_id"), _e.epoch < bindparam("_epoch"))
    .values(epoch=bindparam("_epoch"))
)
_MAKE_FLOOR = insert(schema.lease_epochs)
_FORGET = delete(schema.leases).where(
    _l.name == bindparam("_name"),
    _l.epoch == bindparam("_epoch"),
    or_(_l.holder.is_(None), _l.expires_at <= db_now()),
)
_RENEW = (
    update(schema.leases)
    .where(*_MINE, _l.holder.is_not(None))
    .values(duration=bindparam("_duration", type_=Double()), renewed_at=db_now(), expires_at=_LATER)
)
_RENEW_DATA = _RENEW.values(data=bindparam("_data"))
_RELEASE = update(schema.leases).where(*_MINE).values(holder=None, expires_at=db_now())
_TOUCH = update(schema.leases).where(*_MINE, _l.holder.is_not(None)).values(touched=_l.touched + 1)


class SqlLeases:
    """See ``contracts.store.Leases``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "", source: str = "") -> Lease:
        values = {"_name": name, "_holder": holder, "_duration": duration, "_data": data, "_term": str(uuid.uuid4())}
        values["_source"] = source or None
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

    def list(self, prefix: str = "", *, brief: bool = False) -> Sequence[Lease]:
        statement = _LISTED_BRIEFLY if brief else _LISTED
        return [_lease(row) for row in self._tx.run(statement, {"pattern": _ESCAPED.sub(r"/\g<0>", prefix) + "%"})]

    def unused(self, seconds: float, limit: int) -> Sequence[Lease]:
        given = {"_before": self._tx.now - seconds, "page_limit": limit}
        return [_lease(row) for row in self._tx.run(_UNUSED, given)]

    def forget(self, lease: Lease) -> bool:
        self._floor()
        self._tx.run(_RAISE_FLOOR, {"_id": _FLOOR_ID, "_epoch": lease.epoch})
        return self._tx.run(_FORGET, {"_name": lease.name, "_epoch": lease.epoch}).rowcount > 0

    def _floor(self) -> int:
        """Return the epoch that none may begin with; nobody else can raise it until this transaction's end."""
        if self._tx.run(_HOLD_FLOOR, {"_id": _FLOOR_ID}).rowcount == 0:
            made = lambda _: LeaseLostError("the first lease of all is being made at this moment")  # noqa: E731
            self._tx.run(_MAKE_FLOOR, {"id": _FLOOR_ID, "epoch": 0, "touched": 0}, failed=made)
        return int(self._tx.run(_FLOOR, {"_id": _FLOOR_ID}).scalars()[0])

    def _create(self, values: dict[str, Any]) -> None:
        created = lambda _: LeaseHeldError(_unknown(values["_name"]))  # noqa: E731  # by somebody else, at this moment
        self._tx.run(_CREATE, values | {"_first": self._floor() + 1}, failed=created)

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
