"""Lists of nodes in any order: what has no value is last, on every database."""

from __future__ import annotations

import pytest

from ferroscope.contracts.store import SORTS
from ferroscope.db import Store
from ferroscope.hardware.query import parse
from tests.store.conftest import Adapter
from tests.support import examples

GIB = 2**30
MACHINES = {
    "a": {"vendor": "Dell Inc.", "product": "PowerEdge R650", "serial": "z9", "memory": 512 * GIB, "nics": 10},
    "b": {"vendor": "acme", "product": "one", "serial": "B1", "memory": 64 * GIB, "nics": 9},
    "c": {"vendor": "Dell Inc.", "product": "PowerEdge R640", "memory": 1024 * GIB},
    "d": {},
}


@pytest.fixture
def store(adapter: Adapter) -> Store:
    return adapter.store


@pytest.fixture
def names(store: Store) -> dict[str, str]:
    """Add the machines; return their names by UUID."""
    found = {}
    for number, (name, hardware) in enumerate(MACHINES.items()):
        node = examples.node(
            name=name,
            hardware=hardware,
            created_at=100.0 - number,
            owner="p" if name in "ab" else None,
            last_error="no callback (timeout). Check PXE boot." if name == "b" else None,
            search_digest="1",
        )
        store.write(lambda tx, node=node: tx.nodes.add(node))
        found[node.uuid] = name
    return found


def listed(store: Store, names: dict[str, str], **asked: object) -> str:
    found = store.read(lambda tx: tx.ranking.uuids(**asked))
    return "".join(names[uuid] for uuid in found)


def test_the_order_is_that_of_the_values_and_nothing_is_last(store: Store, names: dict[str, str]) -> None:
    for sort, upwards, downwards in (
        ("name", "abcd", "dcba"),
        ("model", "bcad", "acbd"),
        ("memory", "bacd", "cabd"),
        ("created_at", "dcba", "abcd"),
    ):
        assert listed(store, names, sort=sort) == upwards
        assert listed(store, names, sort=sort, descending=True) == downwards


def test_numbers_are_compared_as_such_and_texts_without_case(store: Store, names: dict[str, str]) -> None:
    assert listed(store, names, sort="nics")[:2] == "ba"
    assert listed(store, names, sort="serial")[:2] == "ba"


def test_only_those_that_match_are_listed(store: Store, names: dict[str, str]) -> None:
    assert listed(store, names, query=parse("name in (a, c)"), sort="memory") == "ac"
    assert listed(store, names, query=parse("reason == timeout")) == "b"
    assert listed(store, names, project="p") == "ab"


def test_each_sort_is_a_column_or_known_of_the_hardware(store: Store, names: dict[str, str]) -> None:
    for sort in SORTS:
        assert len(listed(store, names, sort=sort)) == len(MACHINES), sort


def test_equal_nodes_are_in_the_natural_order_of_their_names_on_every_database(store: Store) -> None:
    names = ("n10", "N9", "n1-b2", "n1-B10", "n01", "n1")
    nodes = [examples.node(name=name) for name in names] + [examples.node(name=None)]
    store.write(lambda tx: [tx.nodes.add(node) for node in nodes])
    known = {node.uuid: node.name for node in nodes}
    for sort in ("name", "provision_state", "memory"):
        found = [known[uuid] for uuid in store.read(lambda tx, sort=sort: tx.ranking.uuids(sort=sort))]  # type: ignore[misc]
        assert found == ["n01", "n1", "n1-b2", "n1-B10", "N9", "n10", None], sort
