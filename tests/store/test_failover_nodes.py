"""``db.failover_nodes.FailoverNodes`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.errors import LeaseLostError
from ferroscope.core.failover_node import FailoverNode
from tests.store.conftest import Adapter
from tests.support import examples


def _node(cluster: str, name: str, machine: str = "") -> FailoverNode:
    return FailoverNode(cluster=cluster, node=name, machine=machine, ready=True, facts=("serial number",), message="ü")


def test_nodes_are_stored_whole_by_cluster_and_replaced_and_removed(adapter: Adapter) -> None:
    cluster, other = examples.uuid(), examples.uuid()
    written = adapter.write(
        lambda tx: tx.failover_nodes.save([_node(cluster, "n2"), _node(cluster, "n1"), _node(other, "n1", "m")])
    )
    assert [one.written_at > 0.0 for one in written] == [True] * 3
    second, first, elsewhere = written
    assert adapter.read(lambda tx: list(tx.failover_nodes.list(cluster))) == [first, second]
    assert elsewhere in adapter.read(lambda tx: list(tx.failover_nodes.elsewhere(cluster)))
    assert first not in adapter.read(lambda tx: list(tx.failover_nodes.elsewhere(cluster)))
    assert adapter.read(lambda tx: list(tx.failover_nodes.named(cluster, ["n2", "n9"]))) == [second]
    changed = msgspec.structs.replace(second, ready=False, machine=examples.uuid(), problem="bmc-error")
    (changed,) = adapter.write(lambda tx: tx.failover_nodes.save([changed]))
    adapter.write(lambda tx: tx.failover_nodes.remove(cluster, ["n1", "n9"]))
    assert adapter.read(lambda tx: list(tx.failover_nodes.list(cluster))) == [changed]
    assert adapter.read(lambda tx: list(tx.failover_nodes.list(other))) == [elsewhere]


def test_those_that_were_written_long_ago_are_removed(adapter: Adapter) -> None:
    cluster = examples.uuid()
    (old,) = adapter.write(lambda tx: tx.failover_nodes.save([_node(cluster, "n1")]))
    adapter.write(lambda tx: tx.failover_nodes.remove_old(old.written_at))
    assert adapter.read(lambda tx: list(tx.failover_nodes.list(cluster))) == [old]
    assert adapter.write(lambda tx: tx.failover_nodes.remove_old(old.written_at + 0.001)) >= 1
    assert adapter.read(lambda tx: list(tx.failover_nodes.list(cluster))) == []


def test_a_leader_whose_lease_was_taken_cannot_save_nodes(adapter: Adapter) -> None:
    name, cluster = f"failover/{examples.uuid()}", examples.uuid()
    old = adapter.write(lambda tx: tx.leases.acquire(name, "a", 60.0))
    adapter.write(lambda tx: tx.leases.release(old))
    adapter.write(lambda tx: tx.leases.acquire(name, "b", 60.0))
    with pytest.raises(LeaseLostError):
        adapter.write(lambda tx: (tx.leases.hold(old), tx.failover_nodes.save([_node(cluster, "n1")])))
    assert adapter.read(lambda tx: list(tx.failover_nodes.list(cluster))) == []
