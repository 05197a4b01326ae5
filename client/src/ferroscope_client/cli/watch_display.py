"""The progress of inspections as it is shown, on a terminal and elsewhere, and following them with it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ferroscope_client.cli.output import console
from ferroscope_client.cli.screen import SAID_EVERY
from ferroscope_client.cli.text import clean, span, with_reason
from ferroscope_client.cli.watch import FINISHED, InspectionResult, Watch
from ferroscope_client.errors import Exit, Failure

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
_POLL_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 60.0


class Display:
    """Shows the progress of a watch; this base class shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def update(self, watch: Watch, ended: Iterable[InspectionResult]) -> None:
        """Show the progress; ``ended`` are the inspections that ended since the last call."""

    def say(self, text: Any, style: str = "") -> None:
        """Print a permanent line."""


def follow(
    watch: Watch, shown: Display, *, timeout: float | None = None, also: Callable[[], None] = lambda: None
) -> None:
    """Run ``watch`` until it ends or ``timeout`` seconds have passed; ``also`` is called in each iteration.

    An unreachable service is tolerated for a minute: the inspections continue when it is back.
    """
    began = seen = time.monotonic()
    while True:
        ended: list[InspectionResult] = []
        try:
            ended = watch.step()
            watch.look()
            seen = time.monotonic()
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE or time.monotonic() - seen > _RETRY_SECONDS:
                raise
        if timeout is not None:
            watch.seconds_left = max(0.0, began + timeout - time.monotonic())
            if not watch.seconds_left and not watch.over:
                watch.give_up()
        shown.update(watch, ended)
        also()
        if watch.over:
            return
        if not watch.may_start:
            time.sleep(_POLL_SECONDS)


def display(*, error: bool = False, quiet: bool = False) -> Display:
    """Return the display for a terminal or for other output; ``quiet``: only a bar, or a line now and then."""
    screen = console(error=error or quiet)
    return LiveDisplay(screen, quiet=quiet) if screen.is_terminal else LineDisplay(screen, quiet=quiet)


def outlook(watch: Watch) -> str:
    """Return the remaining time, when the command gives up, and the newest steps of the last nodes; "" if unknown."""
    expected, gives_up = watch.expected_seconds, None if watch.over else watch.seconds_left
    parts = [f"about {span(expected)} left" if expected is not None else ""]
    parts += [f"gives up in {gives_up:.0f} s" if gives_up is not None else "", watch.newest_steps]
    return "  ".join(filter(None, parts))


class LiveDisplay(Display):
    """For terminals; ``quiet``: failures are not shown, and the bar disappears at the end."""

    def __init__(self, screen: Console, *, quiet: bool = False) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[phases]}", markup=True),
            console=screen,
            refresh_per_second=8,
            transient=quiet,
        )
        self._quiet = quiet
        self._task = self._progress.add_task("", total=None, phases="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, watch: Watch, ended: Iterable[InspectionResult]) -> None:
        from rich.markup import escape

        for end in ended:
            if end.result != FINISHED and not self._quiet:
                self.say(failure(end), style="red")
        shown = "  ".join(f"[{_STYLES.get(name, 'none')}]{count} {name}[/]" for name, count in phases(watch.counts()))
        if more := outlook(watch):
            shown += f"  {escape(clean(more))}"
        self._progress.update(self._task, total=watch.total, completed=watch.completed, phases=shown)

    def say(self, text: Any, style: str = "") -> None:
        self._progress.console.print(text, style=style)


class LineDisplay(Display):
    """For pipes, files and CI: a line for each change, at most one per second, and one now and then without changes.

    ``quiet``: only the latter, and no failures.
    """

    def __init__(self, screen: Console, *, quiet: bool = False) -> None:
        self._screen = screen
        self._quiet = quiet
        self._began = time.monotonic()
        self._shown: tuple[tuple[str, int], ...] = ()
        self._shown_at = self._began if quiet else 0.0

    def update(self, watch: Watch, ended: Iterable[InspectionResult]) -> None:
        for end in ended:
            if end.result != FINISHED and not self._quiet:
                self.say(failure(end))
        counts = tuple(phases(watch.counts()))
        now = time.monotonic()
        if not self._is_due(counts != self._shown, now - self._shown_at, over=watch.over):
            return
        self._shown, self._shown_at = counts, now
        shown = "  ".join([*(f"{count} {name}" for name, count in counts), *filter(None, [outlook(watch)])])
        self.say(f"{now - self._began:5.1f} s  {watch.completed:>{len(str(watch.total))}}/{watch.total}  {shown}")

    def _is_due(self, changed: bool, since: float, *, over: bool) -> bool:
        if since >= SAID_EVERY and not over:
            return True
        return not self._quiet and changed and (since >= _LINE_EVERY or over)

    def say(self, text: Any, style: str = "") -> None:
        self._screen.print(text)
        self._screen.file.flush()


def phases(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the non-empty phases with their counts, in the order of an inspection."""
    return [(shown, counts[name]) for name, shown in _PHASES.items() if counts[name]]


def shown_result(end: InspectionResult) -> str:
    """Return the result as readable text."""
    return _PHASES.get(end.result, end.result)


def failure(end: InspectionResult) -> str:
    """Return the result of a node, the reason, and the advice."""
    why = with_reason(end.error, end.reason).strip()
    text = f"{end.node}: {shown_result(end)}: {why}" if why else f"{end.node}: {shown_result(end)}"
    return clean(f"{text}\n    {end.hint}" if end.hint else text)
