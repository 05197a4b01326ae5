"""``start``: how long until the first 200, on a new and on an existing database, and what memory it takes.

From the exec of the command to the answer of ``GET /``, asked for every few milliseconds.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.cycle import Load, field, one_round, scratch
from bench.databases import database
from bench.quantiles import middle
from bench.service import configure, executable, service, upgrade
from bench.usage import Memory, memory

_EVERY: Final = 0.004
_GIVE_UP: Final = 30.0
_SETTLED: Final = 2.0


class Starts(msgspec.Struct, frozen=True):
    """Seconds until the first 200, of each try; the first try of a kind may have had a cold disk."""

    what: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return middle(self.seconds)


class Start(msgspec.Struct, frozen=True):
    """``idle`` and ``busy``: memory of the all-in-one after its start and after the inspections."""

    starts: list[Starts]
    idle: Memory
    busy: Memory
    inspections: int
    problems: list[str]


def measure(directory: Path, *, tries: int, nodes: int) -> Start:
    """Start ``ferroscope all`` and ``ferroscope api`` again and again; then inspect ``nodes`` in the all-in-one."""
    fresh = Starts("all, new SQLite database", [_fresh("all", directory) for _ in range(tries)])
    with scratch(directory) as place:
        config, url = configure(place, f"sqlite:///{place / 'ferroscope.db'}")
        upgrade(config)
        old = [
            Starts(f"{role}, existing SQLite database", [first_answer(role, config, url, place) for _ in range(tries)])
            for role in ("all", "api")
        ]
    load = Load(nodes=nodes, rounds=1)
    with (
        scratch(directory) as place,
        database("sqlite", place) as base,
        service(place, base.url, roles=["all"]) as running,
        field(running, load, place) as load_process,
    ):
        time.sleep(_SETTLED)
        idle = memory(running.roles["all"].pid)
        load_process.do("enrol", dict[str, Any])
        problems = one_round(running, base, load_process, load).problems
        busy = memory(running.roles["all"].pid)
    return Start([fresh, *old], idle, busy, nodes, problems)


def _fresh(role: str, directory: Path) -> float:
    with scratch(directory) as place:
        config, url = configure(place, f"sqlite:///{place / 'ferroscope.db'}")
        return first_answer(role, config, url, place)


def first_answer(role: str, config: Path, url: str, place: Path) -> float:
    """Start the role, return the seconds until it answers 200, stop it."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with (place / "start.log").open("ab") as log:
        began = time.perf_counter()
        process = subprocess.Popen([executable(), role, "-c", str(config)], cwd=place, stdout=log, stderr=log)
        try:
            while not _answers(host, int(port)):
                if process.poll() is not None or time.perf_counter() - began > _GIVE_UP:
                    raise RuntimeError(f"{role} does not answer:\n{(place / 'start.log').read_text()[-3000:]}")
                time.sleep(_EVERY)
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait()


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(64).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
