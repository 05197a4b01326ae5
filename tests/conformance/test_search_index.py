"""``contracts.store.Facts`` on every adapter."""

from __future__ import annotations

import pytest

from ferroscope.hardware.search_index import IndexRow
from tests.conformance.conftest import Adapter


@pytest.mark.parametrize("number", [0, 1, 2, 3, 31, 32, 33, 100])
def test_rows_come_back_as_they_were_stored(adapter: Adapter, number: int) -> None:
    node = adapter.node()
    rows = [IndexRow("nic", i, t1=f"ä{i}", t7="x" * 255, n1=1e29 / 3, n3=-0.5) for i in range(number)]
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, rows, had=False))
    assert adapter.read(lambda tx: tx.search_index.of(node.uuid)) == rows


def test_new_rows_take_the_place_of_all_old_ones(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    adapter.write(lambda tx: tx.search_index.replace(other.uuid, [IndexRow("node", 0, t1="other")], had=False))
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, [IndexRow("nic", 0), IndexRow("nic", 1)], had=False))
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, [IndexRow("nic", 0, t1="new")], had=True))
    assert adapter.read(lambda tx: tx.search_index.of(node.uuid)) == [IndexRow("nic", 0, t1="new")]
    assert adapter.read(lambda tx: tx.search_index.of(other.uuid)) == [IndexRow("node", 0, t1="other")]


def test_a_deleted_nodes_rows_go_with_it(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, [IndexRow("nic", 0)], had=False))
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    assert adapter.read(lambda tx: tx.search_index.of(node.uuid)) == []
