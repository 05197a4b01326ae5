"""Nodes are found by text that stands within a JSON document, whatever characters it has, on every database."""

from __future__ import annotations

from ferroscope.contracts.store import Query
from tests.store.conftest import Adapter
from tests.support import examples

TEXTS = ("7b1f", "100%", "a_b", 'quote " and \\ back', "!", "Ω 😀")


def test_nodes_are_found_by_what_is_no_column(adapter: Adapter) -> None:
    for text in TEXTS:
        check_parent(adapter, text)


def check_parent(adapter: Adapter, parent: str) -> None:
    child = adapter.node(owner="somebody", attributes={"shard": "1", "parent_node": parent})
    adapter.node(attributes={"parent_node": f"{parent}x", "shard": parent})
    adapter.node()
    assert adapter.read(
        lambda tx: [node.uuid for node in tx.nodes.list(Query(attributes={"parent_node": parent}))]
    ) == [child.uuid]
    both = Query(attributes={"parent_node": parent, "shard": "1"}, project="somebody")
    assert [node.uuid for node in adapter.read(lambda tx: tx.nodes.list(both))] == [child.uuid]


def test_a_project_gets_the_nodes_and_ports_that_it_owns_or_leases(adapter: Adapter) -> None:
    for text in TEXTS:
        check_project(adapter, text)


def check_project(adapter: Adapter, project: str) -> None:
    owned = adapter.node(owner=project)
    leased = adapter.node(owner="somebody", attributes={"lessee": project, "shard": "1"})
    adapter.node(owner="somebody", attributes={"lessee": "somebody else"})
    adapter.node(owner=f"not {project}")
    adapter.node()
    ports = [examples.port(node) for node in (owned, leased, adapter.node(owner="somebody"))]
    adapter.write(lambda tx: tx.ports.add(ports))
    nodes = adapter.read(lambda tx: tx.nodes.list(Query(project=project)))
    assert {node.uuid for node in nodes} == {owned.uuid, leased.uuid}
    assert {port.uuid for port in adapter.read(lambda tx: tx.ports.list(Query(project=project)))} == {
        port.uuid for port in ports[:2]
    }
