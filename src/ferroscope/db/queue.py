"""Claiming requests: one statement if the database supports UPDATE ... RETURNING, otherwise two.

The unique column ``claimed_node`` makes a claim also the lock of its node: of two concurrent claims for one node, one
violates the constraint, whatever both transactions saw before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

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

from ferroscope.contracts.errors import OutcomeUnknownError
from ferroscope.contracts.store import MOST_WITHOUT, REQUESTS_OF, Bus, Channel, Clock, StopFlag, Take
from ferroscope.core.lanes import OVERTAKING
from ferroscope.core.losses import Cause, Loss, loss_of, may_release, with_loss
from ferroscope.core.model import REQUEST_VERSION, Claim, Member
from ferroscope.core.states import Event
from ferroscope.db import schema
from ferroscope.db.mapping import db_now
from ferroscope.db.requests import REQUEST
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope_client.core.obstacles import Lane
from ferroscope_client.core.values import new_uuid

T = TypeVar("T")
Work = Callable[[Transaction, Claim], T]

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
_UNORDERED = select(*REQUEST.columns).where(*_CLAIMABLE).limit(1).with_for_update(skip_locked=True)
_ORDER = (_r.priority, _r.id)
# The index has this order for rows without a holder. PostgreSQL sees that only if the order names the holder, and sorts
# the whole queue otherwise; MariaDB sees it only if the order does not.
_NEXT, _NEXT_RETURNING = _UNORDERED.order_by(*_ORDER), _UNORDERED.order_by(_r.holder, *_ORDER)
_OF_LANE = (
    _r.lane == bindparam("_lane"),
    or_(_r.network.is_(None), _r.network.not_in([bindparam(f"_without_{n}") for n in range(MOST_WITHOUT)])),
)
_NEXT_OF_LANE, _NEXT_OF_LANE_RETURNING = _NEXT.where(*_OF_LANE), _NEXT_RETURNING.where(*_OF_LANE)
_MY_CLAIM = {
    "holder": bindparam("_holder"),
    "token": bindparam("_token"),
    "attempt": _r.attempt + 1,
    "claimed_node": _r.node,
}


def claiming(query: Select[Any], values: Mapping[str, Any]) -> ReturningUpdate[Any]:
    """Return the statement that claims the request selected by ``query``, and returns its row."""
    ident = query.with_only_columns(_r.id).scalar_subquery()
    return update(schema.requests).where(_r.id == ident).values(values).returning(*REQUEST.columns)


_CLAIM = claiming(_NEXT_RETURNING, _MY_CLAIM)
_CLAIM_OF_LANE = claiming(_NEXT_OF_LANE_RETURNING, _MY_CLAIM)
_CLAIM_ID = update(schema.requests).where(_r.id == bindparam("_id"), _r.holder.is_(None)).values(_MY_CLAIM)
_ALIVE = exists().where(_m.id == _r.holder, _m.expires_at > db_now())
# Whether there is anything to claim in a lane; a claim is a write, even if it finds nothing.
_DUE = {lane: select(_r.id).where(_r.lane == lane.value, *_CLAIMABLE).limit(1) for lane in Lane}
# Written so that SQLite, too, finds them by the index instead of reading the whole queue.
_IS_CLAIMED = _r.holder > ""
# Claims of members that are not alive, and all claims in the calling member's own name.
_ORPHANS = select(_r.holder, _r.token, _r.lost).where(_IS_CLAIMED, or_(_r.holder == bindparam("_me"), ~_ALIVE))
_FREE_LOST = (
    update(schema.requests)
    .where(_IS_CLAIMED, _r.token == bindparam("_token"))
    .values(holder=None, token=None, claimed_node=None, lost=bindparam("_lost"))
)
_FREE_DEAD = _FREE_LOST.where(~_ALIVE)
_FREE_TOKEN = (
    update(schema.requests)
    .where(_IS_CLAIMED, _r.token == bindparam("_token"))
    .values(holder=None, token=None, claimed_node=None, attempt=_r.attempt - 1)
)

# Between two looks of a process that no message wakes up: a lost message costs as much.
POLL_SECONDS: Final = 0.25


class _TakenError(Exception):
    """Another request of the same node was claimed concurrently."""


def _claimed_meanwhile(_violation: IntegrityError) -> Exception:
    return _TakenError("another request of the node is claimed")


class Queue:
    """Claims requests; ``Requests`` has the operations that are part of a transaction.

    Delivery is at least once. A claim also locks the request's node, so at most one request of a node is claimed at a
    time. Requests of a node are delivered in FIFO order, except that a request waiting for its retry is skipped, and an
    operator's abort or deletion overtakes a start.

    One instance serves all threads of a process.
    """

    def __init__(self, store: Store, engine: Engine, *, bus: Bus, clock: Clock, poll_seconds: float) -> None:
        self._store = store
        self._returning = engine.dialect.update_returning
        self._bus = bus
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._looked_at = -poll_seconds
        # Tokens of claims whose COMMIT was not answered: if committed, they lock a node in our own name.
        self._doubtful: set[str] = set()

    def get_with(
        self, holder: str, timeout: float, stop: StopFlag, take: Take, work: Work[T] | None
    ) -> tuple[Claim, T | None] | None:
        """Claim a request that is due and whose node is free, for the member ``holder``; run ``work`` with the claim.

        It is the oldest of those with the lowest ``lanes.priority_of``. Requests of a newer release (an unknown event
        or a higher version) are skipped, and so are later requests of their node. Waits for at most ``timeout``
        seconds; None if no request became due in time or ``stop`` is set. Claims of a member whose heartbeat has
        expired are released. A new request wakes up waiting workers; one that becomes free or due is found by the next
        poll. Raises ``StoreError``.

        Either the claim and the writes of ``work`` are committed, or neither. ``work`` may be run again, even for
        another request, as in ``Store.write``. If it raises, the request is claimed without it, so that the attempt
        counts. Return the claim and ``work``'s result.
        """
        deadline, channel = self._clock.monotonic() + timeout, REQUESTS_OF[take.lane]
        tried = -1  # the position of the channel at the last claim, which found nothing
        while not stop.is_set():
            self._free_doubtful()
            self._look(holder)
            seen = self._bus.wait(channel, 0, 0.0)
            claimed = None if seen == tried else self._claim(holder, take, work)
            tried, now = seen, self._clock.monotonic()
            if claimed is not None or now >= deadline:
                return claimed
            self._bus.wait(channel, seen, min(deadline, self._looked_at + self._poll_seconds) - now)
        return None

    def _claim(self, holder: str, take: Take, work: Work[T] | None) -> tuple[Claim, T | None] | None:
        token, claimed = new_uuid(), None
        self._store.claims.add(token)
        try:
            claimed = self._store.write(partial(self._take, holder, token, take, work), durable=False)
        except _TakenError:
            return None
        except OutcomeUnknownError:
            self._doubtful.add(token)
            raise
        except Exception as exc:
            if work is None:
                raise
            _log.debug("preparing the request failed; claiming it alone", error=str(exc))
            return self._claim(holder, take, None)
        finally:
            if claimed is None:
                self._store.claims.discard(token)
        return claimed

    def _take(
        self, holder: str, token: str, take: Take, work: Work[T] | None, tx: Transaction
    ) -> tuple[Claim, T | None] | None:
        parameters: dict[str, Any] = {}
        if take.lane is not None:
            without = (*take.without, *[""] * MOST_WITHOUT)[:MOST_WITHOUT]
            parameters = {"_lane": take.lane} | {f"_without_{n}": network for n, network in enumerate(without)}
        mine = {"_holder": holder, "_token": token}
        if self._returning:
            row = tx.run(
                _CLAIM if take.lane is None else _CLAIM_OF_LANE, mine | parameters, failed=_claimed_meanwhile
            ).first()
        else:
            row = tx.run(_NEXT if take.lane is None else _NEXT_OF_LANE, parameters).first()
        if row is None:
            return None
        request = REQUEST.from_row(row)
        if not self._returning:
            tx.ask(_CLAIM_ID, mine | {"_id": request.id}, failed=_claimed_meanwhile)
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
        if now - self._looked_at < self._poll_seconds:
            return
        self._looked_at = now
        own_claims = frozenset(self._store.claims)  # a claim that ends meanwhile is not an orphan
        orphans, due = self._store.read(lambda tx: self._look_for_work(tx, holder, own_claims))
        if self._free_orphans(orphans):
            self._bus.publish(Channel.REQUESTS)
        for lane in due:
            self._bus.publish(REQUESTS_OF[lane])

    def _look_for_work(
        self, tx: Transaction, holder: str, own_claims: frozenset[str]
    ) -> tuple[list[_Orphan], list[Lane]]:
        """Return the claims to release, and the lanes with a request to claim; ``own_claims``: ours before that."""
        due = [lane for lane, query in _DUE.items() if tx.run(query).first() is not None]
        rows = list(tx.run(_ORPHANS, {"_me": holder}))
        rows = [row for row in rows if row[0] != holder or not (row[1] in own_claims or row[1] in self._store.claims)]
        return list(_list_orphans(rows, holder, tx.members.list(left=True), tx.now)) if rows else [], due

    def _free_orphans(self, orphans: Sequence[_Orphan]) -> bool:
        """Release these claims; return whether there were any."""
        if not orphans:
            return False

        def work(tx: Transaction) -> None:
            for orphan in orphans:
                tx.ask(_FREE_LOST if orphan.mine else _FREE_DEAD, {"_token": orphan.token, "_lost": orphan.lost})

        self._store.write(work)
        for orphan in orphans:
            _log.warning("claim released", holder=orphan.loss.member, cause=str(orphan.loss.cause))
        return True

    def _execute(self, statement: Update, values: dict[str, Any]) -> None:
        self._store.write(lambda tx: tx.connection.execute(statement, values))


class _Orphan(NamedTuple):
    """A claim to release; ``lost`` is the text to note in its request; ``mine``: in our own name."""

    token: str
    lost: str
    loss: Loss
    mine: bool


def _list_orphans(rows: Iterable[Any], me: str, members: Sequence[Member], now: float) -> Iterator[_Orphan]:
    """Return which claims to release, and why they were lost.

    Claims in our own name are released if this process does not know them. Either the database has lost the transaction
    that ended them (a failover or a crash discarded its last commits), or it has committed a claim after its connection
    failed.
    """
    by_id = {member.id: member for member in members}
    for holder, token, lost in rows:
        member = by_id.get(holder)
        if holder == me:
            loss = Loss(holder, Cause.OUTAGE)
        elif may_release(member, members, now):
            loss = loss_of(holder, member, members, now)
        else:
            continue
        yield _Orphan(token, with_loss(lost, loss), loss, holder == me)
