"""``gate``: what one inspection, callback and list cost in this tree, against a commit that is kept for it.

Instructions of Python's interpreter are counted, in all threads of a process, which gives the same number on every
machine, however busy. They do not show what the libraries in C do, SQLite included. CPU time does, but on a busy
machine it varies by some percent, even though both trees take turns of a fraction of a second. So only an excess of
instructions is a failure, and CPU time is shown beside it. Waiting, disks and servers are left out.

Fewer instructions of Python are not always less work: a call that replaces ten of them may take longer than they do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.figures import Figure
from bench.load_process import LoadProcess
from bench.quantiles import middle
from bench.reference import Tree, is_known, prepared, this
from bench.report import Report

# The commit that this tree must not be slower than. Whoever makes it faster, or has a reason to make it slower, stores
# the commit before as the new one, and gives the reason in its message.
REFERENCE: Final = "cc3f001a"
ALLOWED: Final = 1.03
_WARM: Final = 50
_EACH: Final = 8
_COUNTED: Final = 20

Costs = dict[str, float]


class Gate(msgspec.Struct, frozen=True):
    """What was measured of both trees, by name, turn by turn: CPU milliseconds, thousands of instructions."""

    cpu: tuple[list[Costs], list[Costs]]
    instructions: tuple[list[Costs], list[Costs]]

    def ratio(self, kind: str, what: str) -> float:
        """Return the median of the ratios of two turns that followed each other."""
        ours, theirs = getattr(self, kind)
        return middle([own[what] / other[what] for own, other in zip(ours, theirs, strict=True)])


def measure(trees: Sequence[Tree], turns: int, directory: str | None) -> Gate:
    """Let both work in turns, each one first as often as the other."""
    cpu: tuple[list[Costs], list[Costs]] = ([], [])
    instructions: tuple[list[Costs], list[Costs]] = ([], [])
    with ExitStack() as stack:
        probes = []
        for tree in trees:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ferroscope-gate-", dir=directory)))
            # This tree's copy of the probe, by the interpreter of each tree, which has its source.
            probe = LoadProcess("bench.probe", place / "log", str(place), python=tree.python)
            probes.append(stack.enter_context(probe))
        for probe in probes:
            probe.answer(Costs)  # it is ready
            probe.do("cpu", Costs, times=_WARM)
        for turn in range(turns):
            for side in (0, 1) if turn % 2 else (1, 0):
                cpu[side].append(probes[side].do("cpu", Costs, times=_EACH))
        for side, probe in enumerate(probes):
            instructions[side].append(probe.do("instructions", Costs, times=_COUNTED))
    return Gate(cpu, instructions)


def show(report: Report, trees: Sequence[Tree], measured: Gate) -> None:
    for kind, unit in (("instructions", "thousands of instructions"), ("cpu", "CPU ms")):
        costs = getattr(measured, kind)
        ratios = {what: measured.ratio(kind, what) for what in costs[0][0]}
        rows = [
            (what, *(middle([turn[what] for turn in side]) for side in costs), f"{ratio:.3f}")
            for what, ratio in ratios.items()
        ]
        report.table((f"{unit} of one", "this tree", trees[1].commit, "ratio"), rows)
        report.found(*(Figure(f"{kind} of one {what} / reference", "sqlite", ratio) for what, ratio in ratios.items()))
        more = [f"one {what}: {ratio:.3f} times" for what, ratio in ratios.items() if ratio > ALLOWED]
        if more and kind == "instructions":
            report.wrong([f"more {kind} than {trees[1].commit}: {', '.join(more)}; to find out where: bench profile"])
    report.keep("gate", measured)


def _in_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@click.command("gate")
@click.pass_obj
@click.argument("commit", default="")
@click.option("--turns", default=20, show_default=True, help="Of CPU time; instructions are counted once.")
def command(found: tuple[Report, Path], commit: str, turns: int) -> None:
    """Fail if this tree needs more instructions than COMMIT, by default the one that is kept for it."""
    report, _ = found
    if not commit and not is_known(REFERENCE):
        report.section(f"gate: nothing compared: this clone is without {REFERENCE}, which git fetch --unshallow brings")
        return
    trees = (this(), prepared(commit or REFERENCE))
    report.section(f"gate: {trees[0].commit} against {trees[1].commit}, {turns} turns")
    show(report, trees, measure(trees, turns, _in_memory()))
