"""The progress bar of commands that take long: on standard error, and only if that is a terminal.

So it never gets into a file or a pipe, and results can be redirected while it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ferroscope.cli.output import console

T = TypeVar("T")


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; call what it gives with the number of items that are done since.

    ``total``: None if it is unknown; the bar then shows how many are done.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(error=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a bar."""
    with progress(title, total) as advance:
        for one in items:
            yield one
            advance(1)
