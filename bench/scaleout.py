"""``scaleout``: whole inspections with 1, 2 and 4 worker processes side by side, on one database.

The load is that of ``cycle``; where it stops to grow, the database, the one api process or the processors
are the limit, and the CPU beside each rate says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.cycle import Cycle, Load
from bench.cycle import measure as measure_cycle
from bench.service import executable


class ScaleOut(msgspec.Struct, frozen=True):
    """The cycles by number of worker processes."""

    database: str
    cycles: dict[int, Cycle]

    @property
    def problems(self) -> list[str]:
        return [problem for cycle in self.cycles.values() for problem in cycle.problems]


def measure(name: str, load: Load, directory: Path, *, processes: Sequence[int] = (1, 2, 4)) -> ScaleOut:
    """Run the load with each number of worker processes, on a new database each."""
    return ScaleOut(
        name,
        {count: measure_cycle(name, load, directory, commands={"worker": _workers(count)}) for count in processes},
    )


def _workers(count: int) -> list[str]:
    """Return a command to which ``worker -c CONFIG`` is added."""
    return ["sh", "-c", f'exec "{executable()}" "$@" --processes {count}', "worker"]
