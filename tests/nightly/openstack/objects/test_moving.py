"""Data on its way between the database and object stores: nothing is lost, whatever happens in between."""

from __future__ import annotations

import gzip
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ferroscope.contracts.remote import ObjectDamagedError, ObjectMissingError, ObjectStore
from ferroscope.contracts.store import Query, StoredObject, packed
from ferroscope.contrib.openstack.swift import SwiftStore
from ferroscope.periodic.archiving import newest_inventory
from ferroscope.storage.object_http import RetryPolicy
from ferroscope.storage.s3 import S3Store
from ferroscope_client.core.states import State
from tests.nightly.openstack.objects.conftest import shelf
from tests.nightly.openstack.objects.site import ALL, Site, content, run
from tests.support import examples
from tests.support.processes import PATIENCE, finished, until
from tests.support.servers import Server


@pytest.fixture
def stocked(site: Site, object_store: ObjectStore) -> tuple[Site, str]:
    """Return a database with an object store beside it, by each API, and the store's name."""
    site.archive.object_stores = {object_store.name: object_store}
    return site, object_store.name


def test_data_of_ended_inspections_moves_and_reads_as_before(stocked: tuple[Site, str]) -> None:
    site, kind = stocked
    ended = site.inspected(3) + site.inspected(1, state=State.ERROR)
    (running,) = site.inspected(1, state=State.PROCESSING)
    run(site.task(kind), lambda: not any(site.here(one) for one in ended))
    assert [site.elsewhere(one) for one in ended] == [sorted(ALL)] * 4
    assert site.here(running) == sorted(ALL)
    site.check([*ended, running])


def test_the_objects_of_a_deleted_node_are_deleted(stocked: tuple[Site, str]) -> None:
    site, kind = stocked
    kept, gone = site.inspected(2)
    task = site.task(kind)
    run(task, lambda: not site.here(kept) and not site.here(gone))
    objects = site.store.read(lambda tx: tx.objects.find(gone.uuid, ALL))  # type: ignore[arg-type]
    site.store.write(lambda tx: tx.nodes.remove(gone.node))
    assert len(site.discarded()) == 3
    run(task, lambda: not site.discarded())
    for one in objects:
        with pytest.raises(ObjectMissingError):
            site.archive.object_stores[kind].get(one.key)
    site.check([kept])


def test_data_that_is_written_while_it_moves_wins(stocked: tuple[Site, str]) -> None:
    site, kind = stocked
    (one,) = site.inspected(1)
    held = site.store.read(lambda tx: tx.data.held(10))
    carried = [site.mover.carry(job) for job in site.mover.plan(held, kind)]
    site.store.write(lambda tx: tx.data.save(one.uuid, one.node, packed({"inventory": b"[2]"})))
    assert site.mover.record_moves(carried) == 2
    assert site.archive.load(one.uuid, ("inventory",)) == {"inventory": b"[2]"}
    assert site.here(one) == ["inventory"]
    assert len(site.discarded()) == 1


def test_two_who_move_the_same_do_not_lose_it(stocked: tuple[Site, str]) -> None:
    site, kind = stocked
    (one,) = site.inspected(1)
    held = site.store.read(lambda tx: tx.data.held(10))
    both = [[site.mover.carry(job) for job in site.mover.plan(held, kind)] for _ in range(2)]
    assert [site.mover.record_moves(carried) for carried in both] == [3, 0]
    site.check([one])
    assert len(site.discarded()) == 3
    run(site.task("database"), lambda: not site.discarded())
    site.check([one])


def test_an_upload_that_was_given_up_changes_nothing(stocked: tuple[Site, str]) -> None:
    site, kind = stocked
    (one,) = site.inspected(1)
    carried = [site.mover.carry(job) for job in site.mover.plan(site.store.read(lambda tx: tx.data.held(10)), kind)]
    assert site.store.write(lambda tx: tx.objects.give_up(tx.now + 1)) == 3
    assert site.mover.record_moves(carried) == 0
    site.check([one])
    run(site.task("database"), lambda: not site.discarded())
    site.check([one])


class Shelf:
    """An object store in which everything can be exchanged."""

    name = "s3"

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, key: str, content: bytes) -> None:
        self.kept[key] = content

    def get(self, key: str) -> bytes:
        return self.kept[key]

    def delete(self, key: str) -> None:
        self.kept.pop(key, None)

    def close(self) -> None:
        self.kept.clear()


_BOMB: bytes = gzip.compress(b"0" * 1024 * 1024, 9) * 200


@pytest.mark.parametrize(
    "exchange",
    [
        lambda packed: packed[: len(packed) // 2],
        lambda _packed: gzip.compress(b'{"forged":true}'),
        lambda packed: packed + packed,
        lambda _packed: _BOMB,
        lambda _packed: b"no gzip",
        lambda _packed: b"",
    ],
    ids=["truncated", "forged", "longer", "bomb", "no gzip", "empty"],
)
def test_an_object_that_is_another_one_is_refused_and_noted_once(
    site: Site, exchange: Callable[[bytes], bytes]
) -> None:
    there = Shelf()
    site.archive.object_stores = {"s3": there}
    (one,) = site.inspected(1)
    run(site.task("s3"), lambda: not site.here(one))
    site.check([one])
    (stored,) = site.store.read(lambda tx: tx.objects.find(one.uuid, ("inventory",)))
    assert stored.content_size == len(content(one, "inventory"))
    there.kept[stored.key] = exchange(there.kept[stored.key])
    tracemalloc.start()
    for _ in range(3):
        with pytest.raises(ObjectDamagedError):
            site.archive.load(one.uuid, ("inventory",))
    assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    tracemalloc.stop()
    noted = site.store.read(lambda tx: tx.journal.list(Query(filters={"node": one.node})))
    assert [entry.reason for entry in noted] == ["data-damaged"]
    assert site.archive.load(one.uuid, ("plugin_data",))


def test_an_object_of_the_release_before_is_read_and_no_bomb(site: Site) -> None:
    there = Shelf()
    site.archive.object_stores = {"s3": there}
    old = StoredObject(key="k", backend="s3", inspection="i", node="n", part="inventory")
    there.put("k", gzip.compress(b"[1]"))
    assert site.archive.content(old) == b"[1]"
    there.put("k", gzip.compress(b"0" * (65 * 1024 * 1024), 9))
    with pytest.raises(ObjectDamagedError):
        site.archive.content(old)


def test_none_keeps_nothing_but_what_raid_device_compares_with(site: Site) -> None:
    first = site.inspected(1)[0]
    second = site.inspected(1, node=site.nodes[0])[0]
    site.store.write(lambda tx: tx.inspections.update(second.uuid, started_at=first.started_at + 10))
    (running,) = site.inspected(1, state=State.PROCESSING)
    site.task("none", wanted=newest_inventory).step(examples.UNLED)
    assert (site.here(first), site.here(second), site.here(running)) == ([], ["inventory"], sorted(ALL))
    site.task("none").step(examples.UNLED)
    assert site.here(second) == []


@pytest.mark.parametrize("kind", ["s3", "swift"])
def test_a_store_that_is_killed_in_the_middle_loses_nothing(site: Site, swift_server: Server, kind: str) -> None:
    site.archive.object_stores = {kind: shelf(kind, swift_server)}
    site.archive.object_stores[kind].close()
    impatient = _impatient(site.archive.object_stores[kind])
    site.archive.object_stores = {kind: impatient}
    all_of_them = site.inspected(40)
    task = site.task(kind)
    with _killed_once(swift_server, lambda: any(not site.here(one) for one in all_of_them)):
        task.step(examples.UNLED)
    said = run(task, lambda: "stays in the database" in task.step(examples.UNLED))
    assert task.problem is not None
    assert task.problem.code == "object-store-unavailable"
    left = [one for one in all_of_them if site.here(one)]
    assert left, "it was killed too late"
    entries = site.store.read(lambda tx: tx.journal.list(Query(sort_key="id")))
    assert any(entry.step == "not moved" for entry in entries), said
    swift_server.start()
    run(task, lambda: not any(site.here(one) for one in all_of_them), seconds=180.0)
    assert task.problem is None
    site.check(all_of_them)


@contextmanager
def _killed_once(server: Server, so: Callable[[], bool]) -> Iterator[None]:
    """Kill the server at the moment at which something is so, whatever is under way."""

    def watch() -> None:
        assert until(so)
        server.kill()

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join()


def test_a_step_is_short_though_the_store_is_frozen(site: Site, swift_server: Server) -> None:
    site.archive.object_stores = {"s3": shelf("s3", swift_server)}
    (one,) = site.inspected(1)
    swift_server.freeze()
    finished(lambda: site.task("s3").step(examples.UNLED))
    swift_server.thaw()
    site.check([one])


def _impatient(store: ObjectStore) -> ObjectStore:
    """Return the same store, whose failures are known soon."""
    if isinstance(store, S3Store):
        return S3Store(store._settings, RetryPolicy(timeout=5.0, retries=0))
    assert isinstance(store, SwiftStore)
    return SwiftStore(store._settings, RetryPolicy(timeout=5.0, retries=0))


class Busy:
    """An object store that takes its time; ``begun`` counts what it was asked for."""

    name = "s3"

    def __init__(self) -> None:
        self.begun = 0
        self.goes_on = threading.Event()

    def put(self, _key: str, _content: bytes) -> None:
        self.begun += 1
        assert self.goes_on.wait(PATIENCE)

    get = delete = close = None  # type: ignore[assignment]  # nothing of that is asked of it


def test_a_process_that_stops_begins_no_other_upload(site: Site) -> None:
    busy: Any = Busy()
    site.archive.object_stores = {"s3": busy}
    ended = site.inspected(6)
    task = site.task("s3")
    task.step(examples.UNLED)
    threads = busy.begun
    assert 0 < threads < len(ended) * len(ALL)
    task.close()
    busy.goes_on.set()
    time.sleep(0.3)
    assert busy.begun == threads


def test_what_no_object_store_raises_ends_the_task(site: Site) -> None:
    class Broken(Busy):
        def put(self, _key: str, _content: bytes) -> None:
            raise RuntimeError("a bug")

    broken: Any = Broken()
    site.archive.object_stores = {"s3": broken}
    site.inspected(1)
    with pytest.raises(RuntimeError, match="a bug"):
        run(site.task("s3"), lambda: False)
