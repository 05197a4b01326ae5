"""Statements that go to the database together: all of them, in their order, or none."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import ClaimLostError, ConflictError, StaleError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from tests.store.conftest import Adapter
from tests.support import examples

# A statement that comes for the fifth time on a connection is prepared there, on PostgreSQL.
_OFTEN = 12


def test_the_same_statement_may_come_often_in_one_message(adapter: Adapter) -> None:
    node = adapter.node()
    ports = [examples.port(node) for _ in range(_OFTEN)]
    adapter.write(lambda tx: tx.ports.add(ports))
    found = adapter.read(lambda tx: tx.ports.list(Query(filters={"node": node.uuid})))
    assert {port.uuid for port in found} == {port.uuid for port in ports}


def test_what_fails_in_the_middle_again_and_again_leaves_nothing_and_costs_nobody_his_connection(
    adapter: Adapter,
) -> None:
    taken = adapter.node(name="taken")
    for round_ in range(_OFTEN):

        def work(tx: Transaction, number: int = round_) -> None:
            tx.nodes.add(examples.node(name=f"first-{number}"))
            tx.nodes.add(examples.node(name="taken"))
            tx.ports.add([examples.port(taken)])

        with pytest.raises(ConflictError) as caught:
            adapter.write(work)
        assert (caught.value.field, caught.value.value) == ("name", "taken")
    adapter.write(lambda tx: tx.ports.add([examples.port(taken)]))
    assert [node.name for node in adapter.read(lambda tx: tx.nodes.list(Query()))] == ["taken"]
    assert len(adapter.read(lambda tx: tx.ports.list(Query()))) == 1


def test_a_version_that_is_old_is_found_out_before_anything_is_committed(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.write(lambda tx: tx.nodes.update(tx.nodes.get(node.uuid)))

    def work(tx: Transaction) -> None:
        tx.nodes.update(msgspec.structs.replace(node, owner="too late"))
        tx.ports.add([examples.port(node)])

    with pytest.raises(StaleError):
        adapter.write(work)
    assert adapter.get(node.uuid).owner is None
    assert adapter.read(lambda tx: tx.ports.list(Query())) == []


def test_a_claim_that_is_over_is_found_out_before_anything_is_committed(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.put(examples.request(node))
    adapter.join("m1")
    claim = adapter.must_claim("m1")
    adapter.write(lambda tx: tx.requests.consume(claim))

    def work(tx: Transaction) -> None:
        tx.requests.hold(claim)
        tx.nodes.add(examples.node(name="too-late"))

    with pytest.raises(ClaimLostError):
        adapter.write(work)
    assert [one.uuid for one in adapter.read(lambda tx: tx.nodes.list(Query()))] == [node.uuid]


def test_a_node_and_its_inspection_are_read_as_they_are_once_the_lock_is_there(adapter: Adapter) -> None:
    node = adapter.node()
    assert adapter.write(lambda tx: tx.nodes.locked(node.uuid)) == (node, None)

    def renamed(tx: Transaction) -> tuple[Node, Node]:
        present, _ = tx.nodes.locked(node.uuid)
        changed = tx.nodes.update(msgspec.structs.replace(present, owner="one"))
        return tx.nodes.update(msgspec.structs.replace(changed, owner="two")), tx.nodes.get(node.uuid)

    written, read = adapter.write(renamed)
    assert written == read
    assert read.owner == "two"


def test_what_cannot_be_announced_is_committed_all_the_same(adapter: Adapter) -> None:
    """PostgreSQL takes no message of more than 8000 bytes, and says so only after the commit."""
    for name in ("first", "second"):

        def work(tx: Transaction, name: str = name) -> None:
            tx.nodes.add(examples.node(name=name))
            tx.woken.add(f"requests {'x' * 9000}")

        adapter.write(work)
    assert sorted(str(node.name) for node in adapter.read(lambda tx: tx.nodes.list(Query()))) == ["first", "second"]
