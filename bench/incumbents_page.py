"""The part of the comparison page that ``incumbents`` makes: a table, and how it came about.

The rest of the page is written by hand. What is between the two comments is replaced as a whole.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.incumbents_plan import LEAST, MOST
from bench.incumbents_turns import Measured

PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "comparison.md"
BEGIN: Final = "<!-- Made by python -m bench incumbents --page: from here -->"
END: Final = "<!-- Made by python -m bench incumbents --page: to here -->"
_HEAD: Final = (
    "| service | inspections per second | CPU per inspection | callback p50 / p99 | looks of a client at a node |",
    "|---|---|---|---|---|",
)
_WIDTH: Final = 120


class PageError(Exception):
    """The page has no part that could be replaced."""


def rewritten(page: str, part: str) -> str:
    """Return the page with another part between the comments."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"the page has no lines {BEGIN!r} and {END!r} to write between: restore them")
    return f"{before}{BEGIN}\n\n{part.strip()}\n\n{END}{after}"


def written(measured: Measured) -> str:
    """Return the part in Markdown."""
    return "\n".join([*_HEAD, *_rows(measured), "", *textwrap.wrap(_told(measured), _WIDTH, break_on_hyphens=False)])


def _rows(measured: Measured) -> Iterator[str]:
    for name, turns in measured.turns.items():
        rates = ", ".join(f"{turn.rate:.3g}" for turn in turns)
        callbacks = measured.callbacks(name)
        yield (
            f"| {name} {measured.versions[name]} | {measured.rate(name):.3g} (turns: {rates}) |"
            f" {measured.cpu(name):.1f} ms | {callbacks.p50:.0f} / {callbacks.p99:.0f} ms |"
            f" {measured.middle(name, lambda turn: turn.looks / turn.inspections):.0f} |"
        )


def _told(measured: Measured) -> str:
    machine = measured.machine
    ours, *others = measured.turns
    compared = ", ".join(f"{measured.rate(ours) / measured.rate(name):.3g} times as many as {name}" for name in others)
    return (
        f"Measured on {measured.date} by `{measured.command}`, in turns within one run: {compared}. All ran with"
        f" {measured.interpreter}, on SQLite, on {machine.cores} cores of {machine.cpu}, Linux {machine.kernel},"
        f" {machine.disk}, syncing 4 KiB in {machine.fsync_p50:.2f} ms. At most {measured.other_load:.2f} processors"
        f" were busy with something else. Callbacks had {LEAST // 1000} to {MOST // 1000} KB. After each round, every"
        " node was verified: its state, its power, its port, and that the stored inventory is the one that was sent."
    )
