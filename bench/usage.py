"""What processes use, read from /proc: CPU time of whole trees, and resident memory.

CPU time is user and system time, of the threads that ended and the children that were waited for
too, so that a database server's sessions count.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from tests.support.processes import tree

_TICK: Final = os.sysconf("SC_CLK_TCK")


class Memory(msgspec.Struct, frozen=True):
    """MiB."""

    rss: float
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
    kilobytes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    return Memory(rss=int(kilobytes["VmRSS"]) / 1024, peak=int(kilobytes["VmHWM"]) / 1024)


def _ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # utime, stime, and those of the children that it has waited for
    return sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])
