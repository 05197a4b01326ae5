"""``db.search.SearchIndex`` on every database."""

from __future__ import annotations

import msgspec
from sqlalchemy import func, select

from ferroscope.db import schema
from ferroscope.hardware import search_index
from ferroscope.hardware.expressions import Word
from ferroscope.hardware.search_index import MAX_TEXT, IndexRow
from ferroscope_sim.inventory import document
from tests.store.conftest import Adapter


def test_rows_come_back_as_they_were_stored(adapter: Adapter) -> None:
    node = adapter.node()
    for number in (0, 1, 31, 32, 33, 100):
        rows = [IndexRow("nic", i, t1=f"ä{i}", t7="x" * 255, n1=1e29 / 3, n3=-0.5) for i in range(number)]
        adapter.write(lambda tx, rows=rows: tx.search_index.replace(node.uuid, rows, had=True))  # type: ignore[misc]
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


def test_a_bare_word_is_found_in_each_text_of_any_length(adapter: Adapter) -> None:
    lengths = [1, 2, 100, MAX_TEXT - 3, MAX_TEXT - 2, MAX_TEXT - 1, MAX_TEXT] * 3
    texts = [f"{chr(ord('a') + number)}ä%_".ljust(length, "x")[:length] for number, length in enumerate(lengths)]
    rows = [IndexRow("disk", number, t2=text, t7=text) for number, text in enumerate(texts)]
    node, other = adapter.node(), adapter.node()
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, rows, had=False))
    adapter.write(lambda tx: tx.search_index.replace(other.uuid, [IndexRow("nic", 0, t1="nothing")], had=False))
    for word, expected in [*((text, True) for text in texts), ("ax", False), ("nothing2", False)]:
        found = adapter.read(lambda tx, word=word: tx.search_index.search(Word(word), 10))
        assert (node.uuid in {match.uuid for match in found}) is expected, word
    found = adapter.read(lambda tx: tx.search_index.search(Word("nothing"), 10))
    assert [match.uuid for match in found] == [other.uuid]


def test_a_bare_word_is_found_where_it_is_at_present(adapter: Adapter) -> None:
    node = adapter.node(name="first-name")
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, ["192.0.2.1", "192.0.2.2"]))
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, [IndexRow("nic", 0, t1="former")], had=False))
    assert [_has(adapter, word) for word in ("first-n", "192.0.2.2", "former", node.uuid[:9])] == [True] * 4
    node = adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, name="Second", owner="Owner-1")))
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, ["192.0.2.1"]))
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, [IndexRow("nic", 0, t1="latter")], had=True))
    assert [_has(adapter, word) for word in ("first-n", "192.0.2.2", "former")] == [False] * 3
    assert [_has(adapter, word) for word in ("second", "owner-1", "192.0.2.1", "latter")] == [True] * 4
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    assert [_has(adapter, word) for word in ("second", "192.0.2.1", "latter")] == [False] * 3


def _has(adapter: Adapter, word: str) -> bool:
    return bool(adapter.read(lambda tx: tx.search_index.search(Word(word), 10)))


def test_a_bare_word_is_looked_for_in_few_rows_of_a_machine(adapter: Adapter) -> None:
    node, body = adapter.node(), document(7, size=40_000)
    rows = search_index.learn(body.pop("inventory"), body).rows
    adapter.write(lambda tx: tx.search_index.replace(node.uuid, rows, had=False))
    count = select(func.count()).select_from(schema.search_index)
    looked, stored = adapter.read(
        lambda tx: [
            tx.connection.execute(one).scalar_one()  # type: ignore[attr-defined]
            for one in (count.where(schema.search_index.c.kind == "words"), count)
        ]
    )
    assert len(rows) > 20
    assert 0 < looked <= 3
    assert looked + len(rows) == stored
    assert adapter.read(lambda tx: tx.search_index.some([node.uuid], ("nic",)))[node.uuid][0].kind == "nic"
