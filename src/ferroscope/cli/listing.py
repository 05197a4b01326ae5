"""Tables that stay readable on a narrow terminal: whole columns give way, no column is squeezed into letters.

Where all columns do not fit, those that the table can spare go one after the other; a text such as an error
goes below its row instead of away. What is left is never broken but for the one column that is named for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ferroscope.cli.output import cell, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_GAP: Final = 3
_EDGES: Final = 2
_LEAST: Final = 30
"""Narrower than this no text is broken: it takes several lines of a word or two."""


class Listing:
    """Rows under ``titles``, for a console of any width.

    ``spare`` are the titles that give way, in this order; ``below`` is the one of them that then goes below its
    row. ``wraps`` is the column that may take several lines, by default the first; with it ``below``, while that
    has a column. All others have one line.
    """

    def __init__(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        spare: Sequence[str],
        wraps: str | None = None,
        below: str | None = None,
    ) -> None:
        self._titles = list(titles)
        self._rows = [[cell(value) for value in row] for row in rows]
        self._spare = spare
        self._wraps = wraps or self._titles[0]
        self._below = below
        self._widths = {
            title: max([len(title), *(_width(row[number]) for row in self._rows)])
            for number, title in enumerate(self._titles)
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._fitting(options.max_width)
        below = self._below if self._below not in shown else None
        if below is None or not any(self._of(row, below) for row in self._rows):
            broken = {title for title in shown if self._breaks(title)}
            if self._needed(shown) > options.max_width:
                broken.add(self._wraps)
            yield table(shown, self._cells(shown), wraps=broken)
            return
        yield from self._with_lines_below(shown, below, options.max_width)

    def _fitting(self, width: int) -> list[str]:
        """Return the titles of the columns for which there is room."""
        shown = list(self._titles)
        for title in self._spare:
            if self._needed(shown) <= width:
                break
            shown.remove(title)
        return shown

    def _needed(self, shown: list[str]) -> int:
        widths = (min(self._widths[title], _LEAST) if self._breaks(title) else self._widths[title] for title in shown)
        return sum(widths) + _GAP * (len(shown) - 1) + _EDGES

    def _breaks(self, title: str) -> bool:
        return title == self._below or (title == self._wraps and title != self._titles[0])

    def _cells(self, shown: list[str]) -> list[list[Any]]:
        return [[self._of(row, title) for title in shown] for row in self._rows]

    def _of(self, row: list[Any], title: str) -> Any:
        return row[self._titles.index(title)]

    def _with_lines_below(self, shown: list[str], below: str, width: int) -> RenderResult:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        widths = {title: self._widths[title] for title in shown}
        others = sum(size for title, size in widths.items() if title != self._wraps)
        if self._wraps in widths:
            widths[self._wraps] = max(1, min(widths[self._wraps], width - others - _GAP * (len(shown) - 1)))

        def line(cells: list[Any]) -> Table:
            drawn = Table.grid(padding=(0, _GAP, 0, 0))
            for title in shown:
                drawn.add_column(width=widths[title], no_wrap=title != self._wraps, overflow="fold")
            drawn.add_row(*cells)
            return drawn

        yield line([Text(title, style="bold") for title in shown])
        for row in self._rows:
            yield line([self._of(row, title) for title in shown])
            if text := self._of(row, below):
                yield Padding(text, (0, 0, 0, 2))


def _width(text: Any) -> int:
    return max((len(line) for line in text.plain.split("\n")), default=0)
