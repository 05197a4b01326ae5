"""The requests on the queue, as part of a transaction; ``queue`` claims them.

Every write under a claim begins with an UPDATE of the request's row. That locks the row, so no newer claim can be
committed before this transaction has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, insert, literal, select, update

from ferroscope.contracts.data import Later
from ferroscope.contracts.errors import ClaimLostError
from ferroscope.contracts.queue import REQUESTS_OF
from ferroscope.core.lanes import ENDING, Lane, lane_of, priority_of
from ferroscope.core.model import Claim, Request
from ferroscope.core.states import Event
from ferroscope.core.values import new_uuid
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper
from ferroscope.db.session import Answer, Session

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


class Requests:
    """The operations on the queue within a transaction; ``db.queue`` claims requests."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx
        self._held: set[str] = set()  # tokens of claims whose rows this transaction has locked

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
        self._tx.wake(REQUESTS_OF[lane])
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
