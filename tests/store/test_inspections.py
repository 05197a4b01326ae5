"""``db.inspections.Inspections`` and ``InspectionData`` on every database."""

from __future__ import annotations

import base64
import random

import msgspec
import pytest

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Part, Query, packed
from ferroscope.core.model import Entry
from ferroscope_client.core.states import State
from tests.store.conftest import Adapter, Open
from tests.support import examples


def test_every_field_comes_back_as_it_was_stored(adapter: Adapter) -> None:
    inspection = examples.inspection(
        adapter.node(),
        state=State.ERROR,
        started_at=1_700_000_000.125,
        waiting_since=1_700_000_001.5,
        finished_at=1_700_000_002.75,
        reason="hook-failed",
        error="no disk: 😀",
        digest="ab" * 32,
        manage_boot=False,
    )
    adapter.write(lambda tx: tx.inspections.add(inspection))
    assert adapter.read(lambda tx: tx.inspections.get(inspection.uuid)) == inspection


def test_a_change_is_saved(adapter: Adapter) -> None:
    inspection = examples.inspection(adapter.node())
    adapter.write(lambda tx: tx.inspections.add(inspection))
    changes = {"state": State.ERROR, "waiting_since": 1.5, "finished_at": 2.5, "reason": "timeout", "error": "late"}
    adapter.write(lambda tx: tx.inspections.update(inspection.uuid, **changes))
    adapter.write(lambda tx: tx.inspections.update(inspection.uuid, digest="cd"))
    changed = msgspec.structs.replace(inspection, digest="cd", **changes)
    assert adapter.read(lambda tx: tx.inspections.get(inspection.uuid)) == changed


def test_ended_inspections_go_with_all_that_is_theirs_but_never_a_nodes_newest(adapter: Adapter) -> None:
    node = adapter.node()
    old, late, newest = (
        examples.inspection(node, state=State.FINISHED, started_at=at - 1.0, finished_at=float(at))
        for at in (10, 30, 5)
    )
    running = examples.inspection(node)

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in (old, late, newest, running):
            tx.inspections.add(one)
            tx.data.save(one.uuid, node.uuid, packed({"inventory": b"{}"}))
            tx.journal.append([Entry(node=node.uuid, inspection=one.uuid, step="s", message=one.uuid)])
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), inspection=newest.uuid))

    adapter.write(fill)
    assert [adapter.expire(20.0), adapter.expire(20.0)] == [1, 0]
    left = {one.uuid for one in adapter.read(lambda tx: tx.inspections.list(Query()))}
    assert left == {late.uuid, newest.uuid, running.uuid}
    assert adapter.read(lambda tx: tx.data.load(old.uuid, ("inventory",))) == {}
    entries = adapter.read(lambda tx: tx.journal.list(Query(filters={"node": node.uuid})))
    assert {entry.message for entry in entries} == left


def test_the_newest_good_inspection_outlives_those_that_failed_after_it(adapter: Adapter) -> None:
    node = adapter.node()
    good = examples.inspection(node, state=State.FINISHED, started_at=1.0, finished_at=2.0)
    failed = [examples.inspection(node, state=State.ERROR, started_at=at, finished_at=at + 1) for at in (3.0, 5.0)]

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in (good, *failed):
            tx.inspections.add(one)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), inspection=failed[1].uuid))

    adapter.write(fill)
    assert adapter.expire(20.0) == 1
    left = {one.uuid for one in adapter.read(lambda tx: tx.inspections.list(Query()))}
    assert left == {good.uuid, failed[1].uuid}


def test_what_has_ended_is_found_page_by_page_the_oldest_first(adapter: Adapter) -> None:
    node = adapter.node()
    ended = [examples.inspection(node, state=State.ERROR, finished_at=float(at)) for at in (3, 1, 2, 2, 30)]

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in ended:
            tx.inspections.add(one)

    adapter.write(fill)
    found, after, is_last = list[str](), None, False
    while not is_last:
        page = adapter.read(lambda tx: tx.inspections.find_ended(20.0, after, 2))  # noqa: B023
        found, after, is_last = [*found, *page.keys], page.after, page.is_last
    assert found == [ended[1].uuid, *sorted(one.uuid for one in ended[2:4]), ended[0].uuid]


def test_an_unknown_inspection_is_not_found(adapter: Adapter) -> None:
    ident = examples.uuid()
    with pytest.raises(NotFoundError) as error:
        adapter.read(lambda tx: tx.inspections.get(ident))
    assert (error.value.kind, error.value.ident) == ("inspection", ident)


def test_a_list_is_in_the_order_of_the_starts(adapter: Adapter) -> None:
    node, other = adapter.node(), adapter.node()
    mine = [examples.inspection(node, started_at=float(at), state=State.FINISHED) for at in (2, 1, 3)]

    def fill(tx):  # type: ignore[no-untyped-def]
        for inspection in (*mine, examples.inspection(other)):
            tx.inspections.add(inspection)

    adapter.write(fill)
    mine.sort(key=lambda inspection: inspection.started_at)
    listed = adapter.read(lambda tx: tx.inspections.list(Query(filters={"node": node.uuid})))
    assert list(listed) == mine
    newest = Query(filters={"node": node.uuid}, sort_key="started_at", descending=True, limit=2)
    assert list(adapter.read(lambda tx: tx.inspections.list(newest))) == [mine[2], mine[1]]
    older = msgspec.structs.replace(newest, marker=mine[1].uuid)
    assert list(adapter.read(lambda tx: tx.inspections.list(older))) == [mine[0]]
    finished = Query(filters={"state": (State.FINISHED, State.ERROR)})
    assert list(adapter.read(lambda tx: tx.inspections.list(finished))) == mine


def test_data_comes_back_byte_for_byte(adapter: Adapter) -> None:
    node = adapter.node()
    inspection = examples.inspection(node)
    inventory = bytes(range(256)) * 100 + "'\"\\ 😀".encode()

    def save(tx):  # type: ignore[no-untyped-def]
        tx.inspections.add(inspection)
        tx.data.save(inspection.uuid, node.uuid, packed({"inventory": inventory, "unprocessed": b""}))

    adapter.write(save)
    parts = adapter.read(lambda tx: tx.data.load(inspection.uuid, ["inventory", "unprocessed", "plugin_data"]))
    assert parts == {"inventory": inventory, "unprocessed": b""}
    assert adapter.read(lambda tx: tx.data.load(inspection.uuid, ["unprocessed"])) == {"unprocessed": b""}
    assert adapter.read(lambda tx: tx.data.load(examples.uuid(), ["inventory"])) == {}


def test_a_part_replaces_the_one_before_and_no_other(adapter: Adapter) -> None:
    node = adapter.node()
    inspection = examples.inspection(node)

    def save(tx):  # type: ignore[no-untyped-def]
        tx.inspections.add(inspection)
        tx.data.save(inspection.uuid, node.uuid, packed({"inventory": b"i", "plugin_data": b"old"}))

    adapter.write(save)
    adapter.write(lambda tx: tx.data.save(inspection.uuid, node.uuid, packed({"plugin_data": b"new"})))
    parts = adapter.read(lambda tx: tx.data.load(inspection.uuid, ["inventory", "plugin_data"]))
    assert parts == {"inventory": b"i", "plugin_data": b"new"}


def test_the_largest_callback_that_the_api_takes_can_be_stored(open_adapter: Open) -> None:
    adapter = open_adapter(statement_timeout=60.0)  # a busy machine needs seconds to compress and quote it
    node = adapter.node()
    inspection = examples.uuid()
    content = base64.b64encode(random.Random(1).randbytes(12 * 1024 * 1024 - 64))
    assert 15 * 1024 * 1024 < len(content) < 16 * 1024 * 1024
    adapter.write(lambda tx: tx.data.save(inspection, node.uuid, packed({"unprocessed": content})))
    assert adapter.read(lambda tx: tx.data.load(inspection, ["unprocessed"])) == {"unprocessed": content}


def test_inspections_are_removed_with_their_data_and_journal_and_no_others(adapter: Adapter) -> None:
    node = adapter.node()
    gone, kept = (examples.inspection(node, state=State.FINISHED) for _ in range(2))
    parts: dict[Part, bytes] = {"inventory": b"{}"}

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in (gone, kept):
            tx.inspections.add(one)
            tx.data.save(one.uuid, node.uuid, packed(parts))
            tx.journal.append([Entry(node=node.uuid, inspection=one.uuid, step="x", message="y")])

    adapter.write(fill)
    adapter.write(lambda tx: tx.inspections.remove([gone.uuid, examples.uuid()]))
    adapter.write(lambda tx: tx.inspections.remove([]))
    mine = Query(filters={"node": node.uuid})
    assert [one.uuid for one in adapter.read(lambda tx: tx.inspections.list(mine))] == [kept.uuid]
    assert [one.inspection for one in adapter.read(lambda tx: tx.journal.list(mine))] == [kept.uuid]
    assert adapter.read(lambda tx: tx.data.load(gone.uuid, ("inventory",))) == {}
    assert adapter.read(lambda tx: tx.data.load(kept.uuid, ("inventory",))) == parts
