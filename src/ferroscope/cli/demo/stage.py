"""Where the demo plays: a temporary directory, its configuration, and the service's processes.

Every process is a real ``ferroscope api`` or ``ferroscope worker``, started by its argument list,
with a log of its own. None of them outlives the demo, in whatever way that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from ferroscope.cli.exits import Failure

MEMBER_TTL: Final = 2.0

_START_SECONDS: Final = 60.0  # for what hangs; a busy machine needs half of that, a quiet one two seconds
_STOP_SECONDS: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
_CONFIGURATION: Final = """\
[api]
host = 127.0.0.1
bare_metal_port = {api}
introspection_port = {introspection}

[database]
connection = sqlite:///{directory}/ferroscope.db

[worker]
# Two workers of four threads each. A worker that is silent for {ttl:g} s counts as dead; the default is 6 s.
threads = 4
member_ttl = {ttl:g}
heartbeat_interval = 0.4

[drivers]
enabled = sim

[inspector]
hooks = $default_hooks,memory
timeout = 60
"""


class Player:
    """One process of the service. ``name`` is for people; ``log`` is where its output goes."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.killed = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it as a lost power supply would: SIGKILL, nothing is said or released."""
        self.killed = True
        self.process.kill()
        self.process.wait()


class Stage:
    """``directory`` must exist; call ``close`` at the end, whatever happened."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configuration = directory / "ferroscope.conf"
        self.players: list[Player] = []
        api, introspection = _free_ports(2)
        self.url = f"http://127.0.0.1:{api}"
        text = _CONFIGURATION.format(api=api, introspection=introspection, directory=directory, ttl=MEMBER_TTL)
        self.configuration.write_text(text, encoding="utf-8")

    @property
    def database(self) -> Path:
        return self.directory / "ferroscope.db"

    def run(self, *arguments: str) -> None:
        """Run a command of ``ferroscope`` to its end."""
        player = self._spawn(arguments[0], *arguments)
        try:
            code = player.process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            player.kill()
            raise Failure(f"ferroscope {' '.join(arguments)} took longer than {_START_SECONDS:g} s") from None
        if code != 0:
            raise _failed(player)

    def start(self, name: str, role: str) -> Player:
        """Start a process that plays ``role``."""
        player = self._spawn(name, role)
        self.players.append(player)
        return player

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for ``condition``; ``Failure`` when a process has ended, or time has run out."""
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise Failure(f"{what} took longer than {_START_SECONDS:g} s")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise ``Failure`` where a process has ended that we did not kill."""
        for player in self.players:
            if not player.killed and player.process.poll() is not None:
                raise _failed(player)

    def close(self) -> None:
        """End every process that still runs: asked first, then killed."""
        running = [player.process for player in self.players if player.process.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(self, name: str, *arguments: str) -> Player:
        log = self.directory / f"{name}.log"
        command = [sys.executable, "-m", "ferroscope", *arguments, "-c", str(self.configuration)]
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  # our own program, no shell
                command,
                cwd=self.directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the demo, which ends the others itself
                preexec_fn=_die_with_parent,  # no other thread runs yet
            )
        return Player(name, process, log)


def _environment() -> dict[str, str]:
    """Return our environment without what would override the demo's configuration."""
    return {name: value for name, value in os.environ.items() if not re.match(r"OS_[A-Z_]+__", name)}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _failed(player: Player) -> Failure:
    said = player.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    ended = player.process.returncode
    return Failure(f"{player.name} ended with {ended}: {said[-1] if said else 'it said nothing'}")


# Kill a worker at a moment when it holds requests, and know which these were.
#
# The worker is frozen for an instant, so that what the database says it holds cannot change between
# the question and the SIGKILL. The database is only read. It is looked at beside the demo's display, and much more
# often:
# a small fleet is done between two looks of a person.

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
