"""``against COMMIT``: this tree and another commit, in turns within one run, on new databases of each kind.

Interpreter, libraries, load and driver are the same for both, so the rest of the difference is the source's. On a busy
machine only CPU time says something: each turn shows how busy it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import LOAD_PROCESS, Round, enrolled
from bench.databases import NAMES
from bench.field import Plan
from bench.quantiles import middle, spread
from bench.reference import Tree, find_this_tree, install_commit
from bench.report import Report
from bench.service import ROLES

REFERENCE: Final = "690ef08"  # the release of 2026-11-22
_CONCURRENCY: Final = 16
_BURSTS: Final = 5


class Side(msgspec.Struct):
    """All turns of one tree on one kind of database. The first round of a turn, of fresh processes, does not count.

    ``bursts`` are the seconds of all callbacks of all bursts.
    """

    tree: Tree
    rates: list[float] = []
    rounds: list[Round] = []
    bursts: list[float] = []

    @property
    def rate(self) -> float:
        return middle([round_.rate for round_ in self.rounds])

    @property
    def ours(self) -> float:
        return middle([round_.ours for round_ in self.rounds])

    def cpu(self, who: str) -> float:
        """Return the median of the CPU milliseconds per inspection."""
        return middle([round_.cpu.get(who, 0.0) for round_ in self.rounds])


def measure_turn(report: Report, side: Side, name: str, plan: Plan, rounds: int, directory: Path) -> None:
    """Inspect all nodes some times on a new database, then let the silent ones call back at once."""
    with enrolled(name, plan, directory, program=side.tree.executable) as fleet:
        measured = fleet.inspect_rounds(rounds, _CONCURRENCY)
        side.bursts += [seconds for _ in range(_BURSTS) for seconds in fleet.load_process.do("burst", list[float])]
        problems = [problem for round_ in measured for problem in round_.problems] + fleet.service.faults()
    side.rates += [round_.rate for round_ in measured]
    side.rounds += measured[1:]
    report.wrong([f"{side.tree.commit}: {problem}" for problem in problems])


def show(report: Report, name: str, sides: list[Side]) -> None:
    """Show both, and what one is divided by the other."""
    rows = []
    for side in sides:
        raw = " ".join(f"{rate:.0f}" for rate in side.rates)
        busy = middle([round_.other_load for round_ in side.rounds])
        spent = [side.cpu(who) for who in (*ROLES, name)]
        measured = (side.tree.commit, side.rate, raw, *spent, side.ours, side.cpu(LOAD_PROCESS))
        rows.append((*measured, spread(side.bursts), busy))
    columns = ("commit", "insp/s", "rounds", *(f"CPU ms {who}" for who in (*ROLES, "database")), "ours")
    report.table((*columns, LOAD_PROCESS, "burst ms, p50 / p99 / max", "other load"), rows)
    report.keep(f"against {name}", sides)
    own, other = sides
    report.figure("inspections/s, this tree / the other", name, own.rate / other.rate)
    report.figure("CPU per inspection, this tree / the other", name, own.ours / other.ours)
    report.figure("callbacks of a burst, p99 ms", name, spread(own.bursts).p99)


@click.command("against")
@click.pass_obj
@click.argument("commit", default=REFERENCE)
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--turns", default=2, show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Inspections of each node in a turn.")
def command(
    context: tuple[Report, Path], commit: str, databases: tuple[str, ...], turns: int, nodes: int, rounds: int
) -> None:
    """This tree and another COMMIT side by side."""
    report, directory = context
    trees = (find_this_tree(), install_commit(commit))
    plan = Plan(nodes=nodes, special=tuple(f"sim-timeout-{number}" for number in range(1, _CONCURRENCY + 1)))
    for name in databases:
        report.section(f"{trees[0].commit} against {trees[1].commit} on {name}: {turns} turns of {rounds} rounds")
        sides = [Side(tree) for tree in trees]
        for _ in range(turns):
            for side in sides:
                measure_turn(report, side, name, plan, rounds, directory)
        show(report, name, sides)
