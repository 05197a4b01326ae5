"""The environment of the demo: a temporary directory, a configuration, and the service's processes.

Every process is a real ``ferroscope api`` or ``ferroscope worker``, started from its command line, with a separate log.
None of them outlives the demo.
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
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ferroscope_client.errors import Failure
from ferroscope_sim.run import Beside

MEMBER_TTL_SECONDS: Final = 2.0

_START_SECONDS: Final = 60.0  # usually 2 s; up to 30 s on a busy machine
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
# Two workers of four threads each. A worker is considered dead after {ttl:g} s without a heartbeat; the default is 6 s.
threads = 4
member_ttl = {ttl:g}

[drivers]
enabled = sim

[inspector]
hooks = $default_hooks,memory
timeout = 60
"""


class Player:
    """One process of the service with a readable name; ``log`` is the file with its output."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.killed = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Kill it without a clean-up, as a power failure would: SIGKILL."""
        self.killed = True
        self.process.kill()
        self.process.wait()


class DemoStage:
    """``directory`` must exist; call ``close`` at the end in any case."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configuration = directory / "ferroscope.conf"
        self.players: list[Player] = []
        api, introspection = _free_ports(2)
        self.url = f"http://127.0.0.1:{api}"
        text = _CONFIGURATION.format(api=api, introspection=introspection, directory=directory, ttl=MEMBER_TTL_SECONDS)
        self.configuration.write_text(text, encoding="utf-8")

    @property
    def database(self) -> Path:
        return self.directory / "ferroscope.db"

    def run(self, *arguments: str) -> None:
        """Run a command of ``ferroscope`` until it ends."""
        player = self._spawn(arguments[0], *arguments)
        try:
            code = player.process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            player.kill()
            raise Failure(f"ferroscope {' '.join(arguments)} timed out after {_START_SECONDS:g} s") from None
        if code != 0:
            raise _exit_failure(player)

    def start(self, name: str, role: str) -> Player:
        """Start a process with this role."""
        player = self._spawn(name, role)
        self.players.append(player)
        return player

    def until(self, condition: Callable[[], bool], action: str) -> None:
        """Wait for ``condition``; ``Failure`` if a process has ended, or on timeout."""
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise Failure(f"{action} timed out after {_START_SECONDS:g} s")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise ``Failure`` if a process has ended unexpectedly."""
        for player in self.players:
            if not player.killed and player.process.poll() is not None:
                raise _exit_failure(player)

    def close(self) -> None:
        """Terminate all processes; kill those that do not end within a timeout."""
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
                start_new_session=True,  # Ctrl-C must reach the demo only, which terminates the others itself
                preexec_fn=_die_with_parent,  # safe: no other thread is running yet
            )
        return Player(name, process, log)


def _environment() -> dict[str, str]:
    """Return the environment without variables that would override the demo's configuration."""
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


def _exit_failure(player: Player) -> Failure:
    lines = player.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    code = player.process.returncode
    return Failure(f"{player.name} exited with code {code}: {lines[-1] if lines else 'no output'}")


# Kill a worker while it has claimed requests, and record which.
#
# The worker is stopped before the query, so that its claims cannot change between the query and SIGKILL. The database
# is only read. A separate thread polls it, much more often than the display: a small fleet finishes between two
# updates.

_HELD: Final = """
SELECT n.name, n.uuid, r.event, r.attempt
FROM requests AS r JOIN members AS m ON m.id = r.holder JOIN nodes AS n ON n.uuid = r.node
WHERE m.pid = ? AND r.claimed_node IS NOT NULL
ORDER BY n.name
"""
_FINISHED: Final = "SELECT count(*) FROM inspections WHERE finished_at IS NOT NULL"
_POLL_SECONDS: Final = 0.01
# With fewer machines, the second half may end almost simultaneously.
_SMALL_FLEET_MACHINES: Final = 10


class HeldRequest(msgspec.Struct, frozen=True):
    """A request that the dead worker had claimed."""

    node: str
    uuid: str
    event: str
    attempt: int


class Killing(msgspec.Struct, frozen=True):
    """The killed worker, the time (seconds since the epoch), its requests, and the number of ended inspections."""

    worker: str
    pid: int
    at: float
    held: tuple[HeldRequest, ...]
    done: int


class Killer(Beside):
    """Kills one of ``workers`` halfway through ``total`` inspections, or at once if these are few.

    ``killing`` is None until then.
    """

    def __init__(self, workers: Sequence[Player], database: Path, total: int) -> None:
        super().__init__()
        self.killing: Killing | None = None
        self._workers = workers
        self._database = database
        self._enough = total // 2 if total >= _SMALL_FLEET_MACHINES else 0

    def _run(self) -> None:
        while self.killing is None and not self._stop.wait(_POLL_SECONDS):
            done = count_finished(self._database)
            if done >= self._enough:
                self.killing = _kill_one(self._workers, self._database, done)


def _kill_one(workers: Sequence[Player], database: Path, done: int) -> Killing | None:
    """Kill the worker with the most requests; None if no worker has any at the moment."""
    busiest = max(workers, key=lambda worker: len(list_held(database, worker.pid)))
    if not list_held(database, busiest.pid):
        return None
    os.kill(busiest.pid, signal.SIGSTOP)
    # Until all its threads have stopped, one of them may still commit.
    os.waitid(os.P_PID, busiest.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    requests = list_held(database, busiest.pid)
    if requests:
        at = time.time()
        busiest.kill()
        return Killing(busiest.name, busiest.pid, at, requests, done)
    os.kill(busiest.pid, signal.SIGCONT)
    return None


def count_finished(database: Path) -> int:
    """Return how many inspections have ended."""
    with contextlib.closing(_read_only(database)) as connection:
        return int(connection.execute(_FINISHED).fetchone()[0])


def list_held(database: Path, pid: int) -> tuple[HeldRequest, ...]:
    """Return the requests that the process has claimed."""
    with contextlib.closing(_read_only(database)) as connection:
        return tuple(HeldRequest(*row) for row in connection.execute(_HELD, (pid,)))


def _read_only(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)
