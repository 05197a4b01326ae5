"""A screen of text that is drawn again and again on a terminal, with ANSI sequences and keys.

The terminal is restored at the end of the block, also after an error.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

import click

from ferroscope_client.cli.output import console
from ferroscope_client.cli.text import is_terminal, short

_ALTERNATE, _MAIN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
DEFAULT_SIZE: Final = (80, 24)


def size() -> tuple[int, int]:
    """Return the columns and lines of the terminal, else those of COLUMNS and LINES, else 80 and 24."""
    import shutil

    terminal = shutil.get_terminal_size(DEFAULT_SIZE)
    return terminal.columns, terminal.lines


class Screen:
    """``with`` it: ``draw`` replaces what is shown, ``wait`` returns whether a key has ended it."""

    def __init__(self) -> None:
        self._keyboard = sys.stdin.fileno() if is_terminal(sys.stdin) else None
        self._attributes: list[object] | None = None

    def __enter__(self) -> Self:
        if self._keyboard is not None:
            self._attributes = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._write(_ALTERNATE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keyboard is not None and self._attributes is not None:
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._attributes)  # type: ignore[arg-type]
        if not isinstance(error, OSError):
            self._write(_MAIN)

    def draw(self, lines: Sequence[str], *, bold: Callable[[str], bool] = lambda _line: False) -> None:
        """Show these lines; those for which ``bold`` holds are headings."""
        width, height = size()
        shown = [short(line, width) for line in lines[:height]]
        text = "\r\n".join((f"{_BOLD}{line}{_PLAIN}" if bold(line) else line) + _CLEAR_LINE for line in shown)
        self._write(_HOME + text + _CLEAR_BELOW)

    def wait(self, seconds: float, keys: str) -> bool:
        """Wait; return True as soon as one of ``keys`` is pressed."""
        if self._keyboard is None:
            time.sleep(seconds)
            return False
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._keyboard], [], [], left)[0]:
                return False
            pressed = os.read(self._keyboard, 64)
            if not pressed or any(key.encode() in pressed for key in keys):
                return True
        return False

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


T = TypeVar("T")
SAID_EVERY: Final = 15.0
"""Seconds between the lines of a wait without a terminal."""


@contextmanager
def progress(title: str, total: int | None = None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; call what it gives with the number of items that are done since.

    ``total``: None if it is unknown; the bar then shows how many are done, else also how long it takes yet. Without
    ``shown``, there is none. An interrupt is answered with how far it got: every such command can be repeated.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    screen = console(error=True)
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    ]  # fmt: skip
    if total is not None:
        columns += [TimeRemainingColumn(), TextColumn("left")]
    with Progress(*columns, console=screen, transient=True, disable=not (shown and screen.is_terminal)) as bar:
        task = bar.add_task(title, total=total)
        try:
            yield lambda count: bar.advance(task, count)
        except KeyboardInterrupt:
            bar.stop()
            of = "" if total is None else f" of {total:,}"
            said = f"interrupted while {title.lower()}, after {bar.tasks[task].completed:,.0f}{of}"
            click.echo(f"{said}; the command can be repeated", err=True)
            raise


class Waiting:
    """What a wait shows: on a terminal a bar with what is waited for, elsewhere a line now and then, on standard error.

    ``advance`` with the number of items that are done since; ``say`` what is waited for, and how many seconds are left
    until that is given up.
    """

    def __init__(self, total: int, *, every: float = SAID_EVERY) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._screen = console(error=True)
        self._live = self._screen.is_terminal
        self._every = every
        self._said_at = time.monotonic()
        columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=self._screen, transient=True, disable=not self._live)
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, count: int = 1) -> None:
        self._bar.advance(self._task, count)

    def say(self, text: str, left: float) -> None:
        line = f"{text}; {max(0.0, left):.0f} s left"
        if self._live:
            from rich.markup import escape

            self._bar.update(self._task, description=escape(line))
        elif time.monotonic() - self._said_at >= self._every:
            self._said_at = time.monotonic()
            self._screen.print(line)


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a bar."""
    with progress(title, total) as advance:
        for item in items:
            yield item
            advance(1)
