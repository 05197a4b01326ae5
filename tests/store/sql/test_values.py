"""Values are read from the database as they were written: text, bytes, numbers, NULL; many rows and few."""

from __future__ import annotations

import os

from ferroscope.contracts.store import Part, Query, packed
from ferroscope.db import Transaction
from tests.store.conftest import Adapter
from tests.support import examples

_TEXTS = ("", "naïve 日本語 🧀", "quote ' \" \\ % %s %(name)s ; -- :x ?", "line\nbreak\ttab", "x" * 70_000)
# Around the lengths at which MariaDB's protocol changes the form of a length, and around what is received at a time.
_SIZES = (0, 240, 65_500, 65_536, 200_000, 1_500_000)


def test_a_text_is_read_as_it_was_written(adapter: Adapter) -> None:
    for text in (*_TEXTS, *("e" * length for length in range(249, 257))):
        node = adapter.node(last_error=text, extra={"text": text, text[:100]: [1, None, 2.5]})
        assert node.last_error == text
        assert node.extra == {"text": text, text[:100]: [1, None, 2.5]}


def test_bytes_are_read_as_they_were_written(adapter: Adapter) -> None:
    for size in _SIZES:
        node = adapter.node()
        parts: dict[Part, bytes] = {"inventory": os.urandom(size), "unprocessed": b"{}"}
        adapter.write(lambda tx, of=node.uuid, parts=parts: tx.data.save(of, of, packed(parts)))  # type: ignore[misc]
        found = adapter.read(lambda tx, of=node.uuid: tx.data.load(of, ("inventory", "unprocessed")))  # type: ignore[misc]
        assert found == parts, size


def test_numbers_booleans_and_null_are_read_as_they_were_written(adapter: Adapter) -> None:
    node = adapter.node(provision_updated_at=1234567890.125, inspection_started_at=0.1 + 0.2, maintenance=True)
    assert (node.provision_updated_at, node.inspection_started_at) == (1234567890.125, 0.1 + 0.2)
    assert node.inspection_finished_at is None
    assert node.maintenance is True
    assert type(node.version) is int


def test_many_rows_are_read_with_other_results_of_the_same_message(adapter: Adapter) -> None:
    nodes = [examples.node(last_error=f"{number:05d}" * 60) for number in range(300)]
    ports = [examples.port(nodes[0]) for _ in range(40)]

    def fill(tx: Transaction) -> None:
        for node in nodes:
            tx.nodes.add(node)
        tx.ports.add(ports)

    adapter.write(fill)

    def read(tx: Transaction) -> tuple[set[str], str | None, int]:
        found = tx.ports.list_later(Query(filters={"node": nodes[0].uuid}))
        none = tx.ports.list_later(Query(filters={"node": nodes[1].uuid}))
        node, _ = tx.nodes.locked(nodes[299].uuid)
        return {port.uuid for port in found.get()}, node.last_error, len(none.get())

    assert adapter.write(read) == ({port.uuid for port in ports}, nodes[299].last_error, 0)
    assert {node.uuid for node in adapter.read(lambda tx: tx.nodes.list(Query()))} == {node.uuid for node in nodes}
