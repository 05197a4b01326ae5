"""Claims whose holder's heartbeat has expired: who releases them, when, and what is noted in the request."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from ferroscope.core.delivery import Cause, count_attempts, losses_of
from ferroscope.core.model import Claim, Node, Request
from ferroscope.core.states import Event
from ferroscope.db import schema
from tests.store.conftest import Adapter
from tests.support import examples
from tests.support.processes import until

_TTL = 600.0


def silent(adapter: Adapter, *members: str, seconds: float = 2 * _TTL) -> None:
    """Let the last heartbeats of these members be so many seconds old."""
    m = schema.members.c
    times = {name: m[name] - seconds for name in ("started_at", "steady_since", "expires_at")}
    statement = update(schema.members).where(m.id.in_(members)).values(times)
    adapter.write(lambda tx: tx.connection.execute(statement))  # type: ignore[attr-defined]


def held(adapter: Adapter) -> tuple[Node, Claim]:
    """Return a node and the claim of its request, which the member ``worker`` holds."""
    node = adapter.node()
    adapter.put(examples.request(node, Event.INSPECT))
    return node, adapter.must_claim("worker")


def released(adapter: Adapter, node: Node, holder: str = "other") -> Request:
    """Let ``holder`` claim the node's request."""
    claim = adapter.must_claim(holder)
    assert claim.request.node == node.uuid
    return claim.request


def test_after_an_outage_everybody_keeps_what_they_hold(adapter: Adapter) -> None:
    adapter.join("worker", ttl=_TTL)
    adapter.join("other", ttl=_TTL)
    _, claim = held(adapter)
    silent(adapter, "worker", "other")
    assert adapter.claim("other") is None, "one that is not alive itself must not release the claims of others"
    adapter.join("other", ttl=_TTL)
    assert adapter.claim("other") is None, "the holder has had no time to return"
    adapter.join("worker", ttl=_TTL)
    assert adapter.claim("other") is None
    adapter.write(lambda tx: tx.requests.consume(claim))


def test_who_does_not_return_after_an_outage_has_used_no_attempt(adapter: Adapter) -> None:
    adapter.join("worker", ttl=_TTL)
    node, claim = held(adapter)
    silent(adapter, "worker", seconds=4 * _TTL)
    adapter.join("other", ttl=_TTL)
    silent(adapter, "other", seconds=_TTL / 2)  # it is there for a while now
    request = released(adapter, node)
    assert request.attempt == 2
    assert count_attempts(request) == 1
    assert [(one.member, one.cause) for one in losses_of(request)] == [(claim.holder, Cause.OUTAGE)]


def test_a_process_that_alone_is_silent_has_used_an_attempt(adapter: Adapter) -> None:
    adapter.join("other", ttl=4 * _TTL)
    silent(adapter, "other", seconds=1.5 * _TTL)
    adapter.join("other", ttl=4 * _TTL)
    adapter.join("worker", ttl=_TTL)
    node, _ = held(adapter)
    silent(adapter, "worker", seconds=1.5 * _TTL)
    request = released(adapter, node)
    assert count_attempts(request) == 2
    assert [one.cause for one in losses_of(request)] == [Cause.DIED]


def test_a_graceful_stop_uses_no_attempt_and_a_death_does(adapter: Adapter) -> None:
    adapter.join("worker")
    adapter.join("other")
    node, _ = held(adapter)
    adapter.write(lambda tx: tx.members.leave("worker"))
    assert count_attempts(released(adapter, node)) == 1
    adapter.write(lambda tx: tx.members.leave("other", died=True))
    adapter.join("third")
    request = released(adapter, node, "third")
    assert [one.cause for one in losses_of(request)] == [Cause.STOPPED, Cause.DIED]
    assert count_attempts(request) == 2


def test_a_claim_that_its_process_does_not_know_uses_no_attempt(adapter: Adapter) -> None:
    adapter.join("worker")
    node, claim = held(adapter)
    adapter.store.claims.discard(claim.token)  # type: ignore[attr-defined]  # a crash has lost what ended it
    request = released(adapter, node, "worker")
    assert (request.attempt, count_attempts(request)) == (2, 1)


def test_a_claim_that_ends_while_the_queue_is_looked_at_is_not_lost(
    adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is still in what the look reads, and it is not among the claims any more."""
    adapter.join("worker", ttl=_TTL)
    _, claim = held(adapter)
    seen, found = adapter.queue._look_for_work, []

    def late(*arguments: Any) -> Any:
        adapter.store.claims.discard(claim.token)
        found.append(seen(*arguments))
        adapter.store.claims.add(claim.token)
        return found[-1]

    monkeypatch.setattr(adapter.queue, "_look_for_work", late)
    assert until(lambda: adapter.claim("worker") is not None or bool(found))
    assert found[0][0] == []
    adapter.write(lambda tx: tx.requests.consume(claim))


def test_what_was_lost_belongs_to_one_request_only(adapter: Adapter) -> None:
    adapter.join("worker")
    adapter.join("other")
    node, _ = held(adapter)
    adapter.write(lambda tx: tx.members.leave("worker"))
    claim = adapter.must_claim("other")
    follow = adapter.write(lambda tx: tx.requests.put(examples.request(node, Event.FINISH), instead_of=claim))
    assert follow is not None
    assert [request.lost for request in adapter.pending(node)] == [follow.request.lost] == [None]


def test_a_gap_between_heartbeats_shows_and_a_usual_pause_does_not(adapter: Adapter) -> None:
    adapter.join("worker", ttl=_TTL)
    silent(adapter, "worker", seconds=_TTL / 2)
    first = adapter.members()["worker"].steady_since
    adapter.join("worker", ttl=_TTL)
    assert adapter.members()["worker"].steady_since == first
    silent(adapter, "worker", seconds=_TTL * 0.9)
    adapter.join("worker", ttl=_TTL)
    member = adapter.members()["worker"]
    assert first is not None
    assert member.steady_since is not None
    assert member.steady_since > first + _TTL / 4
    assert member.expires_at - member.ttl >= member.steady_since - 1e-3
