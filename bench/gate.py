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

from bench.load_process import LoadProcess
from bench.quantiles import middle
from bench.reference import Tree, find_this_tree, install_commit, is_known
from bench.report import Report

# The commit that this tree must not be slower than. Whoever makes it faster, or has a reason to make it slower, stores
# the commit before as the new one, and gives the reason in its message.
REFERENCE: Final = "cc3f001a"
ALLOWED_RATIO: Final = 1.03
_WARM_TIMES: Final = 50
_CPU_TIMES: Final = 8
_COUNTED_TIMES: Final = 20

# Of each turn: by what is measured.
Costs = list[dict[str, float]]


def measure(trees: Sequence[Tree], turns: int) -> dict[str, tuple[Costs, Costs]]:
    """Let both work in turns, each one first as often as the other; return CPU milliseconds, and instructions."""
    cpu: tuple[Costs, Costs] = ([], [])
    instructions: tuple[Costs, Costs] = ([], [])
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with ExitStack() as stack:
        probes = []
        for tree in trees:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ferroscope-gate-", dir=memory)))
            # This tree's copy of the probe, by the interpreter of each tree, which has its source.
            probe = LoadProcess("bench.probe", place / "log", str(place), python=tree.python)
            probes.append(stack.enter_context(probe))
            probe.do("cpu", dict[str, float], times=_WARM_TIMES)
        for turn in range(turns):
            for side in (0, 1) if turn % 2 else (1, 0):
                cpu[side].append(probes[side].do("cpu", dict[str, float], times=_CPU_TIMES))
        for side, probe in enumerate(probes):
            instructions[side].append(probe.do("instructions", dict[str, float], times=_COUNTED_TIMES))
    return {"thousands of instructions": instructions, "CPU ms": cpu}


def show(report: Report, commit: str, unit: str, costs: tuple[Costs, Costs]) -> dict[str, float]:
    """Return the medians of the ratios of two turns that followed each other."""
    ratios = {
        what: middle([own[what] / other[what] for own, other in zip(*costs, strict=True)]) for what in costs[0][0]
    }
    rows = [
        (what, *(middle([turn[what] for turn in side]) for side in costs), f"{ratio:.3f}")
        for what, ratio in ratios.items()
    ]
    report.table((f"{unit} of one", "this tree", commit, "ratio"), rows)
    for what, ratio in ratios.items():
        report.figure(f"{unit} of one {what} / reference", "sqlite", ratio)
    return ratios


@click.command("gate")
@click.pass_obj
@click.argument("commit", default="")
@click.option("--turns", default=20, show_default=True, help="Of CPU time; instructions are counted once.")
def command(context: tuple[Report, Path], commit: str, turns: int) -> None:
    """Fail if this tree needs more instructions than COMMIT, by default the one that is kept for it."""
    report, _ = context
    if not commit and not is_known(REFERENCE):
        report.section(f"gate: nothing compared: this clone is without {REFERENCE}, which git fetch --unshallow brings")
        return
    trees = (find_this_tree(), install_commit(commit or REFERENCE))
    report.section(f"gate: {trees[0].commit} against {trees[1].commit}, {turns} turns")
    measured = measure(trees, turns)
    report.keep("gate", measured)
    ratios = {unit: show(report, trees[1].commit, unit, costs) for unit, costs in measured.items()}
    more = [
        f"one {what}: {ratio:.3f} times"
        for what, ratio in ratios["thousands of instructions"].items()
        if ratio > ALLOWED_RATIO
    ]
    if more:
        report.wrong([f"more instructions than {trees[1].commit}: {', '.join(more)}; to find out where: bench profile"])
