"""What callers and workers leave in a transaction: requests on the queue, a call's receipt, and its audit event.

``queue`` claims the requests. Every write under a claim begins with an UPDATE of the request's row. That locks the row,
so no newer claim can be committed before this transaction has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import Double, bindparam, delete, func, insert, literal, select, update

from ferroscope.contracts.errors import ClaimLostError
from ferroscope.contracts.store import REQUESTS_OF, Audited, Later, Receipt, RepeatedCallError, StoredReceipt
from ferroscope.core.audit import AuditEvent
from ferroscope.core.lanes import ENDING, lane_of, priority_of
from ferroscope.core.model import Claim, Request
from ferroscope.core.states import Event
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, db_now
from ferroscope.db.session import Answer, Repository
from ferroscope_client.core.obstacles import Lane
from ferroscope_client.core.values import new_uuid

REQUEST = Mapper(Request, schema.requests)

_r = schema.requests.c
_MINE = (_r.id == bindparam("_id"), _r.token == bindparam("_token"), _r.attempt == bindparam("_attempt"))
_INSERT = insert(schema.requests).inline()
# By (begun, progress given). ``touched`` makes each of them change the row: a MariaDB Galera cluster detects conflicts
# only on rows that have changed.
_TOUCH = update(schema.requests).where(*_MINE).values(touched=_r.touched + 1)
_HOLD = {
    (False, False): _TOUCH,
    (False, True): _TOUCH.values(progress=bindparam("_progress")),
    (True, False): _TOUCH.values(begun=True),
    (True, True): _TOUCH.values(begun=True, progress=bindparam("_progress")),
}
_CONSUME = delete(schema.requests).where(*_MINE)
_RETRY = (
    update(schema.requests)
    .where(*_MINE)
    .values(
        holder=None,
        token=None,
        claimed_node=None,
        due_at=bindparam("_due"),
        attempt=_r.attempt - bindparam("_uncounted"),
    )
)
_REPLACE = (
    update(schema.requests)
    .where(*_MINE)
    .values(
        event=bindparam("_event"),
        inspection=bindparam("_inspection"),
        payload=bindparam("_payload"),
        version=bindparam("_version"),
        lane=bindparam("_lane"),
        priority=bindparam("_priority"),
        bmc=bindparam("_bmc"),
        network=bindparam("_network"),
        attempt=1,
        begun=False,
        progress="{}",
        lost=None,
        created_at=bindparam("_now"),
        token=bindparam("_fresh"),
    )
)
# Those that end an inspection before its callback; the first columns of the index are named.
_ENDINGS = select(*REQUEST.columns).where(
    _r.holder.is_(None),
    _r.lane == Lane.BMC.value,
    _r.priority == priority_of(Event.ABORT),
    _r.event.in_([literal(event.value) for event in sorted(ENDING - {Event.FINISH})]),
)
_PENDING = select(*REQUEST.columns).where(_r.node == bindparam("node")).order_by(_r.id)


class Requests(Repository):
    """The operations on the queue within a transaction; ``db.queue`` claims requests.

    ``_held``: the tokens of the claims whose rows this transaction has locked.
    """

    _held: set[str] = set()

    def put(self, request: Request, *, instead_of: Claim | None = None) -> Claim | None:
        """Put a request on the queue, if and when the transaction commits.

        With ``instead_of`` it replaces the claimed request and stays claimed, as a first attempt: the returned claim
        replaces the old one. ``ClaimLostError`` as in ``hold``.
        """
        if instead_of is not None:
            return self._replace(instead_of, request)
        row = REQUEST.to_row(request)
        del row["id"]
        row["created_at"] = request.created_at or self._tx.now
        row["touched"] = 0
        lane = lane_of(request.event)
        row["lane"], row["priority"] = lane, priority_of(request.event)
        self._tx.ask(_INSERT, row)
        self._tx.woken.add(REQUESTS_OF[lane])
        return None

    def claimed(self, claim: Claim) -> None:
        """This transaction itself has claimed the request: its row is locked, and there is nothing to check."""
        self._held.add(claim.token)

    def hold(self, claim: Claim, *, begun: bool = False, progress: dict[str, Any] | None = None) -> None:
        """Fence: check the claim, and prevent any other claim before the end of this transaction.

        It *writes* the request's row; with a mere read, a new claim could be committed in between. ``begun`` and
        ``progress`` are saved on the request. ``ClaimLostError`` if this attempt's claim is no longer held: then write
        nothing.
        """
        if claim.token in self._held and not begun and progress is None:
            return
        noted = {} if progress is None else {"_progress": msgspec.json.encode(progress).decode()}
        self._fence(_HOLD[begun, bool(noted)], claim, **noted)

    def consume(self, claim: Claim) -> None:
        """Remove the request from the queue and unlock its node; ``ClaimLostError`` as in ``hold``."""
        self._fence(_CONSUME, claim)
        self._tx.ended.add(claim.token)

    def retry(self, claim: Claim, after: float, *, counted: bool = True) -> None:
        """Release the claim, so that the request is delivered again in ``after`` seconds; ``ClaimLostError``.

        An attempt that is not ``counted`` (the process is stopping) does not use up one of the request's attempts.
        """
        self._fence(_RETRY, claim, _due=self._tx.now + after if after else 0.0, _uncounted=int(not counted))
        self._tx.ended.add(claim.token)

    def pending(self, node: str) -> Sequence[Request]:
        """Return the requests of the node, oldest first, claimed or not."""
        return self.pending_later(node).get()

    def pending_later(self, node: str) -> Later[Sequence[Request]]:
        """Like ``pending``, but read later; see ``Later``."""
        pending = self._tx.ask(_PENDING, {"node": node})
        return Later(lambda: [REQUEST.from_row(row) for row in pending.answer()])

    def endings(self) -> Sequence[Request]:
        """Return the requests to end an inspection before its callback, or to delete a node, that are not claimed."""
        return [REQUEST.from_row(row) for row in self._tx.run(_ENDINGS)]

    def _replace(self, claim: Claim, request: Request) -> Claim:
        # A new token: if a failover loses this transaction, the previous claim must not be mistaken for this one.
        now, token = self._tx.now, new_uuid()
        self._fence(
            _REPLACE,
            claim,
            _fresh=token,
            _event=request.event,
            _inspection=request.inspection,
            _payload=msgspec.json.encode(request.payload).decode(),
            _version=request.version,
            _lane=lane_of(request.event),
            _priority=priority_of(request.event),
            _bmc=request.bmc,
            _network=request.network,
            _now=now,
        )
        replaced = msgspec.structs.replace(
            request, id=claim.request.id, attempt=1, begun=False, progress={}, lost=None, created_at=now
        )
        self._tx.ended.add(claim.token)
        self._tx.begun.add(token)
        return msgspec.structs.replace(claim, request=replaced, token=token)

    def _fence(self, statement: Any, claim: Claim, **values: Any) -> None:
        mine = {"_id": claim.request.id, "_token": claim.token, "_attempt": claim.request.attempt}

        def check(answer: Answer) -> None:
            if answer.rowcount == 0:
                self._tx.claims.discard(claim.token)
                raise ClaimLostError(f"request {claim.request.id} is no longer held by {claim.holder}")

        self._tx.ask(statement, mine | values, check=None if claim.token in self._held else check)
        self._held.add(claim.token)


# The receipts and audit events of calls; see ``contracts.store``.

_RECEIPT: Final = Mapper(StoredReceipt, schema.receipts)
_t = schema.receipts.c
_GET_RECEIPT = select(*_RECEIPT.columns).where(_t.id == bindparam("_id"))
_OVER = db_now() + bindparam("_kept", type_=Double())
_ADD_RECEIPT = insert(schema.receipts).values(
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
_OLD_RECEIPTS = (
    select(_t.id).where(_t.expires_at < bindparam("_now")).order_by(_t.expires_at).limit(bindparam("_limit"))
)


def _require_replaced(ident: str, answer: Answer) -> None:
    if answer.rowcount == 0:
        raise RepeatedCallError(ident)


class Receipts(Repository):
    """The receipts of a transaction."""

    def get(self, ident: str) -> StoredReceipt | None:
        """Return the receipt with this ID."""
        row = self._tx.run(_GET_RECEIPT, {"_id": ident}).first()
        return None if row is None else _RECEIPT.from_row(row)

    def add(self, receipt: Receipt) -> str:
        """Write the receipt with the other changes, return its ID; ``RepeatedCallError`` at the latest on commit."""
        ident = receipt.next()
        if receipt.instead and not receipt.written:
            self._tx.ask(_REPLACE_VOID, {"_id": ident, "_kept": receipt.kept}, check=partial(_require_replaced, ident))
        else:
            row = {"_id": ident, "_call": receipt.call, "_void": False, "_kept": receipt.kept}
            self._tx.ask(_ADD_RECEIPT, row, failed=lambda _: RepeatedCallError(ident))
        return ident

    def void(self, ident: str, receipt: Receipt) -> None:
        """Prevent any later commit under this ID; ``RepeatedCallError`` if there was one already."""
        row = {"_id": ident, "_call": receipt.call, "_void": True, "_kept": receipt.kept}
        self._tx.ask(_ADD_RECEIPT, row, failed=lambda _: RepeatedCallError(ident))

    def answered(self, ident: str, status: int, reply: str | None) -> None:
        """Add the response to a receipt."""
        self._tx.ask(_ANSWERED, {"_id": ident, "_status": status, "_reply": reply})

    def remove_old(self, limit: int) -> int:
        """Delete up to ``limit`` receipts that are over; return their number."""
        ids = self._tx.run(_OLD_RECEIPTS, {"_now": self._tx.now, "_limit": limit}).scalars()
        if ids:
            self._tx.connection.execute(delete(schema.receipts).where(_t.id.in_(ids)))
        return len(ids)

    def drop_replies(self, limit: int, *, kept: int = MAX_REPLIES) -> int:
        """Forget up to ``limit`` replies of older receipts than the newest ``kept``; return their number."""
        ids = self._tx.run(_OLDEST_REPLIES, {"_kept": kept, "_limit": limit}).scalars()
        if ids:
            self._tx.connection.execute(update(schema.receipts).where(_t.id.in_(ids)).values(reply=None))
        return len(ids)


_AUDIT_EVENT: Final = Mapper(AuditEvent, schema.audit)
_AUDIT_FIELDS: Final = tuple(name for name in _AUDIT_EVENT.fields if name != "id")
_a = schema.audit.c
# The texts of an event, and how long each may be.
_LIMITS: Final = tuple((name, most) for name in _AUDIT_FIELDS if (most := getattr(_a[name].type, "length", None)))
_ADD_EVENT = insert(schema.audit).values({name: bindparam(name) for name in _AUDIT_FIELDS})
_OLD_EVENTS = select(_a.id).where(_a.at < bindparam("before")).order_by(_a.at).limit(bindparam("limit"))
_DELETE_EVENTS = delete(schema.audit).where(_a.id.in_(bindparam("ids", expanding=True)))


class AuditLog(Repository):
    """Audit events; append-only."""

    def append(self, event: AuditEvent) -> None:
        """Append the event with the transaction's time."""
        row = _AUDIT_EVENT.to_row(event)
        row["at"] = event.at or self._tx.now
        del row["id"]
        for name, most in _LIMITS:
            if (text := row[name]) is not None and len(text) > most:
                row[name] = text[:most]
        self._tx.ask(_ADD_EVENT, row)

    def record(self, audited: Audited) -> None:
        """Append the event of the call that makes this transaction."""
        nodes = self._tx.changed_nodes
        audited.event = msgspec.structs.replace(
            audited.event, node=next(iter(nodes)) if len(nodes) == 1 else None, at=self._tx.now
        )
        self.append(audited.event)

    def list(
        self,
        *,
        limit: int,
        before: int | None = None,
        since: float = 0.0,
        node: str | None = None,
        user: str | None = None,
    ) -> Sequence[AuditEvent]:
        """Return the newest events with these properties, newest first; ``before``: an ID."""
        query = select(*_AUDIT_EVENT.columns).where(_a.at >= since).order_by(_a.id.desc()).limit(limit)
        for column, value in ((_a.node, node), (_a.user, user)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(_a.id < before)
        return [_AUDIT_EVENT.from_row(row) for row in self._tx.connection.execute(query)]

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` events from before this time; return their number."""
        execute = self._tx.connection.execute
        ids = [*execute(_OLD_EVENTS, {"before": before, "limit": limit}).scalars()]
        if ids:
            execute(_DELETE_EVENTS, {"ids": ids})
        return len(ids)
