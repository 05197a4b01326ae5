"""Requests that are claimed twice, too early or never, and what dead members held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from sqlalchemy import bindparam, select, update

from ferroscope.core import delivery
from ferroscope.db import queue, requests, store
from ferroscope.worker import loop, results
from tests.simulation.bugs.registry import bug

_r = requests._r


@bug("acknowledge-first", "a request is taken off the queue before its task has run", rule="I1", seeds=3)
def _() -> Iterator[Any]:
    prepare, consume = loop.Worker.prepare, requests.Requests.consume

    def prepared(self: Any, tx: Any, claim: Any, **options: Any) -> Any:
        result = prepare(self, tx, claim, **options)
        consume(tx.requests, claim)
        return result

    yield loop.Worker, "prepare", prepared
    yield loop.Worker, "prepare_claimed", lambda _self, _tx, _claim: None
    yield requests.Requests, "consume", lambda _self, _claim: None
    yield requests.Requests, "hold", lambda _self, _claim, **_noted: None


@bug("orphans-kept", "what dead members hold is never freed", rule="I1", seeds=20)
def _() -> Iterator[Any]:
    yield queue.Queue, "_free_orphans", lambda _self, _orphans: False


# Nobody dies, and the database is away for seconds, again and again, while BMCs are slow.
OUTAGES: dict[str, Any] = {
    "faults": ("database restart", "database restart", "partition", "pause"),
    "mean_between_faults": 4.0,
    "nodes": 5,
    "rounds": 3,
    "slow_bmc": 0.3,
    "slowest_answer": 0.9,
    "intruders": False,
    "worker": {"member_ttl": 3.0, "interrupted": "rerun", "max_attempts": 2},
}


@bug("any-loss-counts", "a claim that an outage ended counts as an attempt", rule="I1", seeds=60, **OUTAGES)
def _() -> Iterator[Any]:
    yield queue, "may_release", lambda _holder, _members, _now: True
    yield delivery, "count_attempts", lambda request: request.attempt
    yield delivery, "losses_of", lambda _request: ()


@bug(
    "poison-is-endless",
    "a request that kills whoever carries it out is delivered for ever",
    rule="I1",
    seeds=3,
    faults=(),
    poisoned=1,
    supervised=1.0,
    intruders=False,
    commands=0.0,
)
def _() -> Iterator[Any]:
    yield delivery, "count_attempts", lambda _request: 1
    yield delivery, "losses_of", lambda _request: ()


@bug(
    "end-not-durable",
    "the end of an inspection does not wait for the disk",
    rule="I6",
    seeds=20,
    faults=("power failure",),
    mean_between_faults=3.0,
)
def _() -> Iterator[Any]:
    yield results, "is_end", lambda _event, _outcome: False


@bug("node-not-locked", "a claim does not lock its node", rule="two claims", seeds=20)
def _() -> Iterator[Any]:
    mine = {name: value for name, value in queue._MY_CLAIM.items() if name != "claimed_node"}
    table = queue.schema.requests
    yield from _claiming(_oldest(), mine)
    yield queue, "_CLAIM_ID", update(table).where(_r.id == bindparam("_id"), _r.holder.is_(None)).values(mine)


@bug(
    "youngest-first",
    "of the requests of a free node the youngest is claimed",
    rule="order",
    seeds=20,
    commands=0.9,
    slow_bmc=0.3,
    worker={"bmc_slots": 1},
)
def _() -> Iterator[Any]:
    yield from _claiming(_oldest(_r.claimed_node.is_(None)).order_by(None).order_by(_r.id.desc()), queue._MY_CLAIM)


def _oldest(*conditions: Any) -> Any:
    """Return what finds a request to claim, whatever else there is of its node."""
    due = (_r.holder.is_(None), _r.due_at <= queue.db_now(), *queue._OF_LANE)
    return (
        select(*requests.REQUEST.columns)
        .where(*due, *conditions)
        .order_by(_r.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )


def _claiming(found: Any, values: Any) -> Iterator[Any]:
    yield queue, "_NEXT_OF_LANE", found
    yield queue, "_CLAIM_OF_LANE", queue.claiming(found, values)


@bug("node-stays-locked", "giving a request back leaves its node locked", rule="I1", seeds=20)
def _() -> Iterator[Any]:
    statement = requests._RETRY._generate()
    kept = {
        column: value
        for column, value in statement._values.items()
        if str(getattr(column, "key", column)) != "claimed_node"
    }
    statement._values = type(statement._values)(kept)
    yield requests, "_RETRY", statement


@bug("put-outside", "the request is put on the queue after the transaction that changes the state", rule="I1", seeds=3)
def _() -> Iterator[Any]:
    put, write = requests.Requests.put, store.Store.write

    def later(self: Any, request: Any, *, instead_of: Any = None) -> Any:
        if instead_of is not None:
            return put(self, request, instead_of=instead_of)
        late = self._tx.__dict__.setdefault("late", [])
        late.append(request)
        return None

    def written(self: Any, work: Any, *, durable: bool = True) -> Any:
        late: list[Any] = []

        def noting(tx: Any) -> Any:
            result = work(tx)
            late[:] = tx.__dict__.get("late", [])
            return result

        result = write(self, noting, durable=durable)
        for request in late:
            write(self, lambda tx, request=request: put(tx.requests, request), durable=durable)
        return result

    yield requests.Requests, "put", later
    yield store.Store, "write", written


@bug(
    "claims-doubted-not",
    "a claim whose answer was lost is forgotten, and held forever",
    rule="I1",
    seeds=40,
    faults=("broken connections",),
    mean_between_faults=3.0,
)
def _() -> Iterator[Any]:
    yield queue.Queue, "_free_doubtful", lambda self: self._doubtful.clear()
    yield from _own_claims_not_looked_at()


@bug(
    "own-claims-trusted",
    "a process never looks whether it still knows of what it holds (found by this simulation)",
    rule="I1",
    seeds=60,
    faults=("lost tail", "power failure", "broken connections"),
)
def _() -> Iterator[Any]:
    yield from _own_claims_not_looked_at()


def _own_claims_not_looked_at() -> Iterator[Any]:
    orphans = select(_r.id, _r.holder, _r.token).where(
        _r.holder.is_not(None), ~queue._ALIVE, _r.holder != bindparam("_me")
    )
    yield queue, "_ORPHANS", orphans


# Members outlive the outages: else others free what they held before its old token can do any harm.
@bug(
    "same-token",
    "what follows is held under the token of what was before (found by this simulation)",
    rule="state",
    seeds=90,
    faults=("lost tail",),
    mean_between_faults=0.7,
    nodes=16,
    rounds=8,
    slow_bmc=0.2,
    aborts=0.0,
    worker={"member_ttl": 60.0},
)
def _() -> Iterator[Any]:
    replace = requests.Requests._replace

    def replaced(self: Any, claim: Any, request: Any) -> Any:
        with mock.patch.object(requests, "new_uuid", lambda: claim.token):
            result = replace(self, claim, request)
        self._tx.ended.discard(claim.token)
        return result

    yield requests.Requests, "_replace", replaced
