"""``affinity``: what it is worth that a busy process keeps to one processor (ADR 079), in turns on new databases.

The load is that of ``cycle``. Processes that may use all processors run the same source without the thread that
confines them. Each is also measured beside a program that computes without a pause, and ``ferroscope all`` beside the
two roles.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import Load, Round
from bench.cycle import measure as measure_cycle
from bench.databases import NAMES
from bench.figures import Figure
from bench.quantiles import middle
from bench.report import Report
from bench.service import ROLES

_FREE: Final = (
    "import ferroscope.affinity; ferroscope.affinity.Keeper.start = lambda self: None; "
    "from ferroscope.cli.main import main; main()"
)
_BUSY: Final = "while True: pass"


class Way(msgspec.Struct, frozen=True):
    """``roles`` are the processes; ``confined``: as released; ``beside``: with a program that computes."""

    name: str
    roles: tuple[str, ...] = ROLES
    confined: bool = True
    beside: bool = False

    def commands(self) -> dict[str, Sequence[str]] | None:
        return None if self.confined else dict.fromkeys(self.roles, (sys.executable, "-c", _FREE))


_AS_RELEASED: Final = Way("one processor for each process, as released")
_ANY: Final = Way("any processor", confined=False)
WAYS: Final = (
    _AS_RELEASED,
    _ANY,
    Way("as released, beside a busy program", beside=True),
    Way("any processor, beside a busy program", confined=False, beside=True),
    Way("as released, all in one process", roles=("all",)),
    Way("any processor, all in one process", roles=("all",), confined=False),
)


class Side(msgspec.Struct):
    """The rounds of one way, without the first of each turn: it is that of fresh processes."""

    way: Way
    rounds: list[Round]
    problems: list[str]

    @property
    def rate(self) -> float:
        return middle([round_.rate for round_ in self.rounds])

    @property
    def ours(self) -> float:
        return middle([round_.ours for round_ in self.rounds])


def measure(name: str, load: Load, turns: int, directory: Path) -> list[Side]:
    """Give each way its turns."""
    sides = [Side(way, [], []) for way in WAYS]
    for _ in range(turns):
        for side in sides:
            way = side.way
            with _busy_program() if way.beside else nullcontext():
                found = measure_cycle(name, load, directory, roles=way.roles, commands=way.commands())
            side.rounds += found.rounds[1:]
            side.problems += found.problems
    return sides


@contextmanager
def _busy_program() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as program:
        try:
            yield
        finally:
            program.kill()


@click.command("affinity")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--turns", default=2, show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
@click.option("--rounds", default=5, show_default=True, help="Inspections of each node in a turn.")
def affinity(
    found: tuple[Report, Path], databases: tuple[str, ...], turns: int, nodes: int, concurrency: int, rounds: int
) -> None:
    """Processes that keep to one processor, and processes that may use all."""
    report, directory = found
    load = Load(nodes=nodes, concurrency=concurrency, rounds=rounds)
    for name in databases:
        report.section(f"affinity on {name}: {turns} turns of {rounds} rounds")
        sides = measure(name, load, turns, directory)
        rows = [
            (side.way.name, side.rate, " ".join(f"{one.rate:.0f}" for one in side.rounds), side.ours) for side in sides
        ]
        report.table(("processes", "insp/s", "rounds", "CPU ms, database included"), rows)
        for side in sides:
            report.wrong([f"{side.way.name}: {problem}" for problem in side.problems])
        report.keep(f"affinity {name}", sides)
        by_way = {side.way: side for side in sides}
        report.found(
            Figure("inspections/s, as released / any processor", name, by_way[_AS_RELEASED].rate / by_way[_ANY].rate)
        )
