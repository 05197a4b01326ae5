"""``db.store.Store`` on every database: all or nothing, and never anybody's change lost."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from ferroscope.contracts.errors import ConflictError, NotFoundError, StaleError
from ferroscope.contracts.store import Query, packed
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from tests.store.conftest import Adapter, Open
from tests.support import examples
from tests.support.processes import PATIENCE


class OutOfLuckError(Exception):
    """Raised by work that shall be undone."""


def _everything(tx: Transaction) -> list[Any]:
    nodes = tx.nodes.list(Query(sort_key="uuid"))
    return [
        nodes,
        tx.ports.list(Query(sort_key="uuid")),
        tx.inspections.list(Query(sort_key="uuid")),
        tx.journal.list(Query()),
        tx.members.list(),
        [tx.requests.pending(node.uuid) for node in nodes],
        [tx.data.load(node.inspection or "", ["inventory", "plugin_data"]) for node in nodes],
    ]


def test_work_that_fails_leaves_nothing_behind(adapter: Adapter) -> None:
    inspection = examples.uuid()
    kept = adapter.node(name="kept", inspection=inspection)
    removed = adapter.node(name="removed")
    port = examples.port(kept)
    adapter.join("worker")
    adapter.join("leaves")
    adapter.put(examples.request(kept))
    adapter.put(examples.request(removed))
    claim = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.ports.add([port, examples.port(removed)]))
    adapter.write(lambda tx: tx.inspections.add(examples.inspection(kept, uuid=inspection)))
    adapter.write(lambda tx: tx.data.save(inspection, kept.uuid, packed({"inventory": b"old"})))
    before = adapter.read(_everything)

    def work(tx: Transaction) -> None:
        tx.nodes.update(msgspec.structs.replace(kept, name="renamed", extra={"changed": True}))
        tx.nodes.add(examples.node(name="kept"))
        tx.nodes.remove(removed.uuid)
        tx.ports.update(msgspec.structs.replace(port, address=examples.mac()))
        tx.ports.add([examples.port(kept, address=port.address)])
        tx.inspections.add(examples.inspection(kept))
        tx.data.save(inspection, kept.uuid, packed({"inventory": b"new", "plugin_data": b"new"}))
        tx.journal.append([examples.entry(kept)])
        tx.addresses.set_bmc(kept.uuid, ["192.0.2.1"])
        tx.members.beat(examples.member("new"), 60.0)
        tx.members.leave("leaves")
        tx.requests.hold(claim, begun=True, progress={"a": "intent"})
        tx.requests.put(examples.request(kept))
        tx.requests.consume(claim)
        raise OutOfLuckError

    with pytest.raises(OutOfLuckError):
        adapter.write(work)
    assert adapter.read(_everything) == before
    adapter.write(lambda tx: tx.requests.consume(claim))


def test_an_interrupted_transaction_leaves_nothing_behind(adapter: Adapter) -> None:
    node = examples.node()

    def work(tx: Transaction) -> None:
        tx.nodes.add(node)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adapter.write(work)
    with pytest.raises(NotFoundError):
        adapter.get(node.uuid)
    adapter.node()


def test_a_transaction_sees_its_own_changes(adapter: Adapter) -> None:
    node = examples.node(name="new")

    def work(tx: Transaction) -> tuple[Node, int]:
        tx.nodes.add(node)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get("new"), owner="me"))
        tx.requests.put(examples.request(node))
        return tx.nodes.get(node.uuid), len(tx.requests.pending(node.uuid))

    stored, pending = adapter.write(work)
    assert (stored.owner, pending) == ("me", 1)


def test_the_state_and_the_request_are_seen_together_or_not_at_all(open_adapter: Open) -> None:
    writer, reader = open_adapter(), open_adapter()
    node = writer.node()
    done = threading.Event()
    torn: list[tuple[int, int]] = []

    def look(tx: Transaction) -> tuple[int, int]:
        return int(tx.nodes.get(node.uuid).extra.get("count", 0)), len(tx.requests.pending(node.uuid))

    def watch() -> None:
        while not done.is_set():
            count, pending = reader.read(look)
            if count != pending:
                torn.append((count, pending))

    def work(tx: Transaction) -> None:
        stored = tx.nodes.get(node.uuid, lock=True)
        count = stored.extra.get("count", 0) + 1
        tx.nodes.update(msgspec.structs.replace(stored, extra={"count": count}))
        tx.requests.put(examples.request(stored))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for _ in range(100):
            writer.write(work)
    finally:
        done.set()
        thread.join(PATIENCE)
    assert torn == []


def test_a_read_sees_one_moment_only(open_adapter: Open) -> None:
    reader, writer = open_adapter(), open_adapter()
    looked_once = threading.Event()
    written = threading.Event()

    def write() -> None:
        looked_once.wait(PATIENCE)
        writer.node()
        written.set()

    def look(tx: Transaction) -> tuple[int, int]:
        first = len(tx.nodes.list(Query()))
        looked_once.set()
        written.wait(0.5)  # where a reader keeps the writer waiting, that is well too
        return first, len(tx.nodes.list(Query()))

    thread = threading.Thread(target=write)
    thread.start()
    assert reader.read(look) == (0, 0)
    thread.join(PATIENCE)
    assert reader.read(look) == (1, 1)


@pytest.mark.parametrize("lock", [True, False], ids=["locked", "by version"])
def test_no_update_is_lost(open_adapter: Open, *, lock: bool) -> None:
    adapters = [open_adapter(), open_adapter()]
    node = adapters[0].node(extra={"count": 0})
    failures: list[BaseException] = []

    def count(tx: Transaction) -> None:
        stored = tx.nodes.get(node.uuid, lock=lock)
        tx.nodes.update(msgspec.structs.replace(stored, extra={"count": stored.extra["count"] + 1}))

    def count_often(adapter: Adapter) -> None:
        done = 0
        try:
            while done < 15:
                try:
                    adapter.write(count)
                except StaleError:
                    assert not lock
                    continue
                done += 1
        except BaseException as exc:  # noqa: BLE001  # shown by the assertion below
            failures.append(exc)

    threads = [threading.Thread(target=count_often, args=(adapters[number % 2],)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert adapters[0].get(node.uuid).extra == {"count": 90}


def test_of_many_who_want_one_name_only_one_gets_it(open_adapter: Open) -> None:
    adapters = [open_adapter(), open_adapter()]
    results: list[str] = []
    start = threading.Barrier(8)

    def enrol(adapter: Adapter) -> None:
        start.wait(PATIENCE)
        try:
            adapter.node(name="wanted")
        except ConflictError as exc:
            results.append(exc.field)
        except BaseException as exc:  # noqa: BLE001  # shown by the assertion below
            results.append(repr(exc))
        else:
            results.append("got it")

    threads = [threading.Thread(target=enrol, args=(adapters[number % 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(results) == ["got it"] + ["name"] * 7


def test_time_goes_on_and_stands_still_within_a_transaction(adapter: Adapter) -> None:
    first = adapter.write(lambda tx: (tx.now, tx.now))
    second = adapter.read(lambda tx: (tx.now, tx.now))
    assert first[0] == first[1] <= second[0] == second[1]
    assert first[0] > 1_600_000_000


def test_a_write_that_need_not_be_durable_is_seen_all_the_same(adapter: Adapter) -> None:
    node = examples.node()
    adapter.store.write(lambda tx: tx.nodes.add(node), durable=False)
    assert adapter.get(node.uuid).uuid == node.uuid


def test_an_exception_of_a_read_comes_out_and_does_no_harm(adapter: Adapter) -> None:
    def work(tx: Transaction) -> None:
        tx.nodes.list(Query())
        raise OutOfLuckError

    for _ in range(30):  # more often than there are connections
        with pytest.raises(OutOfLuckError):
            adapter.read(work)
        with pytest.raises(OutOfLuckError):
            adapter.write(work)
    adapter.node()


def test_a_read_without_a_snapshot_sees_each_commit_and_leaves_no_transaction_open(adapter: Adapter) -> None:
    node = adapter.node()

    def work(tx: Transaction) -> tuple[str | None, str | None, float]:
        before = tx.nodes.get(node.uuid).owner
        renamed = threading.Thread(
            target=lambda: adapter.write(
                lambda other: other.nodes.update(msgspec.structs.replace(node, owner="changed meanwhile"))
            )
        )
        renamed.start()
        renamed.join(PATIENCE)
        return before, tx.nodes.get(node.uuid).owner, tx.now

    before, after, now = adapter.store.read(work, snapshot=False)
    assert (before, after) == (None, "changed meanwhile")
    assert now > 0
    with pytest.raises(NotFoundError):
        adapter.store.read(lambda tx: tx.nodes.get("unknown"), snapshot=False)
    # A transaction that was left open would have an old snapshot, or hold SQLite's log.
    for owner in ("one", "two"):
        present = adapter.get(node.uuid)
        adapter.write(
            lambda tx, present=present, owner=owner: tx.nodes.update(msgspec.structs.replace(present, owner=owner))
        )  # type: ignore[misc]
        assert adapter.store.read(lambda tx: tx.nodes.get(node.uuid), snapshot=False).owner == owner
