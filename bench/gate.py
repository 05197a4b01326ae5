"""``gate``: what one inspection, callback and list cost in this tree, against a commit that is kept for it.

Instructions of Python's interpreter are counted, which gives the same number on every machine, however busy. They do
not show what the libraries in C do, SQLite included. CPU time does, but on a busy machine it varies by some percent,
even though both trees take turns of a fraction of a second. So only an excess of instructions is a failure, and CPU
time is shown beside it. Waiting, disks and servers are left out.

Fewer instructions of Python are not always less work: a call that replaces ten of them may take longer than they do.
``--processor`` has valgrind count the instructions of the processor instead, those of the libraries included.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

import click
import msgspec

from bench.figures import Figure
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
# Without garbage collection: one of all objects costs as much as two inspections, and may or may not fall into it.
_RUN: Final = "import gc, runpy; gc.disable(); runpy.run_module('bench.probe', run_name='__main__')"
_TOTAL: Final = re.compile(r"^totals: (\d+)", re.MULTILINE)

Costs = dict[str, float]


class ProbeError(Exception):
    """A probe has ended; the message is its own."""


class Probe:
    """``bench.probe`` of a tree, as a context manager; ``under``: the command that runs it."""

    def __init__(self, tree: Tree, directory: Path, under: Sequence[str] = ()) -> None:
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*under, tree.python, *(("-c", _RUN) if under else ("-m", "bench.probe")), str(directory)],
                cwd=tree.source.parent,
                env=os.environ | {"PYTHONHASHSEED": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def __enter__(self) -> Probe:
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def do(self, what: str, times: int) -> dict[str, float]:
        """Return milliseconds of CPU by what was measured."""
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode({"do": what, "times": times}) + b"\n")
            self._process.stdin.flush()
        return self._answer()

    def control(self, what: str) -> None:
        """Tell callgrind, under which it runs."""
        subprocess.run(["callgrind_control", what, str(self._process.pid)], capture_output=True, check=True)

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            raise ProbeError(f"the probe has ended:\n{self._log.read_text(errors='replace')[-3000:]}")
        return msgspec.json.decode(line, type=dict[str, float])


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
            probes.append(stack.enter_context(Probe(tree, place)))
        for probe in probes:
            probe.do("cpu", _WARM)
        for turn in range(turns):
            for side in (0, 1) if turn % 2 else (1, 0):
                cpu[side].append(probes[side].do("cpu", _EACH))
        for side, probe in enumerate(probes):
            instructions[side].append(probe.do("instructions", _COUNTED))
    return Gate(cpu, instructions)


def processor(tree: Tree, directory: str | None) -> float:
    """Return the thousands of instructions that the processor needs for an inspection with all that belongs to it, and
    for a list."""
    with tempfile.TemporaryDirectory(prefix="ferroscope-gate-", dir=directory) as place:
        counts = Path(place) / "counts"
        under = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}")
        with Probe(tree, Path(place), under) as probe:
            probe.do("cpu", _WARM)
            probe.control("--instr=on")
            probe.do("cpu", 1)  # valgrind translates what it sees for the first time
            probe.control("--zero")
            probe.do("cpu", _COUNTED)
            probe.control("--dump")
            counted = [_TOTAL.search(file.read_text()) for file in Path(place).glob("counts*")]
    return max(int(found[1]) for found in counted if found) / 1000 / _COUNTED


def show(report: Report, trees: Sequence[Tree], gates: Sequence[Gate]) -> None:
    """Show all of them; the figures are those of the first."""
    for kind, unit in (("instructions", "thousands of instructions"), ("cpu", "CPU ms")):
        costs = getattr(gates[0], kind)
        rows = [
            (
                what,
                *(middle([turn[what] for turn in side]) for side in costs),
                " ".join(f"{one.ratio(kind, what):.3f}" for one in gates),
            )
            for what in costs[0][0]
        ]
        report.table((f"{unit} of one", "this tree", trees[1].commit, "ratio"), rows)
        ratios = {what: gates[0].ratio(kind, what) for what in costs[0][0]}
        report.found(*(Figure(f"{kind} of one {what} / reference", "sqlite", ratio) for what, ratio in ratios.items()))
        more = [f"one {what}: {ratio:.3f} times" for what, ratio in ratios.items() if ratio > ALLOWED]
        if more and kind == "instructions":
            report.wrong([f"more {kind} than {trees[1].commit}: {', '.join(more)}; to find out where: bench profile"])
    report.keep("gate", gates)


def _in_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@click.command("gate")
@click.pass_obj
@click.argument("commit", default="")
@click.option("--turns", default=20, show_default=True, help="Of CPU time; instructions are counted once.")
@click.option("--repeat", default=1, show_default=True, help="Do it so often, to show by how much the result varies.")
@click.option("--processor", "by_processor", is_flag=True, help="Count its instructions, with valgrind; takes minutes.")
def gate(found: tuple[Report, Path], commit: str, turns: int, repeat: int, by_processor: bool) -> None:
    """Fail if this tree needs more instructions than COMMIT, by default the one that is kept for it."""
    report, _ = found
    if not commit and not is_known(REFERENCE):
        report.section(f"gate: nothing compared: this clone is without {REFERENCE}, which git fetch --unshallow brings")
        return
    trees = (this(), prepared(commit or REFERENCE))
    if by_processor:
        report.section(f"gate: {trees[0].commit} against {trees[1].commit}, instructions of the processor")
        ours, theirs = (processor(tree, _in_memory()) for tree in trees)
        report.table(
            ("thousands for", "this tree", trees[1].commit, "ratio"),
            [("an inspection and a list", ours, theirs, f"{ours / theirs:.3f}")],
        )
        report.found(Figure("instructions of the processor / reference", "sqlite", ours / theirs))
        return
    report.section(f"gate: {trees[0].commit} against {trees[1].commit}, {turns} turns")
    show(report, trees, [measure(trees, turns, _in_memory()) for _ in range(repeat)])
