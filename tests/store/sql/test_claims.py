"""``db.queue.Queue.get_with``: a claim and the first work under it are one transaction."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from sqlalchemy.exc import IntegrityError

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import EVERYTHING
from ferroscope.core.model import Claim, Node
from ferroscope.db import Transaction
from tests.store.conftest import Adapter, Open
from tests.support import examples
from tests.support.processes import PATIENCE


def _renamed(tx: Transaction, claim: Claim) -> Node:
    node, _ = tx.nodes.locked(claim.request.node)
    return tx.nodes.update(msgspec.structs.replace(node, name="prepared"))


def _get_with(adapter: Adapter, work: Any) -> tuple[Claim, Any]:
    found = adapter.queue.get_with("worker", 10.0, adapter.stop, EVERYTHING, work)
    assert found is not None, "there should have been a request to claim"
    return found


def test_the_claim_is_committed_with_what_the_work_wrote(adapter: Adapter) -> None:
    adapter.join("worker")
    node = adapter.node()
    adapter.put(examples.request(node))
    claim, changed = _get_with(adapter, _renamed)
    assert adapter.get(node.uuid) == changed
    assert claim.request.attempt == 1
    assert adapter.pending(node) == [claim.request]
    adapter.write(lambda tx: tx.requests.consume(claim))
    assert adapter.pending(node) == []


def test_the_work_sees_its_own_claim_as_it_is_stored(adapter: Adapter) -> None:
    adapter.join("worker")
    node = adapter.node()
    adapter.put(examples.request(node))
    claim, seen = _get_with(
        adapter, lambda tx, claim: (tx.requests.hold(claim, begun=True), tx.requests.pending(node.uuid))
    )
    assert [(request.id, request.attempt, request.begun) for request in seen[1]] == [(claim.request.id, 1, True)]


@pytest.mark.parametrize(
    "error",
    [NotFoundError("node", "gone"), RuntimeError("a defect"), IntegrityError("an INSERT", None, Exception("a defect"))],
    ids=lambda error: type(error).__name__,
)
def test_work_that_fails_leaves_nothing_but_the_claim_which_counts(adapter: Adapter, error: Exception) -> None:
    adapter.join("worker")
    node = adapter.node(name="unchanged")
    adapter.put(examples.request(node))

    def fail(tx: Transaction, claim: Claim) -> None:
        _renamed(tx, claim)
        raise error

    claim, result = _get_with(adapter, fail)
    assert result is None
    assert adapter.get(node.uuid).name == "unchanged"
    assert [request.attempt for request in adapter.pending(node)] == [1]
    adapter.write(lambda tx: tx.requests.consume(claim))


def test_of_two_who_claim_requests_of_one_node_at_once_one_prepares_it(open_adapter: Open) -> None:
    adapters = [open_adapter() for _ in range(2)]
    node = adapters[0].node()
    for _ in range(10):
        adapters[0].put(examples.request(node))
    prepared: list[Claim] = []
    start = threading.Barrier(2)

    def work(adapter: Adapter, member: str) -> None:
        adapter.join(member)
        start.wait()
        while adapter.pending(node):
            found = adapter.queue.get_with(member, 0.0, adapter.stop, EVERYTHING, _counted)
            if found is not None:
                prepared.append(found[0])
                adapter.write(lambda tx, claim=found[0]: tx.requests.consume(claim))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(one, f"worker-{at}")) for at, one in enumerate(adapters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(prepared) == 10
    assert adapters[0].get(node.uuid).driver_info["prepared"] == 10


def _counted(tx: Transaction, claim: Claim) -> None:
    node, _ = tx.nodes.locked(claim.request.node)
    times = node.driver_info.get("prepared", 0) + 1
    tx.nodes.update(msgspec.structs.replace(node, driver_info={**node.driver_info, "prepared": times}))
