"""``db.requests.Requests`` on every database: what a worker does with its claim, and what it cannot do without."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ferroscope.contracts.errors import ClaimLostError
from ferroscope.core.model import REQUEST_VERSION, Claim, Node, Request
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from tests.store.conftest import Adapter
from tests.support import examples

ON_A_CLAIM: dict[str, Callable[[Transaction, Claim], object]] = {
    "hold": lambda tx, claim: tx.requests.hold(claim),
    "begin": lambda tx, claim: tx.requests.hold(claim, begun=True, progress={"power": "intent"}),
    "consume": lambda tx, claim: tx.requests.consume(claim),
    "retry": lambda tx, claim: tx.requests.retry(claim, 0.0),
    "uncounted retry": lambda tx, claim: tx.requests.retry(claim, 0.0, counted=False),
    "replace": lambda tx, claim: tx.requests.put(
        Request(node=claim.request.node, event=Event.FINISH), instead_of=claim
    ),
}


def assert_lost(adapter: Adapter, claim: Claim) -> None:
    """Use the claim in each way, in vain."""
    for use in ON_A_CLAIM.values():
        with pytest.raises(ClaimLostError):
            adapter.write(lambda tx, use=use: use(tx, claim))  # type: ignore[misc]


def claimed(adapter: Adapter) -> tuple[Node, Claim]:
    """Return a node, and the claim of its request."""
    node = adapter.node()
    adapter.put(examples.request(node))
    adapter.join("worker")
    return node, adapter.must_claim("worker")


def test_a_request_is_delivered_as_it_was_put(adapter: Adapter) -> None:
    node = adapter.node()
    inspection = examples.uuid()
    before = adapter.read(lambda tx: tx.now)
    payload = {"digest": "😀 ' \\", "list": [1, None]}
    adapter.put(Request(node=node.uuid, event=Event.CONTINUE, inspection=inspection, payload=payload))
    adapter.join("worker")
    claim = adapter.must_claim("worker")
    request = claim.request
    assert (request.node, request.event, request.inspection) == (node.uuid, Event.CONTINUE, inspection)
    assert request.payload == payload
    assert (request.attempt, request.begun, request.progress) == (1, False, {})
    assert request.version == REQUEST_VERSION
    assert before - 0.002 <= request.created_at <= adapter.read(lambda tx: tx.now) + 0.002
    assert claim.holder == "worker"
    assert claim.token


def test_pending_requests_are_listed_in_their_order_claimed_or_not(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    for event in (Event.CONTINUE, Event.ABORT, Event.TIMEOUT):
        adapter.put(examples.request(node, event))
    adapter.put(examples.request(other))
    adapter.join("worker")
    claim = adapter.must_claim("worker")
    pending = adapter.pending(node)
    assert [request.event for request in pending] == [Event.CONTINUE, Event.ABORT, Event.TIMEOUT]
    assert [request.attempt for request in pending] == [1, 0, 0]
    assert claim.request in pending
    assert adapter.pending(adapter.node()) == []


def test_a_consumed_request_is_gone(adapter: Adapter) -> None:
    node, claim = claimed(adapter)
    adapter.write(lambda tx: tx.requests.consume(claim))
    assert adapter.pending(node) == []
    assert adapter.claim("worker") is None


def test_what_is_held_is_noted_on_the_request(adapter: Adapter) -> None:
    node, claim = claimed(adapter)
    adapter.write(lambda tx: tx.requests.hold(claim, progress={"power on": "intent"}))
    adapter.write(lambda tx: tx.requests.hold(claim, begun=True))
    adapter.write(lambda tx: tx.requests.hold(claim))
    (request,) = adapter.pending(node)
    assert request.begun
    assert request.progress == {"power on": "intent"}
    assert request.attempt == 1


def test_the_next_attempt_knows_what_the_one_before_noted(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.put(examples.request(node))
    adapter.join("dies", ttl=0.0)
    claim = adapter.must_claim("dies")
    adapter.write(lambda tx: tx.requests.hold(claim, begun=True, progress={"power on": "intent"}))
    adapter.join("other")
    again = adapter.must_claim("other").request
    assert (again.attempt, again.begun, again.progress) == (2, True, {"power on": "intent"})


def test_a_retried_request_is_delivered_again_with_a_new_token(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.put(examples.request(node))
    adapter.join("worker")
    first = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.hold(first, begun=True, progress={"a": "intent"}))
    adapter.write(lambda tx: tx.requests.retry(first, 0.0))
    second = adapter.must_claim("worker", 0.0)
    assert second.request.id == first.request.id
    assert second.request.attempt == 2
    assert second.request.begun
    assert second.request.progress == {"a": "intent"}
    assert second.token != first.token


def test_an_attempt_that_does_not_count_is_not_counted(adapter: Adapter) -> None:
    adapter.put(examples.request(adapter.node()))
    adapter.join("worker")
    first = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.retry(first, 0.0, counted=False))
    second = adapter.must_claim("worker", 0.0)
    assert second.request.attempt == 1
    assert second.token != first.token


def test_a_follow_up_takes_the_place_of_its_claimed_request(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.put(examples.request(node, Event.CONTINUE, payload={"old": 1}))
    adapter.put(examples.request(node, Event.ABORT))
    adapter.join("worker")
    adapter.join("other")
    claim = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.hold(claim, begun=True, progress={"old": "intent"}))
    follow_up = Request(node=node.uuid, event=Event.FINISH, inspection=examples.uuid(), payload={"new": 2})
    turned = adapter.write(lambda tx: tx.requests.put(follow_up, instead_of=claim))
    assert turned is not None
    assert turned.holder == "worker"
    assert turned.request == adapter.pending(node)[0]
    assert [request.event for request in adapter.pending(node)] == [Event.FINISH, Event.ABORT]
    given = turned.request
    assert (given.event, given.inspection, given.payload) == (Event.FINISH, follow_up.inspection, {"new": 2})
    assert (given.attempt, given.begun, given.progress) == (1, False, {})
    assert adapter.claim("other") is None, "the node is still locked"
    adapter.write(lambda tx: tx.requests.consume(turned))
    assert adapter.must_claim("other").request.event is Event.ABORT


def test_a_replaced_claim_of_a_second_attempt_is_lost(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.put(examples.request(node, Event.CONTINUE))
    adapter.join("worker")
    first = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.retry(first, 0.0))
    second = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.put(Request(node=node.uuid, event=Event.FINISH), instead_of=second))
    with pytest.raises(ClaimLostError):
        adapter.write(lambda tx: tx.requests.consume(second))
    assert [request.event for request in adapter.pending(node)] == [Event.FINISH]


def test_a_claim_that_another_worker_took_over_is_lost(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.put(examples.request(node))
    adapter.join("stalled", ttl=0.0)
    adapter.join("other")
    lost = adapter.must_claim("stalled")
    mine = adapter.must_claim("other")
    assert mine.request.attempt == 2
    before = adapter.pending(node)
    for use in ON_A_CLAIM.values():

        def late(tx: Transaction, use: Callable[[Transaction, Claim], object] = use) -> None:
            tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), owner="too late"))
            use(tx, lost)

        with pytest.raises(ClaimLostError):
            adapter.write(late)
        assert adapter.get(node.uuid).owner is None
    assert adapter.pending(node) == before
    adapter.write(lambda tx: tx.requests.consume(mine))


def test_a_consumed_claim_is_lost(adapter: Adapter) -> None:
    _, claim = claimed(adapter)
    adapter.write(lambda tx: tx.requests.consume(claim))
    assert_lost(adapter, claim)


def test_a_claim_that_was_given_back_is_lost(adapter: Adapter) -> None:
    node, claim = claimed(adapter)
    adapter.write(lambda tx: tx.requests.retry(claim, 60.0))
    assert_lost(adapter, claim)
    assert len(adapter.pending(node)) == 1


def test_a_claim_of_a_removed_node_is_lost(adapter: Adapter) -> None:
    node, claim = claimed(adapter)
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    assert_lost(adapter, claim)


def test_a_guessed_token_is_worth_nothing(adapter: Adapter) -> None:
    node, claim = claimed(adapter)
    assert_lost(adapter, msgspec.structs.replace(claim, token=examples.uuid()))
    assert adapter.pending(node) == [claim.request]


def test_a_claim_may_be_used_several_times_in_one_transaction(adapter: Adapter) -> None:
    node, claim = claimed(adapter)

    def work(tx: Transaction) -> None:
        tx.requests.hold(claim)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), owner="in time"))
        tx.requests.hold(claim, progress={"a": "done"})
        tx.requests.consume(claim)

    adapter.write(work)
    assert adapter.get(node.uuid).owner == "in time"
    assert adapter.pending(node) == []
