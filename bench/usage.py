"""What processes use, read from /proc: CPU time of whole trees, resident and proportional memory.

CPU time is user and system time, of the threads that ended and the children that were waited for
too, so that a database server's sessions count.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from tests.support.processes import tree

_TICK: Final = os.sysconf("SC_CLK_TCK")


class Memory(msgspec.Struct, frozen=True):
    """MiB; ``pss`` shares pages between those that map them."""

    rss: float
    pss: float
    peak: float


def cpu_seconds(pid: int | None) -> float:
    """Return the CPU time that the process and all its descendants have used; 0 for no process."""
    return 0.0 if pid is None else sum(_ticks(member) for member in tree(pid)) / _TICK


def machine_seconds() -> float:
    """Return the CPU time that everything on this machine has used, the host's theft included."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / _TICK


def memory(pid: int) -> Memory:
    """Return what the process holds at this moment."""
    rollup = _fields(Path(f"/proc/{pid}/smaps_rollup"))
    status = _fields(Path(f"/proc/{pid}/status"))
    return Memory(rss=rollup["Rss"] / 1024, pss=rollup["Pss"] / 1024, peak=status["VmHWM"] / 1024)


def _ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # utime, stime, and those of the children that it has waited for
    return sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])


def _fields(path: Path) -> dict[str, int]:
    """Return the fields in kB of a /proc file of ``Name: 123 kB`` lines."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) == 3 and words[2] == "kB"}
