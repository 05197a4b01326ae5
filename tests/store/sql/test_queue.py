"""``db.queue.Queue`` on every database: what is delivered, to whom, in which order and when."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import msgspec
import pytest

from ferroscope.contracts.store import Take
from ferroscope.core.model import REQUEST_VERSION, Claim, Request
from ferroscope.core.states import Event
from ferroscope_client.core.obstacles import Lane
from tests.store.conftest import Adapter, Open
from tests.support import examples
from tests.support.processes import HOURS, PATIENCE
from tests.support.stores import claim_from


def _claiming(adapter: Adapter) -> Future[Claim | None]:
    """Let a thread wait for a request; return where it puts what it got."""
    claimed: Future[Claim | None] = Future()
    waits, wait = threading.Event(), adapter.bus.wait

    def noted(channel: str, seen: int, timeout: float) -> int:
        if timeout > 0:
            waits.set()
        return wait(channel, seen, timeout)

    adapter.bus.wait = noted  # type: ignore[method-assign]
    threading.Thread(target=lambda: claimed.set_result(adapter.claim("worker", HOURS)), daemon=True).start()
    assert waits.wait(PATIENCE)
    return claimed


def test_an_empty_queue_gives_nothing_when_the_time_is_over(open_adapter: Open) -> None:
    adapter = open_adapter(poll_seconds=0.0625)
    now, pauses = [1024.0], []

    def wait(_channel: str, seen: int, timeout: float) -> int:
        pauses.append(timeout)
        now[0] += timeout
        return seen

    adapter.bus.wait = wait  # type: ignore[method-assign]
    adapter.queue._clock = SimpleNamespace(monotonic=lambda: now[0])  # type: ignore[attr-defined]
    assert adapter.claim("worker", 0.0) is None
    assert sum(pauses) == 0.0
    assert adapter.claim("worker", 0.25) is None
    assert [pause for pause in pauses if pause] == [0.0625] * 4


def test_requests_of_different_nodes_come_oldest_first(adapter: Adapter) -> None:
    adapter.join("worker")
    nodes = [adapter.node() for _ in range(5)]
    for node in nodes:
        adapter.put(examples.request(node))
    assert [adapter.must_claim("worker").request.node for _ in nodes] == [node.uuid for node in nodes]
    assert adapter.claim("worker") is None


def test_requests_of_one_node_come_one_after_the_other_in_their_order(adapter: Adapter) -> None:
    adapter.join("worker")
    adapter.join("other")
    node = adapter.node()
    events = [Event.CONTINUE, Event.ABORT, Event.TIMEOUT, Event.VERIFY]
    for event in events:
        adapter.put(examples.request(node, event))
    delivered = []
    for _ in events:
        claim = adapter.must_claim("worker")
        assert adapter.claim("other") is None, "a claim is the lock of its node"
        assert adapter.claim("worker") is None, "for its own holder too"
        delivered.append(claim.request.event)
        adapter.write(lambda tx, claim=claim: tx.requests.consume(claim))  # type: ignore[misc]
    assert delivered == events


def test_a_request_of_another_node_passes_those_of_a_claimed_one(adapter: Adapter) -> None:
    adapter.join("worker")
    busy, free = adapter.node(), adapter.node()
    adapter.put(examples.request(busy))
    adapter.put(examples.request(busy))
    adapter.put(examples.request(free))
    assert adapter.must_claim("worker").request.node == busy.uuid
    assert adapter.must_claim("worker").request.node == free.uuid
    assert adapter.claim("worker") is None


def test_a_retry_is_delivered_when_its_time_has_come_and_not_before(adapter: Adapter) -> None:
    adapter.join("worker")
    adapter.put(examples.request(adapter.node()))
    claim = adapter.must_claim("worker")
    adapter.put(examples.request(adapter.node()))
    later = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.retry(later, HOURS))
    adapter.write(lambda tx: tx.requests.retry(claim, 0.4))
    again = adapter.must_claim("worker")
    assert again.request.id == claim.request.id
    assert adapter.claim("worker") is None


def test_a_request_passes_one_of_its_node_that_waits_for_its_retry(adapter: Adapter) -> None:
    adapter.join("worker")
    node = adapter.node()
    adapter.put(examples.request(node, Event.INSPECT))
    claim = adapter.must_claim("worker")
    adapter.put(examples.request(node, Event.ABORT))
    adapter.write(lambda tx: tx.requests.retry(claim, 60.0))
    assert adapter.must_claim("worker").request.event is Event.ABORT


def test_a_request_may_be_put_for_later(adapter: Adapter) -> None:
    adapter.join("worker")
    node = adapter.node()
    due = adapter.read(lambda tx: tx.now) + 0.4
    adapter.put(examples.request(node, due_at=due))
    assert adapter.must_claim("worker").request.node == node.uuid
    assert adapter.read(lambda tx: tx.now) >= due


def test_a_request_is_there_at_once(adapter: Adapter) -> None:
    adapter.join("worker")
    for _ in range(20):
        adapter.put(examples.request(adapter.node()))
        assert adapter.claim("worker", 0.0) is not None


def test_what_a_dead_member_held_is_delivered_again(adapter: Adapter) -> None:
    adapter.join("other")
    node = adapter.node()
    adapter.put(examples.request(node, Event.CONTINUE))
    adapter.put(examples.request(node, Event.ABORT))
    adapter.join("dies", ttl=HOURS)
    held = adapter.must_claim("dies")
    assert adapter.claim("other", 0.0) is None, "its holder lives"
    adapter.join("dies", ttl=0.2)
    again = adapter.must_claim("other")
    assert again.request.id == held.request.id
    assert again.request.attempt == 2
    assert again.holder == "other"
    assert again.token != held.token


def test_what_a_living_member_holds_stays_its_own(adapter: Adapter) -> None:
    adapter.join("lives", ttl=0.3)
    adapter.join("other")
    adapter.put(examples.request(adapter.node()))
    adapter.must_claim("lives")
    for _ in range(5):
        adapter.join("lives", ttl=0.3)
        assert adapter.claim("other", 0.1) is None


def test_what_a_member_held_that_left_is_free_at_once(open_adapter: Open) -> None:
    leaving, other = open_adapter(), open_adapter()
    leaving.join("leaves", ttl=HOURS)
    leaving.join("other")
    nodes = [leaving.node(), leaving.node()]
    for node in nodes:
        leaving.put(examples.request(node))
        leaving.must_claim("leaves")
    assert other.claim("other") is None
    leaving.write(lambda tx: tx.members.leave("leaves"))
    assert {other.must_claim("other").request.node for _ in nodes} == {node.uuid for node in nodes}


def _node(claimed: Future[Claim | None]) -> str:
    claim = claimed.result(PATIENCE)
    assert claim is not None
    return claim.request.node


def test_a_waiting_worker_is_woken_by_a_request(open_adapter: Open) -> None:
    adapter = open_adapter(poll_seconds=HOURS)
    adapter.join("worker", ttl=HOURS)
    node = adapter.node()
    claimed = _claiming(adapter)
    adapter.put(examples.request(node))
    assert _node(claimed) == node.uuid


def test_a_node_that_became_free_is_found_at_the_next_poll(open_adapter: Open) -> None:
    adapter = open_adapter(poll_seconds=0.2)
    adapter.join("worker")
    node = adapter.node()
    adapter.put(examples.request(node))
    adapter.put(examples.request(node))
    claim = adapter.must_claim("worker")
    claimed = _claiming(adapter)
    adapter.write(lambda tx: tx.requests.consume(claim))
    assert _node(claimed) == node.uuid


def test_a_waiting_worker_gives_up_when_the_process_shall_stop(adapter: Adapter) -> None:
    claimed = _claiming(adapter)
    adapter.stop.set()
    assert claimed.result(PATIENCE) is None


def test_nothing_is_claimed_once_the_process_shall_stop(adapter: Adapter) -> None:
    adapter.join("worker")
    adapter.put(examples.request(adapter.node()))
    adapter.stop.set()
    assert adapter.claim("worker", 1.0) is None


def test_a_request_of_a_rolled_back_transaction_is_never_delivered(adapter: Adapter) -> None:
    adapter.join("worker")
    node = adapter.node()

    def work(tx):  # type: ignore[no-untyped-def]
        tx.requests.put(examples.request(node))
        raise ZeroDivisionError

    try:
        adapter.write(work)
    except ZeroDivisionError:
        assert adapter.claim("worker", 0.2) is None
    else:
        raise AssertionError("the exception of the work should have come out")


def _take(adapter: Adapter, take: Take) -> Claim | None:
    return claim_from(adapter.queue, "worker", 0.0, adapter.stop, take)


def test_each_lane_gets_its_own_requests(adapter: Adapter) -> None:
    adapter.join("worker")
    for event in Event:
        adapter.put(examples.request(adapter.node(), event))
    got: dict[Lane, set[str]] = {lane: set() for lane in Lane}
    for lane, events in got.items():
        while (claim := _take(adapter, Take(lane))) is not None:
            events.add(claim.request.event)
    assert got[Lane.COMPUTE] == {Event.CONTINUE, Event.REAPPLY}
    assert got[Lane.BMC] == set(Event) - got[Lane.COMPUTE]


def test_what_ends_goes_first_then_commands_then_starts(adapter: Adapter) -> None:
    adapter.join("worker")
    events = [Event.INSPECT, Event.SET_POWER, Event.TIMEOUT, Event.INSPECT, Event.FINISH]
    for event in events:
        adapter.put(examples.request(adapter.node(), event))
    claims = [_take(adapter, Take(Lane.BMC)) for _ in events]
    assert [claim.request.event for claim in claims if claim] == [
        Event.TIMEOUT, Event.FINISH, Event.SET_POWER, Event.INSPECT, Event.INSPECT
    ]  # fmt: skip


def test_what_is_turned_into_another_event_changes_its_lane(adapter: Adapter) -> None:
    adapter.join("worker")
    node = adapter.node()
    adapter.put(examples.request(node, Event.CONTINUE))
    claim = _take(adapter, Take(Lane.COMPUTE))
    assert claim is not None
    finish = examples.request(node, Event.FINISH)
    turned = adapter.write(lambda tx: tx.requests.put(finish, instead_of=claim))
    assert turned is not None
    adapter.write(lambda tx: tx.requests.retry(turned, 0.0, counted=False))
    assert _take(adapter, Take(Lane.COMPUTE)) is None
    again = _take(adapter, Take(Lane.BMC))
    assert again is not None
    assert (again.request.event, again.request.attempt) == (Event.FINISH, 1)


def test_crowded_networks_are_left_out(adapter: Adapter) -> None:
    adapter.join("worker")
    networks = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", None]
    for network in networks:
        request = examples.request(adapter.node(), Event.INSPECT)
        adapter.put(msgspec.structs.replace(request, bmc="b", network=network))
    first, second = networks[:2]
    left = [_take(adapter, Take(Lane.BMC, (str(first), str(second)))) for _ in networks]
    assert [claim.request.network for claim in left if claim] == networks[2:]
    one = _take(adapter, Take(Lane.BMC, (str(second),)))
    assert one is not None
    assert (one.request.network, one.request.bmc) == (first, "b")


@pytest.mark.parametrize("event", [Event.ABORT, Event.DELETE, Event.TIMEOUT])
def test_an_operator_s_end_overtakes_a_start_that_waits(adapter: Adapter, event: Event) -> None:
    adapter.join("worker")
    node = adapter.node()
    adapter.put(examples.request(node, Event.INSPECT))
    adapter.put(examples.request(node, event))
    claim = adapter.must_claim("worker")
    assert claim.request.event is (Event.INSPECT if event is Event.TIMEOUT else event)


def test_a_request_of_a_newer_release_is_left_and_blocks_its_own_node_alone(adapter: Adapter) -> None:
    adapter.join("worker")
    blocked, free = adapter.node(), adapter.node()
    newer: Request = msgspec.structs.replace(examples.request(blocked), version=REQUEST_VERSION + 1)
    adapter.put(newer)
    adapter.put(examples.request(blocked))
    adapter.put(examples.request(free))
    assert adapter.must_claim("worker").request.node == free.uuid
    assert adapter.claim("worker") is None
    assert [request.attempt for request in adapter.pending(blocked)] == [0, 0]
