"""Kill a worker at a moment when it holds requests, and know which these were.

The worker is frozen for an instant, so that what the database says it holds cannot change between
the question and the SIGKILL. The database is only read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.cli.demo.stage import Player

_HELD: Final = """
SELECT n.name, n.uuid, r.event, r.attempt
FROM requests AS r JOIN members AS m ON m.id = r.holder JOIN nodes AS n ON n.uuid = r.node
WHERE m.pid = ? AND r.claimed_node IS NOT NULL
ORDER BY n.name
"""
_TRIES: Final = 20
_PAUSE: Final = 0.01


class Held(msgspec.Struct, frozen=True):
    """A request that the dead worker had claimed."""

    node: str
    uuid: str
    event: str
    attempt: int


class Killing(msgspec.Struct, frozen=True):
    """Who was killed, when (seconds since the epoch), and what it held."""

    worker: str
    pid: int
    at: float
    held: tuple[Held, ...]


def kill_one(workers: Sequence[Player], database: Path) -> Killing | None:
    """Kill the worker that holds the most; None where, for now, no one holds anything."""
    for _ in range(_TRIES):
        busiest = max(workers, key=lambda worker: len(held(database, worker.pid)))
        os.kill(busiest.pid, signal.SIGSTOP)
        requests = held(database, busiest.pid)
        if requests:
            at = time.time()
            busiest.kill()
            return Killing(busiest.name, busiest.pid, at, requests)
        os.kill(busiest.pid, signal.SIGCONT)
        time.sleep(_PAUSE)
    return None


def held(database: Path, pid: int) -> tuple[Held, ...]:
    """Return the requests that the process has claimed."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as connection:
        return tuple(Held(*row) for row in connection.execute(_HELD, (pid,)))
