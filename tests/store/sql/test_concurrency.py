"""The queue under many hands at once, on every database, over two processes' worth of connections."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import msgspec
import pytest

from ferroscope.contracts.errors import ClaimLostError
from ferroscope.core.model import Claim
from ferroscope.db import Transaction
from tests.store.conftest import Adapter, Open
from tests.support import examples
from tests.support.processes import PATIENCE


class Floor:
    """What the workers saw: who was at work on which node, and what was delivered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self.delivered: list[Claim] = []
        self.troubles: list[str] = []

    def enter(self, claim: Claim) -> None:
        with self._lock:
            if claim.request.node in self._busy:
                self.troubles.append(f"two at once on node {claim.request.node}")
            self._busy.add(claim.request.node)
            self.delivered.append(claim)

    def leave(self, claim: Claim) -> None:
        with self._lock:
            self._busy.discard(claim.request.node)


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


def test_each_request_is_delivered_once_and_nodes_are_never_shared(open_adapter: Open) -> None:
    adapters = [open_adapter(), open_adapter()]
    nodes = [adapters[0].node() for _ in range(20)]
    wanted: dict[str, list[int]] = defaultdict(list)
    for round_ in range(4):
        for node in nodes:
            adapters[0].put(examples.request(node, payload={"round": round_}))
            wanted[node.uuid].append(round_)
    floor = Floor()

    def work(adapter: Adapter, name: str) -> None:
        adapter.join(name)
        while (claim := adapter.claim(name, 1.0)) is not None:
            floor.enter(claim)
            time.sleep(random.random() * 0.002)
            floor.leave(claim)
            try:
                adapter.write(lambda tx, claim=claim: tx.requests.consume(claim))  # type: ignore[misc]
            except ClaimLostError:
                floor.troubles.append("lost a claim")

    _run([threading.Thread(target=work, args=(adapters[number % 2], f"worker-{number}")) for number in range(8)])
    delivered: dict[str, list[int]] = defaultdict(list)
    for claim in floor.delivered:
        delivered[claim.request.node].append(claim.request.payload["round"])
    assert floor.troubles == []
    assert delivered == wanted
    assert {claim.request.attempt for claim in floor.delivered} == {1}


def test_requests_of_one_node_keep_their_order_however_many_claim_at_once(open_adapter: Open) -> None:
    adapters = [open_adapter(), open_adapter()]
    node = adapters[0].node()
    for number in range(40):
        adapters[0].put(examples.request(node, payload={"number": number}))
    floor = Floor()

    def work(adapter: Adapter, name: str) -> None:
        adapter.join(name)
        while len(floor.delivered) < 40:
            claim = adapter.claim(name, 0.05)
            if claim is not None:
                floor.enter(claim)
                floor.leave(claim)
                adapter.write(lambda tx, claim=claim: tx.requests.consume(claim))  # type: ignore[misc]

    _run([threading.Thread(target=work, args=(adapters[number % 2], f"worker-{number}")) for number in range(6)])
    assert floor.troubles == []
    assert [claim.request.payload["number"] for claim in floor.delivered] == list(range(40))


def test_every_request_takes_effect_exactly_once_though_workers_die_and_wake_up_late(open_adapter: Open) -> None:
    adapters = [open_adapter(), open_adapter()]
    nodes = [adapters[0].node(extra={"effects": []}) for _ in range(8)]
    for number in range(5):
        for node in nodes:
            adapters[0].put(examples.request(node, payload={"number": number}))
    unexpected: list[BaseException] = []
    lost = threading.Semaphore(0)
    dice = random.Random(7)

    def effect(tx: Transaction, claim: Claim) -> None:
        tx.requests.hold(claim)
        node = tx.nodes.get(claim.request.node, lock=True)
        effects = [*node.extra["effects"], claim.request.payload["number"]]
        tx.nodes.update(msgspec.structs.replace(node, extra={"effects": effects}))
        tx.requests.consume(claim)

    def work(adapter: Adapter, name: str) -> None:
        try:
            while True:
                adapter.join(name, ttl=0.3)
                claim = adapter.claim(name, 1.5)
                if claim is None:
                    return
                if dice.random() < 0.25:  # stalls for longer than its membership lasts, then goes on
                    time.sleep(0.5)
                try:
                    adapter.write(lambda tx, claim=claim: effect(tx, claim))  # type: ignore[misc]
                except ClaimLostError:
                    lost.release()
        except BaseException as exc:  # noqa: BLE001  # shown by the assertion below
            unexpected.append(exc)

    # Claims are freed only if the heartbeats of somebody who asks for one have had no gap.
    ended, witness = threading.Event(), open_adapter()

    def beat() -> None:
        while not ended.wait(0.02):
            witness.join("witness", ttl=0.3)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        _run([threading.Thread(target=work, args=(adapters[number % 2], f"worker-{number}")) for number in range(6)])
    finally:
        ended.set()
        beating.join()
    assert unexpected == []
    assert [adapters[0].get(node.uuid).extra["effects"] for node in nodes] == [[0, 1, 2, 3, 4]] * len(nodes)
    assert lost.acquire(blocking=False), "the test should have made somebody lose a claim"


def test_a_claim_held_in_an_open_transaction_cannot_be_taken_over(open_adapter: Open) -> None:
    first, second = open_adapter(), open_adapter()
    node = first.node()
    first.put(examples.request(node))
    first.join("stalls", ttl=0.0)
    second.join("other")
    claim = first.must_claim("stalls")
    holding = threading.Event()
    taken: list[Claim | None] = []

    def take() -> None:
        holding.wait(PATIENCE)
        taken.append(second.claim("other", 1.0))

    def work(tx: Transaction) -> None:
        tx.requests.hold(claim)
        present = tx.nodes.get(node.uuid)  # with what is read goes what was written before
        holding.set()
        time.sleep(0.5)
        tx.nodes.update(msgspec.structs.replace(present, owner="mine"))
        tx.requests.consume(claim)

    thread = threading.Thread(target=take)
    thread.start()
    first.write(work)
    thread.join(PATIENCE)
    assert taken == [None]
    assert first.get(node.uuid).owner == "mine"


def test_many_starts_of_one_node_at_once_are_one(open_adapter: Open) -> None:
    adapters = [open_adapter(), open_adapter()]
    node = adapters[0].node()
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def begin(tx: Transaction) -> None:
        stored = tx.nodes.get(node.uuid, lock=True)
        if not tx.requests.pending(node.uuid):
            tx.requests.put(examples.request(stored))

    def press(adapter: Adapter) -> None:
        start.wait(PATIENCE)
        try:
            adapter.write(begin)
        except BaseException as exc:  # noqa: BLE001  # shown by the assertion below
            failures.append(exc)

    _run([threading.Thread(target=press, args=(adapters[number % 2],)) for number in range(8)])
    assert failures == []
    assert len(adapters[0].pending(node)) == 1


@pytest.mark.parametrize("threads", [6])
def test_transactions_that_lock_in_opposite_orders_both_end(open_adapter: Open, threads: int) -> None:
    adapters = [open_adapter(busy_timeout=30.0), open_adapter(busy_timeout=30.0)]
    nodes = [adapters[0].node(extra={"count": 0}) for _ in range(3)]
    failures: list[BaseException] = []

    def work(adapter: Adapter, seed: int) -> None:
        dice = random.Random(seed)

        def change(tx: Transaction) -> None:
            for node in order:
                stored = tx.nodes.get(node.uuid, lock=True)
                tx.nodes.update(msgspec.structs.replace(stored, extra={"count": stored.extra["count"] + 1}))

        try:
            for _ in range(8):
                order = dice.sample(nodes, 2)
                adapter.write(change)
        except BaseException as exc:  # noqa: BLE001  # shown by the assertion below
            failures.append(exc)

    _run([threading.Thread(target=work, args=(adapters[number % 2], number)) for number in range(threads)])
    assert failures == []
    assert sum(adapters[0].get(node.uuid).extra["count"] for node in nodes) == threads * 8 * 2


def test_what_is_put_while_the_nodes_lock_is_waited_for_is_seen_under_it(open_adapter: Open) -> None:
    """A worker must not end an inspection past a request that another process is putting at this moment."""
    first, second = open_adapter(), open_adapter()
    node = first.node()
    locked = threading.Event()
    found: list[int] = []

    def put(tx: Transaction) -> None:
        tx.nodes.get(node.uuid, lock=True)
        locked.set()
        time.sleep(0.5)  # the other transaction asks for the lock meanwhile
        tx.requests.put(examples.request(node))

    def conclude(tx: Transaction) -> None:
        present = tx.nodes.locked_later(node.uuid)
        found[:] = [len(tx.requests.pending_later(node.uuid).get())]
        present.get()

    def follow() -> None:
        assert locked.wait(PATIENCE)
        second.write(conclude)

    _run([threading.Thread(target=lambda: first.write(put)), threading.Thread(target=follow)])
    assert found == [1]
