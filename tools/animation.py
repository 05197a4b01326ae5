"""Makes the animation of ``make demo`` in README.md: ``python3 -m tools animation``.

It runs the demo, notes when each line comes, and writes docs/images/demo.svg: a terminal of text, in which those lines
come in the same order, in twenty seconds. Long pauses are shorter, and lines that came at once can be read; no line is
invented, or left out before the end.
"""

from __future__ import annotations

import datetime
import html
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "docs/images/demo.svg"
# What the demo says after this is for the person at the terminal.
_END: Final = "Done in "
SECONDS: Final = 20.0
# Of these, the last ones show the end.
_REST: Final = 4.0
# Seconds of the recording that a pause has at most, and that each line has in addition.
_PAUSE, _A_LINE = 1.5, 0.15
ROWS, COLUMNS = 28, 108
_LINE, _CHARACTER, _MARGIN = 17, 7.83, 14
_COLORS: Final = {"[": "#8ab4f8", "$": "#9aa0a6", "SIGKILL": "#f28b82", "No machine": "#81c995", "All ": "#81c995"}
_STYLE: Final = "font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; white-space: pre"


def record(command: list[str]) -> list[tuple[float, str]]:
    """Run a command; return its lines, each with the second in which it came."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((time.monotonic() - began, line.rstrip()))
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return lines


def shown(lines: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the lines up to the end, with the second of the animation in which each appears."""
    end = next(number for number, (_, text) in enumerate(lines) if text.startswith(_END))
    kept = [(0.0, "$ make demo"), *lines[: end + 1]]
    appears, before = [0.0], 0.0
    for at, _ in kept[1:]:
        appears.append(appears[-1] + _A_LINE + min(at - before, _PAUSE))
        before = at
    scale = (SECONDS - _REST) / appears[-1]
    return [(at * scale, text[:COLUMNS]) for at, (_, text) in zip(appears, kept, strict=True)]


def svg(lines: list[tuple[float, str]], about: str) -> str:
    """Return the animation."""
    width, height = round(COLUMNS * _CHARACTER) + 2 * _MARGIN, ROWS * _LINE + 2 * _MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>make demo</title><desc>{html.escape(about)}</desc>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#202124"/>',
        f'<svg x="{_MARGIN}" y="{_MARGIN}" width="{width - 2 * _MARGIN}" height="{ROWS * _LINE}">',
        f'<g fill="#e8eaed" style="{_STYLE}" xml:space="preserve">',
        *_scrolling(lines),
        *_texts(lines),
        "</g></svg></svg>",
        "",
    ])  # fmt: skip


def _scrolling(lines: list[tuple[float, str]]) -> Iterator[str]:
    """Yield the movement that keeps the newest line at the bottom."""
    steps = {0.0: 0}
    for number, (at, _) in enumerate(lines):
        steps[at] = -max(0, number + 1 - ROWS) * _LINE
    times = ";".join(f"{at / SECONDS:.4f}" for at in steps)
    values = ";".join(f"0 {offset}" for offset in steps.values())
    yield (
        f'<animateTransform attributeName="transform" type="translate" calcMode="discrete" dur="{SECONDS:g}s" '
        f'repeatCount="indefinite" keyTimes="{times}" values="{values}"/>'
    )


def _texts(lines: list[tuple[float, str]]) -> Iterator[str]:
    for number, (at, text) in enumerate(lines):
        color = next((f' fill="{one}"' for start, one in _COLORS.items() if text.startswith(start)), "")
        # Later ones come from below.
        appears = (
            f'<animate attributeName="visibility" calcMode="discrete" dur="{SECONDS:g}s" repeatCount="indefinite" '
            f'keyTimes="0;{at / SECONDS:.4f}" values="hidden;visible"/>'
            if 0 < number < ROWS and at > 0
            else ""
        )
        if text:
            yield f'<text y="{number * _LINE + 13}"{color}>{html.escape(text)}{appears}</text>'


def main() -> None:
    command = [".venv/bin/ferroscope", "demo"]
    lines = shown(record(command))
    day = datetime.datetime.now(datetime.UTC).date()
    about = f"Output of make demo of {day}, on {os.cpu_count()} processors. Made by: python3 -m tools animation"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(svg(lines, about), encoding="utf-8")
    print(f"{target}, {len(lines)} lines")


if __name__ == "__main__":
    main()
