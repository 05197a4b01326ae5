"""Processes that take turns at SQLite's write lock: in a row, never two, and a dead one's turn is free."""

from __future__ import annotations

import fcntl
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.db import sqlite_writers
from ferroscope.db.sqlite_writers import SqliteWriteLock
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.processes import PATIENCE, open_files, until

_HOLDER = """
import sys, time
from ferroscope.db.sqlite_writers import SqliteWriteLock
write_lock = SqliteWriteLock(sys.argv[1], 5.0)
write_lock.acquire()
print("holds", flush=True)
time.sleep(100)
"""


def test_another_processes_turn_is_waited_for_until_it_dies_or_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "db-writelock")
    with _held(path) as holder:
        write_lock, looks = SqliteWriteLock(path, 0.2), _counted(monkeypatch)
        assert not write_lock.acquire()
        assert len(looks) > 1, "the other one had it"
        looks.clear()
        assert not write_lock.acquire()
        assert len(looks) <= 1, "a queue that does not move is not waited in again and again"
        holder.send_signal(signal.SIGKILL)
        holder.wait(PATIENCE)
        assert write_lock.acquire()
        assert _is_locked(path)
        write_lock.release()
        assert not _is_locked(path)


def test_a_user_who_holds_the_file_stops_no_write(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a release before this one may be open to all, and whoever can open it can lock it."""
    turn = Path(f"{sqlite_url.removeprefix('sqlite:///')}-writelock")
    turn.touch(0o666)
    with _held(str(turn)):
        backend = open_backend(
            Settings(database=DatabaseSettings(connection=sqlite_url)),
            clock=SystemClock(),
            stop=threading.Event(),
            listen=False,
        )
        nodes = [examples.node() for _ in range(21)]
        backend.store.write(lambda tx: tx.nodes.add(nodes[0]))
        looks = _counted(monkeypatch)
        for node in nodes[1:]:
            backend.store.write(lambda tx, node=node: tx.nodes.add(node))  # type: ignore[misc]
        assert len(looks) <= 20, "it was waited for once"
        backend.close()


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return where each pause between two looks at the lock is noted."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(sqlite_writers, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    return pauses


def test_only_the_owner_may_stand_in_the_queue(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch(0o644)
    for path in (old, new):
        assert SqliteWriteLock(str(path), 1.0).acquire()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@contextmanager
def _held(path: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", _HOLDER, path], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"holds\n"
            yield holder
        finally:
            holder.kill()


def _is_locked(path: str) -> bool:
    with Path(path).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_file_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    write_lock = SqliteWriteLock(str(tmp_path / "nowhere" / "db-writelock"), 0.05)
    assert not write_lock.acquire()
    write_lock.release()


def test_the_file_is_closed_with_its_write_lock(tmp_path: Path) -> None:
    path = tmp_path / "db-writelock"

    def holds() -> bool:
        return str(path) in open_files()

    write_lock = SqliteWriteLock(str(path), 1.0)
    assert write_lock.acquire()
    assert holds()
    write_lock.release()
    del write_lock
    assert until(lambda: not holds())
