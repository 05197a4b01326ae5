"""Fences that do not hold: a leader or a claim that is over writes all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import bindparam, select, update

from ferroscope import leadership
from ferroscope.contracts.errors import ClaimLostError
from ferroscope.db import leases, requests
from ferroscope.worker import loop
from tests.simulation.bugs.registry import DEPOSED, FROZEN, OVERTAKEN, bug, without

_r = requests._r
_l = leases._l


@bug("lease-select", "the leader's fence is a SELECT of the lease instead of an UPDATE", rule="I3", seeds=40, **DEPOSED)
def _() -> Iterator[Any]:
    yield leases, "_TOUCH", select(_l.name).where(*leases._MINE, _l.holder.is_not(None))


@bug(
    "claim-select",
    "the claim's fence is a SELECT of the request instead of an UPDATE",
    rule="I3",
    seeds=40,
    **OVERTAKEN,
)
def _() -> Iterator[Any]:
    looked = select(_r.id).where(*requests._MINE)
    blind = update(requests.schema.requests).where(_r.id == bindparam("_id"))

    def hold(self: Any, claim: Any, *, begun: bool = False, progress: Any = None) -> None:
        mine = {"_id": claim.request.id, "_token": claim.token, "_attempt": claim.request.attempt}
        if not self._tx.run(looked, mine).rows:
            raise ClaimLostError("not mine")
        if begun:
            self._tx.run(blind_begun, {"_id": claim.request.id})
        if progress is not None:
            noted = msgspec.json.encode(progress).decode()
            self._tx.run(blind_progress, {"_id": claim.request.id, "_progress": noted})

    blind_begun = blind.values(begun=True)
    blind_progress = blind.values(progress=bindparam("_progress"))
    yield requests.Requests, "hold", hold
    yield loop.Worker, "prepare_claimed", lambda _self, _tx, _claim: None  # then it is prepared in a later transaction


@bug("no-fence", "a leader writes without any fence", rule="I3", seeds=40, **DEPOSED)
def _() -> Iterator[Any]:
    yield leadership.Leadership, "fence", lambda _self, _tx: None


@bug(
    "finish-unchecked",
    "what ends a request does not ask whether the attempt is still mine",
    rule="I3",
    seeds=80,
    **FROZEN,
)
def _() -> Iterator[Any]:
    by_id = _r.id == bindparam("_id")
    yield requests, "_CONSUME", without(requests._CONSUME, by_id)
    yield requests, "_REPLACE", without(requests._REPLACE, by_id)


@bug(
    "retry-unchecked",
    "giving a request back does not ask whether the attempt is still mine",
    rule="I3",
    seeds=40,
    **FROZEN,
)
def _() -> Iterator[Any]:
    yield requests, "_RETRY", without(requests._RETRY, _r.id == bindparam("_id"))


@bug(
    "renew-by-name",
    "a renewal matches the lease's name alone, so it renews the successor's",
    rule="I3",
    seeds=60,
    **FROZEN,
)
def _() -> Iterator[Any]:
    yield leases, "_RENEW", without(leases._RENEW, _l.name == bindparam("_name"))
