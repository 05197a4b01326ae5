"""``failover``: from the end of a leader to the first fenced write of its successor, by three ways of ending.

``killed``: SIGKILL of a process that nobody watches over, as when its host is lost. ``supervised``: SIGKILL
of one of two children of a supervisor. ``stopped``: SIGTERM. Seen from outside: by reading the lease's row every
few milliseconds on a connection of its own.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec
from sqlalchemy import Connection, text

from bench.cycle import scratch
from bench.databases import database
from bench.leader import LEASE
from bench.quantiles import Spread, spread
from bench.service import configure, upgrade
from ferroscope.config.load import load
from ferroscope.core.model import DEFAULT, FAST
from ferroscope.db.engine import build_engine
from tests.support.processes import signal_tree, spawn, until

Way = Literal["killed", "supervised", "stopped"]

WAYS: Final[tuple[Way, ...]] = ("killed", "supervised", "stopped")
_ROOT: Final = Path(__file__).parents[1]
_LOOK_EVERY: Final = 0.003
_GIVE_UP: Final = 60.0
_STATE: Final = text(
    "SELECT l.epoch, l.touched, m.pid FROM leases l LEFT JOIN members m ON m.id = l.holder WHERE l.name = :name"
)


class Failover(msgspec.Struct, frozen=True):
    """The seconds that each fail-over took, in their order."""

    database: str
    profile: str
    way: Way
    seconds: list[float]

    @property
    def spread(self) -> Spread:
        return spread(self.seconds)


class State(msgspec.Struct, frozen=True):
    """The lease as it is now, and the process that holds it (0: nobody known)."""

    epoch: int = 0
    touched: int = 0
    pid: int = 0


def measure(name: str, profile: str, way: Way, times: int, directory: Path, *, seed: int = 1) -> Failover:
    """Let leaders end ``times`` times; return how long each lease was free."""
    chance = random.Random(seed)
    renew = (FAST if profile == "fast" else DEFAULT).renew
    with scratch(directory) as place, database(name, place) as base:
        config, _ = configure(place, base.url, extra=_options(profile))
        upgrade(config)
        engine = build_engine(load([str(config)]).database)
        try:
            with engine.connect() as connection, _players(place, config, way) as players:
                seconds = []
                for _ in range(times):
                    _settle(connection, players, way)
                    time.sleep(renew * (1 + chance.random()))  # at any moment between two renewals
                    seconds.append(_one(connection, way))
                    players.revive()
        finally:
            engine.dispose()
    return Failover(name, profile, way, seconds)


class Players:
    """The processes that stand: two, or a supervisor with two children."""

    def __init__(self, place: Path, config: Path, way: Way) -> None:
        self._place = place
        self._command = [sys.executable, "-m", "bench.leader", str(config)]
        self._supervised = way == "supervised"
        self._running: list[subprocess.Popen[bytes]] = []
        for _ in range(1 if self._supervised else 2):
            self._running.append(self._start())

    def revive(self) -> None:
        """Start anew what has ended."""
        for number, process in enumerate(self._running):
            if not self._supervised:
                until(lambda process=process: process.poll() is not None, seconds=0.2)  # type: ignore[misc]
            if process.poll() is not None:
                self._running[number] = self._start()

    def close(self) -> None:
        for process in self._running:
            signal_tree(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        words = ["2"] if self._supervised else []
        return spawn([*self._command, *words], user=None, directory=_ROOT, log=self._place / "leaders.log")


@contextmanager
def _players(place: Path, config: Path, way: Way) -> Iterator[Players]:
    players = Players(place, config, way)
    try:
        yield players
    finally:
        players.close()


def _options(profile: str) -> str:
    lives = "[worker]\nmember_ttl = 3\nheartbeat_interval = 0.5\n" if profile == "fast" else ""
    return f"[lease]\nprofile = {profile}\n{lives}"


def _settle(connection: Connection, players: Players, way: Way) -> None:
    """Wait until one leads, and writes, and another one is alive beside it."""
    deadline = time.monotonic() + _GIVE_UP
    while time.monotonic() < deadline:
        first = _state(connection)
        time.sleep(0.1)
        second = _state(connection)
        alive = (
            connection.execute(text("SELECT pid FROM members WHERE role = 'worker' AND left_at IS NULL"))
            .scalars()
            .all()
        )
        standing = [pid for pid in alive if Path(f"/proc/{pid}").exists()]
        if second.pid and second.epoch == first.epoch and second.touched > first.touched and len(standing) >= 2:
            return
        players.revive()
    raise RuntimeError(f"nobody leads while {way} is measured")


def _one(connection: Connection, way: Way) -> float:
    """End the leader; return the seconds until its successor's first write."""
    before = _state(connection)
    os.kill(before.pid, signal.SIGTERM if way == "stopped" else signal.SIGKILL)
    ended = time.monotonic()
    while time.monotonic() - ended < _GIVE_UP:
        time.sleep(_LOOK_EVERY)
        now = _state(connection)
        if now.epoch == before.epoch:
            before = now  # what it wrote before it was gone
        elif now.touched > before.touched:
            return time.monotonic() - ended
    raise RuntimeError(f"nobody took over within {_GIVE_UP:g} s")


def _state(connection: Connection) -> State:
    row = connection.execute(_STATE, {"name": LEASE}).first()
    return State() if row is None else State(row.epoch, row.touched, row.pid or 0)
