"""The threads of a process that write to SQLite: one transaction for those that come together, and each on its own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, make_url
from sqlalchemy.exc import OperationalError

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.errors import ConflictError, OutcomeUnknownError, StoreUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.db import Store, Transaction, location, schema, sqlite, sqlite_writers
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.processes import PATIENCE, until

Work = Callable[[Transaction], Any]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    settings, stop = Settings(database=DatabaseSettings(connection=sqlite_url)), threading.Event()
    backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=False)
    yield backend.store
    backend.close()


@contextmanager
def crowd(store: Store, works: Sequence[Work], *, durable: bool = True) -> Iterator[list[Future[Any]]]:
    """One thread writes; those of ``works`` line up behind it, and go on at the end of the block."""
    begun, go_on = threading.Event(), threading.Event()

    def first(tx: Transaction) -> None:
        assert tx.now
        begun.set()
        assert go_on.wait(PATIENCE)

    writers: Any = store._writers.turns  # type: ignore[union-attr]
    with ThreadPoolExecutor(len(works) + 1) as pool:
        try:
            futures = [pool.submit(store.write, first, durable=False)]
            assert begun.wait(PATIENCE)
            for number, work in enumerate(works, 1):
                futures.append(pool.submit(store.write, work, durable=durable))
                assert until(lambda number=number: len(writers._waiting) == number)  # type: ignore[misc]
            yield futures[1:]
        finally:
            go_on.set()


def _adding(name: str) -> Work:
    return lambda tx: tx.nodes.add(examples.node(name=name))


def _names(store: Store) -> list[str]:
    return sorted(str(node.name) for node in store.read(lambda tx: tx.nodes.list(Query())))


def _statements(store: Store) -> list[str]:
    """Return where the statements of new connections are noted."""
    noted: list[str] = []

    def trace(connection: sqlite3.Connection, _record: Any) -> None:
        connection.set_trace_callback(noted.append)

    event.listen(store.engine, "connect", trace)
    store.engine.dispose()
    return noted


def test_those_who_come_together_share_a_commit(store: Store) -> None:
    noted = _statements(store)
    with crowd(store, [_adding(name) for name in "abcde"]) as futures:
        pass
    assert [future.result(PATIENCE) for future in futures] == [None] * 5
    assert _names(store) == list("abcde")
    assert noted.count("COMMIT") == 3  # the first thread's, theirs, and the read's


def test_who_fails_leaves_nothing_and_stops_nobody(store: Store) -> None:
    def spoilt(tx: Transaction) -> None:
        tx.nodes.add(examples.node(name="spoilt"))
        assert tx.nodes.list(Query())  # sent, and seen
        raise LookupError("spoilt")

    with crowd(store, [_adding("a"), spoilt, _adding("a"), _adding("b")]) as futures:
        pass
    assert futures[0].result(PATIENCE) is None
    with pytest.raises(LookupError, match="spoilt"):
        futures[1].result(PATIENCE)
    with pytest.raises(ConflictError):
        futures[2].result(PATIENCE)
    assert futures[3].result(PATIENCE) is None
    assert _names(store) == ["a", "b"]


def test_a_full_database_is_the_error_of_whom_it_does_not_hold(store: Store) -> None:
    """SQLite rolls the whole transaction back then; the others are written again, each on its own."""

    def huge(tx: Transaction) -> None:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 40}")
        try:
            tx.nodes.add(examples.node(name="huge", extra={"blob": "x" * 1_000_000}))
            assert tx.nodes.list(Query())
        finally:
            tx._connection.exec_driver_sql("PRAGMA max_page_count=1000000000")

    with crowd(store, [_adding("a"), huge, _adding("b")]) as futures:
        pass
    assert futures[0].result(PATIENCE) is futures[2].result(PATIENCE) is None
    with pytest.raises(StoreUnavailableError, match="full"):
        futures[1].result(PATIENCE)
    assert _names(store) == ["a", "b"]


def _receipt(ident: str, size: int = 1) -> Work:
    """Return work whose first message to SQLite has all that it writes."""
    row = {"id": ident, "call": "", "void": False, "status": 0, "expires_at": 1e12, "reply": "x" * size}
    return lambda tx: tx.run(insert(schema.receipts), row) and None


def test_a_full_disk_at_the_first_statement_breaks_no_connection_for_others(store: Store) -> None:
    pages = store.read(lambda tx: tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one())

    def limit(connection: sqlite3.Connection, _record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count={pages + 40}")

    event.listen(store.engine, "connect", limit)
    store.engine.dispose()
    with crowd(store, [_receipt("huge", 1_000_000), _receipt("small")]) as futures:
        pass
    with pytest.raises(StoreUnavailableError, match="full"):
        futures[0].result(PATIENCE)
    assert futures[1].result(PATIENCE) is None
    for number in range(3):
        store.write(_receipt(f"later-{number}"))
    assert store.read(lambda tx: tx.receipts.get("small")) is not None


def test_a_change_that_has_read_before_it_meets_a_connection_that_cannot_write_succeeds(store: Store) -> None:
    seen: list[int] = []

    def change(tx: Transaction) -> None:
        seen.append(len(tx.nodes.list(Query())))
        tx.connection.exec_driver_sql(f"PRAGMA query_only={int(len(seen) == 1)}")
        tx.nodes.add(examples.node(name="after-a-read"))

    store.write(change)
    assert seen == [0, 0]
    assert _names(store) == ["after-a-read"]


def test_a_connection_that_is_read_only_is_replaced_also_by_a_group(store: Store) -> None:
    spoils = ["once"]

    def spoil(tx: Transaction) -> None:
        if spoils:
            tx.connection.exec_driver_sql(f"PRAGMA query_only={len(spoils.pop())}")

    with crowd(store, [spoil, _receipt("a"), _receipt("b")]) as futures:
        pass
    assert [future.result(PATIENCE) for future in futures] == [None, None, None]


def test_what_cannot_be_undone_is_not_committed_with_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(tx: Transaction) -> None:
        tx.nodes.add(examples.node(name="spoilt"))
        assert tx.nodes.list(Query())
        raise LookupError("spoilt")

    run = sqlite.execute

    def failing(connection: Any, statement: str) -> None:
        if statement.startswith("ROLLBACK TO"):
            monkeypatch.setattr(sqlite, "execute", run)
            raise OperationalError(statement, None, sqlite3.OperationalError("disk I/O error"))
        run(connection, statement)

    monkeypatch.setattr(sqlite, "execute", failing)
    with crowd(store, [_adding("a"), spoilt, _adding("b")]) as futures:
        pass
    assert futures[0].result(PATIENCE) is futures[2].result(PATIENCE) is None
    with pytest.raises(LookupError, match="spoilt"):
        futures[1].result(PATIENCE)
    assert _names(store) == ["a", "b"]


class _Disk:
    """A disk that counts its syncs, and can be held up or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs, self.fails = 0, False
        self.go_on = threading.Event()
        self.go_on.set()
        real = os.fdatasync

        def fdatasync(file: int) -> None:
            self.syncs += 1
            assert self.go_on.wait(PATIENCE)
            if self.fails:
                raise OSError(5, "Input/output error")
            real(file)

        monkeypatch.setattr(sqlite_writers.os, "fdatasync", fdatasync)


def test_what_is_durable_is_synced_before_it_returns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _Disk(monkeypatch)
    store.write(_adding("a"))
    assert disk.syncs == 1
    store.write(_adding("b"), durable=False)
    store.write(lambda tx: tx.now)  # BEGIN and COMMIT, for the time
    store.write(lambda _tx: None)
    store.read(lambda tx: tx.nodes.list(Query()))
    assert disk.syncs <= 2
    disk.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        durable = pool.submit(store.write, _adding("c"))
        assert until(lambda: _names(store) == ["a", "b", "c"])
        store.write(_adding("d"), durable=False)  # the disk holds nobody else up
        assert not durable.done()
        disk.go_on.set()
        durable.result(PATIENCE)


def test_those_who_wait_for_the_disk_share_a_sync(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _Disk(monkeypatch)
    disk.go_on.clear()
    with ThreadPoolExecutor(9) as pool:
        futures = [pool.submit(store.write, _adding("first"))]
        assert until(lambda: disk.syncs == 1)
        futures += [pool.submit(store.write, _adding(name)) for name in "abcdefgh"]
        assert until(lambda: len(_names(store)) == 9)
        disk.go_on.set()
        for future in futures:
            future.result(PATIENCE)
    assert disk.syncs == 2, "the one that was under way, and one for all who had come meanwhile"


def test_a_disk_that_fails_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _Disk(monkeypatch)
    disk.fails = True
    with pytest.raises(OutcomeUnknownError, match=r"cannot be synced to the disk: Input/output error; the change may"):
        store.write(_adding("a"))
    disk.fails = False
    # The kernel tells of an error once: the log may have a hole, until all of it was copied to the database.
    disk.syncs = 0
    other = sqlite3.connect(str(store.engine.url.database), isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM nodes").fetchall()  # somebody who reads keeps the log from being copied
    with pytest.raises(OutcomeUnknownError, match="cannot be synced"):
        store.write(_adding("b"))
    other.execute("COMMIT")
    other.close()
    store.write(_adding("c"))
    assert disk.syncs == 1
    assert _names(store) == ["a", "b", "c"]


def test_who_does_not_use_a_store_is_synced_by_sqlite(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, noted = _Disk(monkeypatch), _statements(store)
    store.write(_adding("a"))
    assert noted.count("PRAGMA synchronous=NORMAL") == disk.syncs == 1
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2, "FULL"


def test_the_log_of_a_database_behind_a_symbolic_link_is_synced(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's log is beside the file, not beside the link."""
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_url.removeprefix("sqlite:///"))
    disk = _Disk(monkeypatch)
    settings = Settings(database=DatabaseSettings(connection=f"sqlite:///{link}"))
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    backend.store.write(_adding("a"))
    backend.close()
    assert disk.syncs == 1


def test_what_is_acknowledged_after_the_log_was_deleted_survives_a_crash(
    store: Store, sqlite_url: str, tmp_path: Path
) -> None:
    """As by somebody who has read that this helps against a locked database."""
    file = Path(str(make_url(sqlite_url).database))
    store.write(lambda tx: tx.nodes.add(examples.node()))
    file.with_name(f"{file.name}-wal").unlink()
    for _ in range(2):
        store.write(lambda tx: tx.nodes.add(examples.node()))
        crashed = Path(shutil.copyfile(file, tmp_path / "crashed.db"))  # what the next process would find
    with closing(sqlite3.connect(crashed)) as found:
        assert found.execute("SELECT count(*) FROM nodes").fetchone() == (3,)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_deleted_part_of_the_database_is_noticed_while_it_is_open(store: Store, sqlite_url: str, suffix: str) -> None:
    look = location.watched(DatabaseSettings(connection=sqlite_url))
    store.write(lambda tx: tx.nodes.add(examples.node()))
    assert look() == ""
    part = Path(f"{make_url(sqlite_url).database}{suffix}")
    part.unlink()
    assert look().startswith(f"{part}, a part of the database, was deleted")
    part.write_bytes(b"")  # by another process, which has another one then
    assert look()


def test_a_file_that_is_no_database_any_more_is_an_outage(store: Store, sqlite_url: str) -> None:
    file = Path(str(make_url(sqlite_url).database))
    store.engine.dispose()
    file.write_bytes(b"something else " * 1000)
    with pytest.raises(StoreUnavailableError, match=f"not a database.*{file.name}"):
        store.write(lambda tx: tx.nodes.add(examples.node()))
