"""``against COMMIT``: this tree and another commit, in turns within one run, on new databases of each kind.

Interpreter, libraries, load and driver are the same for both, so the rest of the difference is the source's. On a busy
machine only CPU time says something: each turn shows how busy it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import LOAD_PROCESS, Load, Round, enrolled
from bench.databases import NAMES
from bench.figures import Figure
from bench.quantiles import Spread, middle, spread
from bench.reference import Tree, prepared, this
from bench.report import Report
from bench.service import ROLES

REFERENCE: Final = "690ef08"  # the release of 2026-11-22


class Turn(msgspec.Struct, frozen=True):
    """One tree on one new database; ``bursts`` are the seconds of all callbacks of all bursts."""

    database: str
    rounds: list[Round]
    bursts: list[float]
    faults: list[str]

    @property
    def problems(self) -> list[str]:
        return [*(problem for round_ in self.rounds for problem in round_.problems), *self.faults]


class Side(msgspec.Struct):
    """All turns of one tree on one kind of database. The first round of a turn, of fresh processes, does not count."""

    tree: Tree
    turns: list[Turn]

    @property
    def counted(self) -> list[Round]:
        return [round_ for turn in self.turns for round_ in turn.rounds[1:]]

    @property
    def rate(self) -> float:
        return middle([round_.rate for round_ in self.counted])

    def cpu(self, who: str) -> float:
        """Return the median of the CPU milliseconds per inspection."""
        return middle([round_.cpu.get(who, 0.0) for round_ in self.counted])

    @property
    def ours(self) -> float:
        return middle([round_.ours for round_ in self.counted])

    @property
    def burst(self) -> Spread:
        return spread([seconds for turn in self.turns for seconds in turn.bursts])


def one_turn(tree: Tree, name: str, load: Load, bursts: int, directory: Path) -> Turn:
    """Run the rounds of ``load`` on a new database, then the bursts."""
    with enrolled(name, load, directory, program=tree.executable) as fleet:
        rounds = fleet.inspect_rounds()
        callbacks = [seconds for _ in range(bursts) for seconds in fleet.load_process.do("burst", list[float])]
        return Turn(fleet.database.title, rounds, callbacks, fleet.service.faults())


def measure(trees: tuple[Tree, Tree], name: str, load: Load, turns: int, bursts: int, directory: Path) -> list[Side]:
    """Give each tree its turns."""
    sides = [Side(tree, []) for tree in trees]
    for _ in range(turns):
        for side in sides:
            side.turns.append(one_turn(side.tree, name, load, bursts, directory))
    return sides


def show(report: Report, name: str, sides: list[Side]) -> None:
    """Show both, and what one is divided by the other."""
    rows = []
    for side in sides:
        raw = " ".join(f"{round_.rate:.0f}" for turn in side.turns for round_ in turn.rounds)
        busy = middle([round_.other_load for round_ in side.counted])
        spent = [side.cpu(who) for who in (*ROLES, name)]
        bursts = f"{side.burst.p50:.1f} / {side.burst.p99:.1f}"
        rows.append((side.tree.commit, side.rate, raw, *spent, side.ours, side.cpu(LOAD_PROCESS), bursts, busy))
        report.wrong([f"{side.tree.commit}: {problem}" for turn in side.turns for problem in turn.problems])
    columns = ("commit", "insp/s", "rounds", *(f"CPU ms {who}" for who in (*ROLES, "database")), "ours")
    report.table((*columns, LOAD_PROCESS, "burst p50 / p99 ms", "other load"), rows)
    report.keep(f"against {name}", sides)
    own, other = sides
    report.found(
        Figure("inspections/s, this tree / the other", name, own.rate / other.rate),
        Figure("CPU per inspection, this tree / the other", name, own.ours / other.ours),
        Figure("callbacks of a burst, p99 ms", name, own.burst.p99),
    )


@click.command("against")
@click.pass_obj
@click.argument("commit", default=REFERENCE)
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--turns", default=2, show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight, and callbacks of a burst.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each node in a turn.")
@click.option("--bursts", default=5, show_default=True, help="Bursts of a turn.")
def command(
    found: tuple[Report, Path],
    commit: str,
    databases: tuple[str, ...],
    turns: int,
    nodes: int,
    concurrency: int,
    rounds: int,
    bursts: int,
) -> None:
    """This tree and another COMMIT side by side."""
    report, directory = found
    trees = (this(), prepared(commit))
    silent = tuple(f"sim-timeout-{number}" for number in range(1, concurrency + 1)) if bursts else ()
    load = Load(nodes=nodes, concurrency=concurrency, rounds=rounds, special=silent)
    for name in databases:
        report.section(f"{trees[0].commit} against {trees[1].commit} on {name}: {turns} turns of {rounds} rounds")
        show(report, name, measure(trees, name, load, turns, bursts, directory))
