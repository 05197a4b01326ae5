"""Receipts in SQL; see ``contracts.calls``."""

from __future__ import annotations

from functools import partial
from typing import Final

from sqlalchemy import Double, bindparam, delete, func, insert, select, update

from ferroscope.contracts.calls import Receipt, RepeatedCallError, StoredReceipt
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper
from ferroscope.db.session import Answer, Session
from ferroscope.db.spellings import db_now

_RECEIPT: Final = Mapper(StoredReceipt, schema.receipts)
_t = schema.receipts.c
_GET = select(*_RECEIPT.columns).where(_t.id == bindparam("_id"))
_OVER = db_now() + bindparam("_kept", type_=Double())
_ADD = insert(schema.receipts).values(
    id=bindparam("_id"), call=bindparam("_call"), void=bindparam("_void"), status=0, expires_at=_OVER
)
_REPLACE_VOID = (
    update(schema.receipts).where(_t.id == bindparam("_id"), _t.void.is_(True)).values(void=False, expires_at=_OVER)
)
_ANSWERED = (
    update(schema.receipts)
    .where(_t.id == bindparam("_id"))
    .values(status=bindparam("_status"), reply=bindparam("_reply"))
)
# The newest receipts, which keep their replies: 256 MiB at most. A call whose reply is gone is still not repeated.
MAX_REPLIES: Final = 16_384
_NEWEST = select(_t.expires_at).order_by(_t.expires_at.desc()).limit(bindparam("_kept")).subquery("newest")
_OLDEST_REPLIES = (
    select(_t.id)
    .where(_t.expires_at < select(func.min(_NEWEST.c.expires_at)).scalar_subquery(), _t.reply.is_not(None))
    .order_by(_t.expires_at)
    .limit(bindparam("_limit"))
)
_OLD = select(_t.id).where(_t.expires_at < bindparam("_now")).order_by(_t.expires_at).limit(bindparam("_limit"))


def _require_replaced(ident: str, answer: Answer) -> None:
    if answer.rowcount == 0:
        raise RepeatedCallError(ident)


class Receipts:
    """The receipts of a transaction."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def get(self, ident: str) -> StoredReceipt | None:
        """Return the receipt with this ID."""
        row = self._tx.run(_GET, {"_id": ident}).first()
        return None if row is None else _RECEIPT.from_row(row)

    def add(self, receipt: Receipt) -> str:
        """Write the receipt with the other changes, return its ID; ``RepeatedCallError`` at the latest on commit."""
        ident = receipt.next()
        if receipt.instead and not receipt.written:
            self._tx.ask(_REPLACE_VOID, {"_id": ident, "_kept": receipt.kept}, check=partial(_require_replaced, ident))
        else:
            self._insert(ident, receipt.call, receipt.kept, void=False)
        return ident

    def void(self, ident: str, call: str, kept: float) -> None:
        """Keep whoever else still tries from committing under this ID; ``RepeatedCallError`` if one is there."""
        self._insert(ident, call, kept, void=True)

    def answered(self, ident: str, status: int, reply: str | None) -> None:
        """Add the response to a receipt."""
        self._tx.ask(_ANSWERED, {"_id": ident, "_status": status, "_reply": reply})

    def remove_old(self, limit: int) -> int:
        """Delete up to ``limit`` receipts that are over; return their number."""
        ids = self._tx.run(_OLD, {"_now": self._tx.now, "_limit": limit}).scalars()
        if ids:
            self._tx.connection.execute(delete(schema.receipts).where(_t.id.in_(ids)))
        return len(ids)

    def drop_replies(self, limit: int, *, kept: int = MAX_REPLIES) -> int:
        """Forget up to ``limit`` replies of older receipts than the newest ``kept``; return their number."""
        ids = self._tx.run(_OLDEST_REPLIES, {"_kept": kept, "_limit": limit}).scalars()
        if ids:
            self._tx.connection.execute(update(schema.receipts).where(_t.id.in_(ids)).values(reply=None))
        return len(ids)

    def _insert(self, ident: str, call: str, kept: float, *, void: bool) -> None:
        self._tx.ask(
            _ADD, {"_id": ident, "_call": call, "_void": void, "_kept": kept}, failed=lambda _: RepeatedCallError(ident)
        )
