"""``scaleout``: whole inspections with 1, 2 and 4 worker processes side by side, on one database.

The load is that of ``cycle``; where it stops to grow, the database, the api processes or the processors are the limit.
The CPU beside each rate says which, and on PostgreSQL what its sessions wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.cycle import Cycle, Load
from bench.cycle import measure as measure_cycle
from bench.service import Service, executable
from bench.waits import Waits
from ferroscope.config.load import load as load_settings


class ScaleOut(msgspec.Struct, frozen=True):
    """The cycles by number of worker processes."""

    database: str
    cycles: dict[int, Cycle]
    waits: dict[int, dict[str, float]]

    @property
    def problems(self) -> list[str]:
        return [problem for cycle in self.cycles.values() for problem in cycle.problems]


def measure(name: str, load: Load, directory: Path, *, processes: Sequence[int] = (1, 2, 4), apis: int = 1) -> ScaleOut:
    """Run the load with each number of worker processes and so many api processes, on a new database each."""
    cycles, waits = dict[int, Cycle](), dict[int, dict[str, float]]()
    for count in processes:
        with ExitStack() as stack:
            watched = list[Waits]()

            def watch(running: Service, stack: ExitStack = stack, watched: list[Waits] = watched) -> None:
                if name == "postgresql":
                    watched.append(stack.enter_context(Waits(load_settings([str(running.config)]).database.connection)))

            commands = {"worker": _processes("worker", count), "api": _processes("api", apis)}
            cycles[count] = measure_cycle(name, load, directory, commands=commands, prepare=watch)
        waits[count] = watched[0].sessions if watched else {}
    return ScaleOut(name, cycles, waits)


def _processes(role: str, count: int) -> list[str]:
    """Return a command to which the role and ``-c CONFIG`` are added."""
    return ["sh", "-c", f'exec "{executable()}" "$@" --processes {count}', role]
