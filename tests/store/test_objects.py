"""``db.objects.Objects`` and what ``InspectionData`` says of the parts that it holds, on every database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError
from ferroscope.contracts.store import Held, StoredObject, packed
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope_client.core.states import State
from tests.store.conftest import Adapter
from tests.support import examples


def an_object(node: Node, key: str, *, part: str = "inventory", backend: str = "s3") -> StoredObject:
    return StoredObject(key=key, backend=backend, inspection=f"i-{key}", node=node.uuid, part=part, size=7)  # type: ignore[arg-type]


def add(adapter: Adapter, *objects: StoredObject, kept: bool = True) -> None:
    adapter.write(lambda tx: tx.objects.add(objects))
    if kept:
        assert adapter.write(lambda tx: [tx.objects.keep(one) for one in objects]) == [True] * len(objects)


def keys(adapter: Adapter, state: str, **more: str) -> list[str]:
    return [one.key for one in adapter.read(lambda tx: tx.objects.list(state, 100, **more))]  # type: ignore[arg-type]


def test_an_object_is_found_only_after_it_was_kept(adapter: Adapter) -> None:
    one = an_object(adapter.node(), "k1")
    add(adapter, one, kept=False)
    assert adapter.read(lambda tx: tx.objects.find("i-k1", ("inventory", "plugin_data"))) == []
    one = msgspec.structs.replace(one, size=7, content_size=2**33, content_sha256="ab" * 32)
    assert adapter.write(lambda tx: tx.objects.keep(one))
    assert not adapter.write(lambda tx: tx.objects.keep(one))
    (found,) = adapter.read(lambda tx: tx.objects.find("i-k1", ("inventory", "plugin_data")))
    assert msgspec.structs.replace(found, at=0.0) == msgspec.structs.replace(one, state="stored")
    assert found.at > 0
    assert adapter.read(lambda tx: tx.objects.find("i-k1", ("plugin_data",))) == []


def test_a_key_is_used_once_only(adapter: Adapter) -> None:
    one = an_object(adapter.node(), "k1")
    add(adapter, one)
    with pytest.raises(Exception) as caught:  # each database has its own
        adapter.write(lambda tx: tx.objects.add([an_object(examples.node(), "k2"), one]))
    assert isinstance(caught.value, ConflictError) or "IntegrityError" in type(caught.value).__name__
    assert keys(adapter, "uploading") == []


def test_what_is_given_up_cannot_be_kept_any_more(adapter: Adapter) -> None:
    one = an_object(adapter.node(), "k1")
    add(adapter, one, kept=False)
    assert adapter.write(lambda tx: tx.objects.give_up(tx.now - 1000)) == 0
    assert adapter.write(lambda tx: tx.objects.give_up(tx.now + 1000)) == 1
    assert not adapter.write(lambda tx: tx.objects.keep(one))
    assert keys(adapter, "discarded") == ["k1"]


def test_only_discarded_objects_are_forgotten(adapter: Adapter) -> None:
    node = adapter.node()
    add(adapter, an_object(node, "k1"), an_object(node, "k2"))
    adapter.write(lambda tx: tx.objects.discard("i-k1", ("inventory",)))
    adapter.write(lambda tx: tx.objects.forget(["k1", "k2", "k3"]))
    assert keys(adapter, "discarded") == []
    assert keys(adapter, "stored") == ["k2"]


def test_pages_of_objects_go_by_key_and_backend(adapter: Adapter) -> None:
    node = adapter.node()
    add(adapter, an_object(node, "b"), an_object(node, "a", backend="swift"), an_object(node, "c"))
    assert keys(adapter, "stored") == ["a", "b", "c"]
    assert keys(adapter, "stored", backend="s3") == ["b", "c"]
    assert keys(adapter, "stored", after="b") == ["c"]
    assert [one.key for one in adapter.read(lambda tx: tx.objects.list("stored", 1))] == ["a"]
    assert [one.key for one in adapter.read(lambda tx: tx.objects.of_node(node.uuid))] == ["a", "b", "c"]


def test_a_deleted_nodes_objects_are_discarded_stored_or_on_their_way(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    add(adapter, an_object(node, "k1"), an_object(other, "k3"))
    add(adapter, an_object(node, "k2"), kept=False)
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    assert keys(adapter, "discarded") == ["k1", "k2"]
    assert keys(adapter, "stored") == ["k3"]


def test_objects_of_removed_inspections_are_discarded(adapter: Adapter) -> None:
    node = adapter.node()
    old, new = (
        examples.inspection(node, state=State.FINISHED, started_at=at, finished_at=at + 1.0) for at in (1.0, 5.0)
    )

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in (old, new):
            tx.inspections.add(one)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), inspection=new.uuid))

    adapter.write(fill)
    add(
        adapter,
        *(msgspec.structs.replace(an_object(node, key), inspection=i.uuid) for key, i in (("o", old), ("n", new))),
    )
    assert adapter.expire(1000.0) == 1
    assert keys(adapter, "discarded") == ["o"]


def test_parts_of_ended_inspections_are_listed_in_order_and_page_by_page(adapter: Adapter) -> None:
    node = adapter.node()
    ended = [examples.inspection(node, state=state, finished_at=2.0) for state in (State.FINISHED, State.ERROR)]
    running = examples.inspection(node, state=State.PROCESSING)

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in (*ended, running):
            tx.inspections.add(one)
            tx.data.save(one.uuid, node.uuid, packed({"inventory": b"{}", "plugin_data": b"[]"}))

    adapter.write(fill)
    wanted = sorted((one.uuid, part) for one in ended for part in ("inventory", "plugin_data"))
    found: list[Held] = []
    after = ("", "")
    while page := adapter.read(partial(_held, after)):
        found += page
        after = (page[-1].inspection, page[-1].part)
    assert [(one.inspection, one.part) for one in found] == wanted
    assert {one.node for one in found} == {node.uuid}
    mine = adapter.read(lambda tx: tx.data.of_node(node.uuid))
    assert sorted((one.inspection, one.part) for one in mine) == sorted(
        (one.uuid, part) for one in (*ended, running) for part in ("inventory", "plugin_data")
    )


def _held(after: tuple[str, str], tx: Transaction) -> Sequence[Held]:
    return tx.data.held(3, after=after)


def test_a_part_that_was_written_anew_is_not_dropped(adapter: Adapter) -> None:
    node = adapter.node()
    one = examples.inspection(node, state=State.FINISHED, finished_at=2.0)
    adapter.write(lambda tx: tx.inspections.add(one))
    adapter.write(lambda tx: tx.data.save(one.uuid, node.uuid, packed({"inventory": b"1"})))
    (held,) = adapter.read(lambda tx: tx.data.held(10))
    adapter.write(lambda tx: tx.data.save(one.uuid, node.uuid, packed({"inventory": b"2"})))
    assert not adapter.write(lambda tx: tx.data.drop(held))
    (held,) = adapter.read(lambda tx: tx.data.held(10))
    assert adapter.write(lambda tx: tx.data.drop(held))
    assert adapter.read(lambda tx: tx.data.load(one.uuid, ("inventory",))) == {}
    assert adapter.read(lambda tx: tx.data.of_node(node.uuid)) == []
