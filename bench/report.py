"""What a person sees, and the JSON that is kept: machine, versions, raw numbers, figures against targets.

A figure without a target is shown for what it says about the others.
"""

from __future__ import annotations

import fcntl
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

_ROOT: Final = Path(__file__).parents[1]
_RESULTS: Final = Path(__file__).parent / "results"
_SYNCS: Final = 200


class Figure(msgspec.Struct, frozen=True):
    """One measured number; ``of`` says on what. Its target is at least ``least``, or at most ``most``."""

    key: str
    of: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def target(self) -> str:
        return f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}" if self.most is not None else ""

    @property
    def missed(self) -> bool:
        too_low = self.least is not None and self.value < self.least
        return too_low or (self.most is not None and self.value > self.most)


class Report:
    """Collects what a benchmark has measured while it is shown."""

    def __init__(self, directory: Path) -> None:
        self.console = Console(width=max(Console().width, 175), highlight=False)
        self.figures: list[Figure] = []
        self.problems: list[str] = []
        self._machine = describe_machine(directory)
        self._raw: dict[str, Any] = {}
        for name, text in self._machine.items():
            self.console.print(f"{name:>12}  {text}", soft_wrap=True)

    def section(self, title: str) -> None:
        self.console.rule(title, align="left")

    def keep(self, name: str, raw: object) -> None:
        """Keep the raw numbers of a benchmark for the JSON."""
        self._raw.setdefault(name, []).append(raw)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show raw numbers."""
        table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row))
        self.console.print(table)

    def figure(self, key: str, of: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        self.figures.append(Figure(key, of, value, least, most))

    def wrong(self, problems: Sequence[str]) -> None:
        """Show what makes the figures worthless."""
        self.problems.extend(problems)
        for problem in problems[:20]:
            self.console.print(f"[red]wrong:[/] {problem}", soft_wrap=True)

    def show_figures(self) -> None:
        self.section("figures")
        rows = [
            (figure.key, figure.of, figure.value, figure.target, "[red]missed[/]" if figure.missed else "")
            for figure in self.figures
        ]
        self.table(("figure", "on", "measured", "target", ""), rows)

    def save(self, name: str) -> Path:
        """Write everything to a file of its own; return where."""
        path = _RESULTS / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}.json"
        content = {"machine": self._machine, "figures": self.figures, "problems": self.problems, "raw": self._raw}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
        return path


def describe_machine(directory: Path) -> dict[str, str]:
    """Return what the figures were measured on; ``directory`` is where the databases will be."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = models[0].partition(":")[2].strip() if models else platform.machine()
    disk = _output("findmnt", "--noheadings", "--output", "FSTYPE,SOURCE", "--target", str(directory))
    changed = " with changes" if _output("git", "status", "--porcelain", "--", "src") else ""
    return {
        "processor": f"{cpu}, {len(os.sched_getaffinity(0))} cores for this process, load {os.getloadavg()[0]:.2f}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": platform.release(),
        "disk": f"{disk}, 4 KiB + fdatasync {_measure_sync(directory):.2f} ms",
        "ferroscope": f"{version('ferroscope')} ({_output('git', 'rev-parse', '--short', 'HEAD')}{changed})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "sqlite": sqlite3.sqlite_version,
    }


def _measure_sync(directory: Path) -> float:
    """Return the median milliseconds of a small synced write: the floor under each durable commit."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return sorted(taken)[_SYNCS // 2] * 1000


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return " ".join(done.stdout.split())


def wait_until_alone(directory: Path) -> None:
    """Wait until no other benchmark runs in ``directory``, and keep others waiting until this process ends."""
    lock = os.open(directory / f"ferroscope-bench-{os.geteuid()}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"another benchmark is running in {directory}; waiting for its end\n")
        fcntl.flock(lock, fcntl.LOCK_EX)
