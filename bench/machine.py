"""What the figures were measured on: processor, memory, kernel, disk with its fsync, versions.

The fsync latency is measured, because a durable commit waits for at least one: it is the floor
under every figure of a database on disk.
"""

from __future__ import annotations

import fcntl
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from bench.quantiles import at

_LIBRARIES: Final = ("SQLAlchemy", "falcon", "httptools", "msgspec", "psycopg", "PyMySQL", "structlog")
_ROOT: Final = Path(__file__).parents[1]
_SYNCS: Final = 200


class Machine(msgspec.Struct, frozen=True):
    """Sizes are bytes, latencies milliseconds of writing 4 KiB and syncing it."""

    cpu: str
    cores: int
    memory: int
    kernel: str
    disk: str
    fsync_p50: float
    fsync_p99: float
    load: float

    def lines(self) -> Sequence[tuple[str, str]]:
        return (
            ("processor", f"{self.cpu}, {self.cores} cores for this process, load {self.load:.2f}"),
            ("memory", f"{self.memory / 2**30:.1f} GiB"),
            ("kernel", self.kernel),
            ("disk", f"{self.disk}, 4 KiB + fdatasync {self.fsync_p50:.2f} ms (p99 {self.fsync_p99:.2f} ms)"),
        )


def look(directory: Path) -> Machine:
    """Describe this machine; ``directory`` is where the databases will be."""
    syncs = sorted(fsync_latencies(directory))
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        disk=_disk(directory),
        fsync_p50=at(syncs, 0.5) * 1000,
        fsync_p99=at(syncs, 0.99) * 1000,
        load=os.getloadavg()[0],
    )


def fsync_latencies(directory: Path) -> list[float]:
    """Return the seconds that each of some small synced writes took."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return taken


def alone(directory: Path) -> None:
    """Wait until no other benchmark runs in ``directory``, and keep others waiting until this process ends."""
    path = directory / f"ferroscope-bench-{os.geteuid()}.lock"
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"another benchmark is running in {directory}; waiting for its end\n")
        fcntl.flock(lock, fcntl.LOCK_EX)


def versions() -> dict[str, str]:
    """Return the versions of everything that takes part."""
    found = {
        "ferroscope": f"{version('ferroscope')} ({commit()})",
        "python": f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})",
        "sqlite": sqlite3.sqlite_version,
    }
    for name in _LIBRARIES:
        found[name] = version(name)
    return found


def commit() -> str:
    """Return the commit that is checked out, and whether the tree differs from it."""
    try:
        head = _output("git", "rev-parse", "--short", "HEAD")
        changed = _output("git", "status", "--porcelain", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return "no commit known"
    return f"{head}, src changed" if changed else head


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _disk(directory: Path) -> str:
    """Return device and file system behind ``directory``; tmpfs would make every commit free."""
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            kind, source = fields[fields.index("-") + 1 :][:2]
            return f"{kind} on {source}"
    return "unknown"
