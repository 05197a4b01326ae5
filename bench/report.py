"""What a person sees, and the JSON that is kept: machine, versions, raw numbers, figures against targets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.figures import Figure
from bench.machine import Machine

_RESULTS: Final = Path(__file__).parent / "results"
_SEEN: Final = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}


class Report:
    """Collects what the benchmarks found while it is shown."""

    def __init__(self, machine: Machine, versions: dict[str, str], console: Console) -> None:
        self.console = console
        self.figures: list[Figure] = []
        self.problems: list[str] = []
        self.machine = machine
        self._versions = versions
        self._raw: dict[str, Any] = {}

    def head(self) -> None:
        """Show what it is measured on."""
        for name, text in (*self.machine.lines(), *self._versions.items()):
            self.console.print(f"{name:>12}  {text}", highlight=False, soft_wrap=True)

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

    def found(self, *figures: Figure) -> None:
        self.figures.extend(figures)

    def wrong(self, problems: Sequence[str]) -> None:
        """Show what makes the figures worthless."""
        self.problems.extend(problems)
        for problem in problems[:20]:
            self.console.print(f"[red]wrong:[/] {problem}", highlight=False, soft_wrap=True)

    def foot(self) -> None:
        """Show all figures against their targets."""
        self.section("figures")
        rows = [
            (figure.key, figure.of, figure.value, _wanted(figure), _SEEN[figure.met], _incumbents(figure))
            for figure in self.figures
        ]
        self.table(("figure", "on", "measured", "target", "", "incumbents"), rows)

    def save(self, name: str) -> Path:
        """Write everything to a file of its own; return where."""
        path = _RESULTS / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}.json"
        content = {
            "machine": self.machine,
            "versions": self._versions,
            "figures": self.figures,
            "problems": self.problems,
            "raw": self._raw,
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
        return path


def _wanted(figure: Figure) -> str:
    target = figure.target
    return "" if target is None else f"{'>=' if target.least else '<='} {target.value:g}"


def _incumbents(figure: Figure) -> str:
    return figure.target.incumbents if figure.target else ""
