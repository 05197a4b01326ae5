"""How inspections under way look: a bar and counts on a terminal, lines elsewhere.

Failures are told as they come, with the reason and what to do, and stay on the screen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import console
from ferroscope.cli.text import clean, with_reason
from ferroscope.cli.watch import FINISHED, Ended, Watch

if TYPE_CHECKING:
    from rich.console import Console

_PHASES: Final = {
    "to start": "to start",
    "accepted": "accepted",
    "inspecting": "inspecting",
    "inspect wait": "inspect wait",
    "finished": "finished",
    "error": "failed",
    "refused": "refused",
    "still running": "still running",
    "not started": "not started",
}
_STYLES: Final = {
    "to start": "dim",
    "inspecting": "cyan",
    "inspect wait": "blue",
    "finished": "green",
    "failed": "bold red",
    "refused": "bold red",
    "still running": "yellow",
    "not started": "yellow",
}
_LINE_EVERY: Final = 1.0
_LOOK_EVERY: Final = 0.25
_PATIENCE: Final = 60.0


class Display:
    """Shows a watch while it goes on; this one shows nothing, for those who want to know the end only."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def update(self, watch: Watch, ended: Iterable[Ended]) -> None:
        """Show how things stand; ``ended`` are those that have ended since the last time."""

    def say(self, text: Any, style: str = "") -> None:
        """Print a line that stays."""


def follow(
    watch: Watch, shown: Display, *, timeout: float | None = None, also: Callable[[], None] = lambda: None
) -> None:
    """See ``watch`` through to its end, or until ``timeout`` seconds have passed; ``also`` is called with each look.

    A service that is away for a minute is waited for: the inspections go on when it is back.
    """
    began = seen = time.monotonic()
    while True:
        ended: list[Ended] = []
        try:
            ended = watch.step()
            seen = time.monotonic()
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE or time.monotonic() - seen > _PATIENCE:
                raise
        if timeout is not None and time.monotonic() - began > timeout and not watch.over:
            watch.give_up()
        shown.update(watch, ended)
        also()
        if watch.over:
            return
        if not watch.may_start:
            time.sleep(_LOOK_EVERY)


def display(*, error: bool = False) -> Display:
    """Return the display that suits where the output goes."""
    screen = console(error=error)
    return LiveDisplay(screen) if screen.is_terminal else LineDisplay(screen)


class LiveDisplay(Display):
    """For terminals."""

    def __init__(self, screen: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[phases]}", markup=True),
            console=screen,
            refresh_per_second=8,
        )
        self._task = self._progress.add_task("", total=None, phases="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, watch: Watch, ended: Iterable[Ended]) -> None:
        for end in ended:
            if end.result != FINISHED:
                self.say(failure(end), style="red")
        shown = "  ".join(f"[{_STYLES.get(name, 'none')}]{count} {name}[/]" for name, count in phases(watch.counts()))
        self._progress.update(self._task, total=watch.total, completed=len(watch.ended), phases=shown)

    def say(self, text: Any, style: str = "") -> None:
        self._progress.console.print(text, style=style)


class LineDisplay(Display):
    """For pipes, files and CI: a line whenever something has changed, at the most one a second."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._began = time.monotonic()
        self._said: tuple[tuple[str, int], ...] = ()
        self._said_at = 0.0

    def update(self, watch: Watch, ended: Iterable[Ended]) -> None:
        for end in ended:
            if end.result != FINISHED:
                self.say(failure(end))
        counts = tuple(phases(watch.counts()))
        now = time.monotonic()
        if counts == self._said or (now - self._said_at < _LINE_EVERY and not watch.over):
            return
        self._said, self._said_at = counts, now
        shown = "  ".join(f"{count} {name}" for name, count in counts)
        self.say(f"{now - self._began:5.1f} s  {len(watch.ended):>{len(str(watch.total))}}/{watch.total}  {shown}")

    def say(self, text: Any, style: str = "") -> None:
        self._screen.print(text)
        self._screen.file.flush()


def phases(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the phases in which there is anybody, in the order in which nodes pass through them."""
    return [(shown, counts[name]) for name, shown in _PHASES.items() if counts[name]]


def shown_result(end: Ended) -> str:
    """Return the result as people read it."""
    return _PHASES.get(end.result, end.result)


def failure(end: Ended) -> str:
    """Return what became of a node, why, and what to do."""
    why = with_reason(end.error, end.reason).strip()
    text = f"{end.node}: {shown_result(end)}: {why}" if why else f"{end.node}: {shown_result(end)}"
    return clean(f"{text}\n    {end.hint}" if end.hint else text)
