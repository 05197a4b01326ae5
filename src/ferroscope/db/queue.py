"""Claiming requests: one statement if the database supports UPDATE ... RETURNING, otherwise two.

The unique column ``claimed_node`` makes a claim also the lock of its node: of two concurrent claims for one node, one
violates the constraint, whatever both transactions saw before.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import structlog
from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
    Update,
    and_,
    bindparam,
    exists,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.dml import ReturningUpdate

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.queue import EVERYTHING, MOST_WITHOUT, Bus, Channel, Clock, StopFlag, Take, requests_of
from ferroscope.core.lanes import OVERTAKING, Lane
from ferroscope.core.model import REQUEST_VERSION, Claim
from ferroscope.core.states import Event
from ferroscope.db import schema
from ferroscope.db.engine import db_now
from ferroscope.db.requests import REQUEST
from ferroscope.db.transaction import SqlStore, SqlTransaction

T = TypeVar("T")
Work = Callable[[SqlTransaction, Claim], T]

_log = structlog.get_logger(__name__)

_r = schema.requests.c


def _one_of(events: Iterable[Event]) -> ColumnElement[bool]:
    return _r.event.in_([literal(event.value) for event in sorted(events)])


_m = schema.members.c
_sibling = schema.requests.alias("sibling")
_OVERTAKEN = and_(_sibling.c.event == Event.INSPECT.value, _one_of(OVERTAKING))
_IN_THE_WAY = exists().where(
    _sibling.c.node == _r.node,
    or_(
        _sibling.c.claimed_node.is_not(None),
        and_(_sibling.c.id < _r.id, _sibling.c.due_at <= db_now(), not_(_OVERTAKEN)),
    ),
)
# SKIP LOCKED ignores rows that are being claimed concurrently, so it is not enough that the node is free: the request
# must also be the node's oldest, or the second would overtake the first. Only an operator's request to end an
# inspection may overtake its start. Requests of a newer release are left to workers of that release.
_CLAIMABLE = (
    _r.holder.is_(None),
    _r.due_at <= db_now(),
    _r.version <= REQUEST_VERSION,
    _one_of(Event),
    ~_IN_THE_WAY,
)
_NEXT = (
    select(*REQUEST.columns).where(*_CLAIMABLE).order_by(_r.priority, _r.id).limit(1).with_for_update(skip_locked=True)
)
_OF_LANE = (
    _r.lane == bindparam("_lane"),
    or_(_r.network.is_(None), _r.network.not_in([bindparam(f"_without_{n}") for n in range(MOST_WITHOUT)])),
)
_NEXT_OF_LANE = _NEXT.where(*_OF_LANE)
_MY_CLAIM = {
    "holder": bindparam("_holder"),
    "token": bindparam("_token"),
    "attempt": _r.attempt + 1,
    "claimed_node": _r.node,
}


def claiming(found: Select[Any], values: Mapping[str, Any]) -> ReturningUpdate[Any]:
    """Return the statement that claims the request selected by ``found``, and returns its row."""
    ident = found.with_only_columns(_r.id).scalar_subquery()
    return update(schema.requests).where(_r.id == ident).values(values).returning(*REQUEST.columns)


_CLAIM, _CLAIM_OF_LANE = claiming(_NEXT, _MY_CLAIM), claiming(_NEXT_OF_LANE, _MY_CLAIM)
_CLAIM_ID = update(schema.requests).where(_r.id == bindparam("_id"), _r.holder.is_(None)).values(_MY_CLAIM)
_ALIVE = exists().where(_m.id == _r.holder, _m.expires_at > db_now())
# Whether there is anything to claim in a lane; a claim is a write, even if it finds nothing.
_DUE = {lane: select(_r.id).where(_r.lane == lane.value, *_CLAIMABLE).limit(1) for lane in Lane}
# Claims of members that are not alive, and all claims in the calling member's own name.
_ORPHANS = select(_r.id, _r.holder, _r.token).where(_r.holder.is_not(None), or_(_r.holder == bindparam("_me"), ~_ALIVE))
_FREE = (
    update(schema.requests)
    .where(_r.id.in_(bindparam("_ids", expanding=True)), _r.holder.is_not(None), ~_ALIVE)
    .values(holder=None, token=None, claimed_node=None)
)
_FREE_TOKEN = (
    update(schema.requests)
    .where(_r.token == bindparam("_token"))
    .values(holder=None, token=None, claimed_node=None, attempt=_r.attempt - 1)
)
_FREE_FORGOTTEN = (
    update(schema.requests).where(_r.token == bindparam("_token")).values(holder=None, token=None, claimed_node=None)
)


class _TakenError(Exception):
    """Another request of the same node was claimed concurrently."""


def _taken(_violation: IntegrityError) -> Exception:
    return _TakenError("another request of the node is claimed")


class SqlQueue:
    """See ``contracts.queue.Queue``. One instance serves all threads of a process."""

    def __init__(self, store: SqlStore, engine: Engine, *, bus: Bus, clock: Clock, poll_interval: float) -> None:
        self._store = store
        self._returning = engine.dialect.update_returning
        self._bus = bus
        self._clock = clock
        self._poll_interval = poll_interval
        self._looked_at = -poll_interval
        # Tokens of claims whose COMMIT was not answered: if committed, they lock a node in our own name.
        self._doubtful: set[str] = set()

    def get(self, holder: str, timeout: float, stop: StopFlag, take: Take = EVERYTHING) -> Claim | None:
        found = self._get(holder, timeout, stop, take, None)
        return None if found is None else found[0]

    def get_with(
        self, holder: str, timeout: float, stop: StopFlag, take: Take, work: Work[T]
    ) -> tuple[Claim, T | None] | None:
        return self._get(holder, timeout, stop, take, work)

    def _get(
        self, holder: str, timeout: float, stop: StopFlag, take: Take, work: Work[T] | None
    ) -> tuple[Claim, T | None] | None:
        deadline, channel = self._clock.monotonic() + timeout, requests_of(take.lane)
        tried = -1  # the position of the channel at the last claim, which found nothing
        while not stop.is_set():
            self._free_doubtful()
            self._look(holder)
            seen = self._bus.wait(channel, 0, 0.0)
            found = None if seen == tried else self._claim(holder, take, work)
            tried, now = seen, self._clock.monotonic()
            if found is not None or now >= deadline:
                return found
            self._bus.wait(channel, seen, min(deadline, self._looked_at + self._poll_interval) - now)
        return None

    def _claim(self, holder: str, take: Take, work: Work[T] | None) -> tuple[Claim, T | None] | None:
        token, found = str(uuid.uuid4()), None
        self._store.claims.add(token)
        try:
            found = self._store.write(lambda tx: self._take(tx, holder, token, take, work), durable=False)
        except _TakenError:
            return None
        except StoreUnavailableError:
            self._doubtful.add(token)
            raise
        except Exception as exc:
            if work is None:
                raise
            _log.debug("preparing the request failed; claiming it alone", error=str(exc))
            return self._claim(holder, take, None)
        finally:
            if found is None:
                self._store.claims.discard(token)
        return found

    def _take(
        self, tx: SqlTransaction, holder: str, token: str, take: Take, work: Work[T] | None
    ) -> tuple[Claim, T | None] | None:
        found: dict[str, Any] = {}
        if take.lane is not None:
            without = (*take.without, *[""] * MOST_WITHOUT)[:MOST_WITHOUT]
            found = {"_lane": take.lane} | {f"_without_{n}": network for n, network in enumerate(without)}
        mine = {"_holder": holder, "_token": token}
        if self._returning:
            row = tx.run(_CLAIM if take.lane is None else _CLAIM_OF_LANE, mine | found, failed=_taken).first()
        else:
            row = tx.run(_NEXT if take.lane is None else _NEXT_OF_LANE, found).first()
        if row is None:
            return None
        request = REQUEST.from_row(row)
        if not self._returning:
            tx.ask(_CLAIM_ID, mine | {"_id": request.id}, failed=_taken)
            request = msgspec.structs.replace(request, attempt=request.attempt + 1)
        claim = Claim(request=request, holder=holder, token=token)
        tx.requests.claimed(claim)
        return claim, None if work is None else work(tx, claim)

    def _free_doubtful(self) -> None:
        """Release the claims whose commit was not answered, in case they were committed."""
        for token in sorted(self._doubtful):
            self._execute(_FREE_TOKEN, {"_token": token})
            self._doubtful.discard(token)

    def _look(self, holder: str) -> None:
        """Look for what no message announces: requests that became due or free, and claims of dead members.

        Each process looks once per poll interval, however many lanes wait: a read, where a claim that finds nothing
        would be a write. What is found wakes up its lane.
        """
        now = self._clock.monotonic()
        if now - self._looked_at < self._poll_interval:
            return
        self._looked_at = now
        orphans, due = self._store.read(lambda tx: _seen(tx, holder))
        if self._free_orphans(holder, orphans):
            self._bus.publish(Channel.REQUESTS)
        for lane in due:
            self._bus.publish(requests_of(lane))

    def _free_orphans(self, holder: str, orphans: Iterable[Any]) -> bool:
        """Release the claims of dead members; return whether there were any to release.

        Also release claims in our own name that this process does not know: the database has lost the transaction that
        ended them (a failover discarded its last commits), or has committed one after its connection failed.
        """
        ids = [ident for ident, owner, _ in orphans if owner != holder]
        if ids:
            self._execute(_FREE, {"_ids": ids})
        forgotten = [token for _, owner, token in orphans if owner == holder and token not in self._store.claims]
        for token in forgotten:
            self._execute(_FREE_FORGOTTEN, {"_token": token})
        return bool(ids or forgotten)

    def _execute(self, statement: Update, values: dict[str, Any]) -> None:
        self._store.write(lambda tx: tx.connection.execute(statement, values))


def _seen(tx: SqlTransaction, holder: str) -> tuple[list[Any], list[Lane]]:
    """Return the claims that may have to be released, and the lanes with a request to claim."""
    due = [lane for lane, found in _DUE.items() if tx.run(found).first() is not None]
    return list(tx.run(_ORPHANS, {"_me": holder})), due
