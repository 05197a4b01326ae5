"""A disk that fails: nobody who waits for a sync is told that a later one of the same log has made it durable."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from ferroscope.db import sqlite_writers
from ferroscope.db.sqlite_writers import WalSync
from tests.support.processes import PATIENCE, until


def test_who_waited_for_a_sync_that_failed_is_not_told_that_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, begun, fails = WalSync(), threading.Event(), threading.Event()
    sync.log = str(tmp_path / "log")
    Path(sync.log).touch()
    tried: list[int] = []

    def fdatasync(file: int) -> None:
        """As the kernel does it: an error is told once."""
        tried.append(file)
        if len(tried) == 1:
            begun.set()
            assert fails.wait(PATIENCE)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sqlite_writers.os, "fdatasync", fdatasync)
    came: list[bool] = []

    def commit() -> None:
        try:
            sync()
        except OSError:
            came.append(False)
        else:
            came.append(True)

    threads = [threading.Thread(target=commit) for _ in range(3)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    assert until(lambda: all(thread.is_alive() for thread in threads))
    fails.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert came == [False, False, False]
    assert sync.has_failed
    sync.has_failed = False  # as after the log was copied
    sync()
