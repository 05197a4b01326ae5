"""``lists``: how long the command line takes to list 10,000 inspected nodes, and to import 500, of a real api process.

Each command is a process of its own, as an operator starts it, with its output in a file; what is timed is all of
it, from the start of the interpreter on. The nodes are those of ``bench.search``.
"""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.cycle import scratch
from bench.databases import database, opened
from bench.quantiles import middle
from bench.search import fill
from bench.service import executable, service
from bench.usage import cpu_seconds

IMPORTED: Final = 500
COMMANDS: Final = (
    ("node", "list"),
    ("node", "list", "-o", "wide"),
    ("node", "list", "-o", "json"),
    ("node", "list", "--failed"),
    ("search", "memory_gb >= 1"),
    ("search", "vendor == dell"),
)


class Listed(msgspec.Struct, frozen=True):
    """One command: seconds of each try, the client's and the api's CPU for one, and lines of output."""

    command: str
    seconds: list[float]
    client_cpu: float
    api_cpu: float
    lines: int

    @property
    def median(self) -> float:
        return middle(self.seconds)


class Lists(msgspec.Struct, frozen=True):
    """All commands on one database."""

    database: str
    listed: list[Listed]


def measure(name: str, directory: Path, *, nodes: int, tries: int) -> Lists:
    """List ``nodes`` nodes of a database of the kind ``name``."""
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, roles=("api",)) as running,
    ):
        with opened(base.url) as backend:
            fill(backend.store, nodes)
        pid = running.roles["api"].pid
        listed = [_run(" ".join(command), [command] * tries, running.url, place, pid) for command in COMMANDS]
        imports = [("node", "import", str(_sheet(place, number))) for number in range(tries)]
        listed.append(_run(f"node import, {IMPORTED} new", imports, running.url, place, pid))
        listed.append(_run(f"node import, {IMPORTED} unchanged", imports, running.url, place, pid))
        return Lists(base.title, listed)


def _sheet(place: Path, number: int) -> Path:
    """Write a file with nodes that do not exist."""
    file = place / f"import-{number}.csv"
    rows = []
    for row in range(IMPORTED):
        mac = f"52:54:{number:02x}:ff:{row >> 8:02x}:{row & 255:02x}"
        rows.append(f"import{number}-{row},fake-hardware,192.0.2.1,root,secret,{mac},ops")
    file.write_text("\n".join(["name,driver,bmc_address,bmc_username,bmc_password,macs,owner", *rows, ""]))
    return file


def _run(title: str, commands: Sequence[tuple[str, ...]], url: str, place: Path, api: int) -> Listed:
    taken, file, tries = [], place / "output", len(commands)
    ours, theirs = _children(), cpu_seconds(api)
    for command in commands:
        began = time.perf_counter()
        with file.open("wb") as output:
            done = subprocess.run([executable(), *command, "--url", url], stdout=output, check=False)
        taken.append(time.perf_counter() - began)
        if done.returncode > 1:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    lines = file.read_bytes().count(b"\n")
    client, served = (_children() - ours) / tries, (cpu_seconds(api) - theirs) / tries
    return Listed(title, taken, client, served, lines)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
