"""Tables that stay readable on a narrow terminal: whole columns give way, no column is squeezed into letters.

Where all columns do not fit, those that the table can spare go one after the other; a text such as an error
goes below its row instead of away. What is left is never broken but for the one column that is named for it.
It is made for 10,000 rows: lines are put together from plain strings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ferroscope.cli.output import STYLES, plain
from ferroscope.cli.text import width_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_GAP: Final = 3
_NARROW_GAP: Final = 2
_LEAST: Final = 30
"""Narrower than this no text is broken: it takes several lines of a word or two."""

_Row = list[str]


class Listing:
    """Rows under ``titles``, for a console of any width.

    ``spare`` are the titles that give way, in this order; ``below`` is the one of them that then goes below its
    row. ``wraps`` is the column that may take several lines, by default the first; with it ``below``, while that
    has a column. All others have one line. ``right`` are those whose values are numbers.
    """

    def __init__(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        spare: Sequence[str],
        wraps: str | None = None,
        below: str | None = None,
        right: Sequence[str] = (),
    ) -> None:
        self._titles = list(titles)
        self._styled: dict[str, str] = {}
        self._rows = [[self._text(value) for value in row] for row in rows]
        self._spare = spare
        self._wraps = wraps or self._titles[0]
        self._below = below
        self._right = frozenset(right)
        self._widths = {
            title: max([len(title), *(width_of(row[number]) for row in self._rows)])
            for number, title in enumerate(self._titles)
        }

    def print(self, screen: Console) -> None:
        """Print it, without any detour where there is no terminal: each row on a line of its own."""
        if screen.is_terminal:
            screen.print(self)
            return
        shown = [(self._titles.index(title), self._widths[title], title in self._right) for title in self._titles]
        gap = " " * _NARROW_GAP
        lines = [gap.join(_padded(row[at], width, right) for at, width, right in shown).rstrip() for row in self._all()]
        screen.file.write("\n".join(lines) + "\n")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.style import Style

        styles = {name: Style.parse(style) for name, style in (STYLES | self._styled).items()}
        head = Style(bold=True)
        for number, cells in enumerate(self._lines(options.max_width)):
            for text in cells:
                yield Segment(text, head if not number else styles.get(text.strip()))
            yield Segment.line()

    def _text(self, value: Any) -> str:
        """Return a cell as it is shown; a text of rich's keeps its style."""
        text = plain(value)
        if (style := getattr(value, "style", None)) and text:
            self._styled[text] = str(style)
        return text

    def _all(self) -> Iterator[_Row]:
        """Yield the titles and the rows, where a cell has one line only."""
        yield self._titles
        for row in self._rows:
            yield [cell.replace("\n", " ") for cell in row] if any("\n" in cell for cell in row) else row

    def _lines(self, limit: int) -> Iterator[list[str]]:
        """Yield lines that are no wider, each as its cells and the gaps between them."""
        shown = self._fitting(limit)
        below = self._titles.index(self._below) if self._below and self._below not in shown else None
        columns = [self._titles.index(title) for title in shown]
        widths = self._shares(shown, limit)
        yield from _row(self._titles, columns, widths, self._rights(shown))
        for row in self._rows:
            yield from _row(row, columns, widths, self._rights(shown))
            if below is not None and row[below]:
                for line in _folded(row[below], max(_LEAST // 3, limit - 2)):
                    yield ["  ", line]

    def _rights(self, shown: list[str]) -> list[bool]:
        return [title in self._right for title in shown]

    def _shares(self, shown: list[str], limit: int) -> list[int]:
        """Return the columns' widths: what is too much is taken from those that may be broken."""
        widths = [self._widths[title] for title in shown]
        excess = sum(widths) + _GAP * (len(shown) - 1) - limit
        breakable = [at for at, title in enumerate(shown) if self._breaks(title)] or [
            at for at, title in enumerate(shown) if title == self._wraps
        ]
        for at in sorted(breakable, key=lambda at: -widths[at]):
            least = min(widths[at], _LEAST) if self._breaks(shown[at]) else 1
            taken = max(0, min(excess, widths[at] - least))
            widths[at] -= taken
            excess -= taken
        return widths

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
        return sum(widths) + _GAP * (len(shown) - 1)

    def _breaks(self, title: str) -> bool:
        return title == self._below or (title == self._wraps and title != self._titles[0])


def _row(row: _Row, columns: list[int], widths: list[int], rights: list[bool]) -> Iterator[list[str]]:
    """Yield the lines of a row: one, unless a cell is wider than its column."""
    cells = [_folded(row[at], width) for at, width in zip(columns, widths, strict=True)]
    for number in range(max(len(cell) for cell in cells)):
        line: list[str] = []
        for cell, width, right in zip(cells, widths, rights, strict=True):
            line += [_padded(cell[number] if number < len(cell) else "", width, right), " " * _GAP]
        yield line[:-1]


def _folded(text: str, width: int) -> list[str]:
    if width_of(text) <= width and "\n" not in text:
        return [text]
    found: list[str] = []
    for line in text.split("\n"):
        found += textwrap.wrap(line, max(1, width), break_on_hyphens=False) or [""]
    return found


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks
