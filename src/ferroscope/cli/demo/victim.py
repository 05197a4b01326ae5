"""Kill a worker at a moment when it holds requests, and know which these were.

The worker is frozen for an instant, so that what the database says it holds cannot change between
the question and the SIGKILL. The database is only read. It is looked at beside the demo's display, and much more often:
a small fleet is done between two looks of a person.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from ferroscope.cli.demo.stage import Player

_HELD: Final = """
SELECT n.name, n.uuid, r.event, r.attempt
FROM requests AS r JOIN members AS m ON m.id = r.holder JOIN nodes AS n ON n.uuid = r.node
WHERE m.pid = ? AND r.claimed_node IS NOT NULL
ORDER BY n.name
"""
_FINISHED: Final = "SELECT count(*) FROM inspections WHERE finished_at IS NOT NULL"
_PAUSE: Final = 0.01
# Of fewer machines, the second half may end within one and the same moment.
_SMALL: Final = 10


class Held(msgspec.Struct, frozen=True):
    """A request that the dead worker had claimed."""

    node: str
    uuid: str
    event: str
    attempt: int


class Killing(msgspec.Struct, frozen=True):
    """Who was killed, when (seconds since the epoch), what it held, and how many inspections had ended."""

    worker: str
    pid: int
    at: float
    held: tuple[Held, ...]
    done: int


class Killer:
    """Kills one of ``workers`` at work, halfway through ``total`` inspections, or at once where these are few.

    ``killing`` is None until then.
    """

    def __init__(self, workers: Sequence[Player], database: Path, total: int) -> None:
        self.killing: Killing | None = None
        self._workers = workers
        self._database = database
        self._enough = total // 2 if total >= _SMALL else 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="killer", daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while self.killing is None and not self._stop.wait(_PAUSE):
            done = finished(self._database)
            if done >= self._enough:
                self.killing = _kill_one(self._workers, self._database, done)


def _kill_one(workers: Sequence[Player], database: Path, done: int) -> Killing | None:
    """Kill the worker that holds the most; None where, for now, no one holds anything."""
    busiest = max(workers, key=lambda worker: len(held(database, worker.pid)))
    if not held(database, busiest.pid):
        return None
    os.kill(busiest.pid, signal.SIGSTOP)
    requests = held(database, busiest.pid)
    if requests:
        at = time.time()
        busiest.kill()
        return Killing(busiest.name, busiest.pid, at, requests, done)
    os.kill(busiest.pid, signal.SIGCONT)
    return None


def finished(database: Path) -> int:
    """Return how many inspections have ended."""
    with contextlib.closing(_read_only(database)) as connection:
        return int(connection.execute(_FINISHED).fetchone()[0])


def held(database: Path, pid: int) -> tuple[Held, ...]:
    """Return the requests that the process has claimed."""
    with contextlib.closing(_read_only(database)) as connection:
        return tuple(Held(*row) for row in connection.execute(_HELD, (pid,)))


def _read_only(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)
