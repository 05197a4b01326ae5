"""NODE on the command line: a name, a UUID, a MAC address or a BMC address identifies a node.

The service looks up names, UUIDs and MAC addresses. It cannot search by BMC address, so that is searched for here, in
the ``…_address`` fields of every node's ``driver_info``.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from ferroscope_client.cli.output import STYLES, Output, plain
from ferroscope_client.cli.text import short, width_of
from ferroscope_client.client import Client, Json, ServiceError, node_path
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.private_file import open_private
from ferroscope_client.core.values import many
from ferroscope_client.enrollment.printed import json_text
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from ferroscope_client.core.finding import Finding


NODE_HELP: Final = "NODE is a name, a UUID, a MAC address or a BMC address."

_MAX_COMPLETIONS: Final = 200


def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return matching node names for shell completion; none if the service does not respond quickly."""
    from ferroscope_client.client import connect
    from ferroscope_client.core.values import natural

    def read_option(option: str, variable: str) -> Any:
        contexts = (ctx, ctx.parent, ctx.find_root())
        return next(
            (parameter for at in contexts if at and (parameter := at.params.get(option))), os.environ.get(variable)
        )

    try:
        api = connect(
            read_option("url", "FERROSCOPE_URL"),
            cloud=read_option("cloud", "OS_CLOUD"),
            insecure_http=bool(read_option("insecure_http", "FERROSCOPE_INSECURE_HTTP")),
            patience=0.0,
            seconds=2.0,
        )
        names = [node["name"] for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name"))]
    except Failure:
        return []
    return sorted((name for name in names if name and name.startswith(incomplete)), key=natural)[:_MAX_COMPLETIONS]


node_argument = click.argument("ident", metavar="NODE", shell_complete=complete_names)

_ENOUGH: Final = ("uuid", "name", "provision_state")


def find(api: Client, ident: str, *, fields: tuple[str, ...] | None = _ENOUGH) -> Json:
    """Return the node that ``ident`` identifies, with these fields (None: all); ``Failure``."""
    mac = mac_addresses.written_mac(ident)
    if mac is not None and ":" in ident:
        return _get(api, _of_mac(api, mac) or _not_found(ident, "no port has this MAC address"), fields)
    try:
        return _get(api, ident, fields)
    except ServiceError as exc:
        if exc.status not in (400, 404):
            raise
    uuid = _of_mac(api, mac) if mac is not None else _of_bmc(api, ident)
    return _get(api, uuid or _not_found(ident, "no node has this name, UUID, MAC or BMC address"), fields)


def label(node: Json) -> str:
    """Return the node's name, or its UUID if it has no name."""
    return str(node.get("name") or node["uuid"])


def _get(api: Client, ident: str, fields: tuple[str, ...] | None) -> Json:
    return api.get(node_path(ident), fields=fields)


def _not_found(ident: str, why: str) -> str:
    raise Failure(
        f"node {short(ident)} not found: {why}",
        exit_code=Exit.NOT_FOUND,
        advice="list the nodes: ferroscope node list",
    )


def _of_mac(api: Client, mac: str) -> str | None:
    ports = api.get("/v1/ports", address=mac, fields=("node_uuid",))["ports"]
    return str(ports[0]["node_uuid"]) if ports else None


def _of_bmc(api: Client, ident: str) -> str | None:
    if "." not in ident and ":" not in ident:
        return None
    nodes = api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "driver_info"))
    matching = [node for node in nodes if ident.lower() in addresses(node.get("driver_info") or {})]
    if len(matching) > 1:
        names = ", ".join(label(node) for node in matching[:5])
        more = f" and {len(matching) - 5} more" if len(matching) > 5 else ""
        raise Failure(
            f"ambiguous BMC address {ident}: {many(len(matching), 'node')} have it ({names}{more})",
            exit_code=Exit.CONFLICT,
            advice="use the node's name, UUID or MAC address",
        )
    return str(matching[0]["uuid"]) if matching else None


def list_refused_callers(api: Client, *, since: str = "") -> list[Json]:
    """Return the unknown machines whose calls were refused since that time; none if the caller may not see them."""
    try:
        callers = api.get("/v1/refused_callers")["refused_callers"]
    except ServiceError as exc:
        if exc.status != 403:
            raise
        return []
    return [caller for caller in callers if caller["called_at"] >= since]


def list_obstacles(api: Client, nodes: Sequence[Json]) -> list[Finding | None]:
    """Return what keeps the service from continuing with each of these nodes, if it is readable."""
    from ferroscope_client.core.obstacles import find_obstacle

    try:
        status = api.get("/v1/status")
    except Failure:
        return [None] * len(nodes)
    return [find_obstacle(node, status) for node in nodes]


def addresses(driver_info: dict[str, Any]) -> set[str]:
    """Return every spelling of the BMC addresses in ``driver_info``: whole, with port, host alone."""
    return set(_spellings(driver_info))


def _spellings(driver_info: dict[str, Any]) -> Iterator[str]:
    for name, value in driver_info.items():
        if not name.endswith("_address") or not isinstance(value, str):
            continue
        text = value.lower()
        yield text
        if text.count(":") > 1 and "/" not in text and "]" not in text:
            continue  # an IPv6 address without a port
        try:
            parts = urlsplit(text if "//" in text else f"//{text}")
        except ValueError:
            continue
        yield parts.netloc.rpartition("@")[2]
        yield parts.hostname or text


# Tables that stay readable on a narrow terminal: whole columns are dropped instead of wrapping all of them.
#
# If the columns do not fit, those in ``spare`` are dropped one after the other; a text such as an error is moved below
# its row instead. Only designated columns are wrapped. For 10,000 rows, lines are composed from plain strings.

_GAP_COLUMNS: Final = 3
_NARROW_GAP: Final = 2
_MIN_BROKEN_COLUMNS: Final = 30
"""Minimum width of a wrapped column."""

_Row = list[str]


class Listing:
    """A table for a console of any width.

    ``spare`` are the columns to drop, in this order; ``below`` is the one of them that is then printed below its row.
    ``wraps`` is the column that may be wrapped, by default the first; so may ``below``. All others have one line.
    ``right`` are the right-aligned columns.
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
        """Print the table; without a terminal, directly and with one line per row."""
        if screen.is_terminal:
            screen.print(self)
            return
        shown = [(self._titles.index(title), self._widths[title], title in self._right) for title in self._titles]
        gap = " " * _NARROW_GAP
        lines = [gap.join(_pad(row[at], width, right) for at, width, right in shown).rstrip() for row in self._all()]
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
        """Return the text of a cell; keep the style of rich's texts."""
        text = plain(value)
        if (style := getattr(value, "style", None)) and text:
            self._styled[text] = str(style)
        return text

    def _all(self) -> Iterator[_Row]:
        """Yield the titles and the rows, with line breaks in cells replaced."""
        yield self._titles
        for row in self._rows:
            yield [cell.replace("\n", " ") for cell in row] if any("\n" in cell for cell in row) else row

    def _lines(self, limit: int) -> Iterator[list[str]]:
        """Yield lines within the width, each as a list of cells and gaps."""
        shown = self._fitting(limit)
        below = self._titles.index(self._below) if self._below and self._below not in shown else None
        columns = [self._titles.index(title) for title in shown]
        widths = self._shares(shown, limit)
        yield from _row(self._titles, columns, widths, self._rights(shown))
        for row in self._rows:
            yield from _row(row, columns, widths, self._rights(shown))
            if below is not None and row[below]:
                for line in _fold(row[below], max(_MIN_BROKEN_COLUMNS // 3, limit - 2)):
                    yield ["  ", line]

    def _rights(self, shown: list[str]) -> list[bool]:
        return [title in self._right for title in shown]

    def _shares(self, shown: list[str], limit: int) -> list[int]:
        """Return the widths of the columns; columns that may be wrapped are reduced to fit."""
        widths = [self._widths[title] for title in shown]
        excess = sum(widths) + _GAP_COLUMNS * (len(shown) - 1) - limit
        breakable = [at for at, title in enumerate(shown) if self._breaks(title)] or [
            at for at, title in enumerate(shown) if title == self._wraps
        ]
        for at in sorted(breakable, key=lambda at: -widths[at]):
            least = min(widths[at], _MIN_BROKEN_COLUMNS) if self._breaks(shown[at]) else 1
            taken = max(0, min(excess, widths[at] - least))
            widths[at] -= taken
            excess -= taken
        return widths

    def _fitting(self, width: int) -> list[str]:
        """Return the titles of the columns that fit."""
        shown = list(self._titles)
        for title in self._spare:
            if self._min_width(shown) <= width:
                break
            shown.remove(title)
        return shown

    def _min_width(self, shown: list[str]) -> int:
        widths = (
            min(self._widths[title], _MIN_BROKEN_COLUMNS) if self._breaks(title) else self._widths[title]
            for title in shown
        )
        return sum(widths) + _GAP_COLUMNS * (len(shown) - 1)

    def _breaks(self, title: str) -> bool:
        return title == self._below or (title == self._wraps and title != self._titles[0])


def _row(row: _Row, columns: list[int], widths: list[int], rights: list[bool]) -> Iterator[list[str]]:
    """Yield the lines of a row: one, unless a cell is wider than its column."""
    cells = [_fold(row[at], width) for at, width in zip(columns, widths, strict=True)]
    for number in range(max(len(cell) for cell in cells)):
        line: list[str] = []
        for cell, width, right in zip(cells, widths, rights, strict=True):
            line += [_pad(cell[number] if number < len(cell) else "", width, right), " " * _GAP_COLUMNS]
        yield line[:-1]


def _fold(text: str, width: int) -> list[str]:
    if width_of(text) <= width and "\n" not in text:
        return [text]
    folded: list[str] = []
    for line in text.split("\n"):
        folded += textwrap.wrap(line, max(1, width), break_on_hyphens=False) or [""]
    return folded


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


# The stored inventory of a node with the plugin data.


def fetch(api: Client, node: Json, revision: str | None = None) -> Json:
    """Return the node's newest inventory, or that of a revision; ``Failure`` if there is none.

    If no inspection has finished, return the data of the last failed one, as the ramdisk sent it.
    """
    if revision is None:
        try:
            return api.get(node_path(node["uuid"], "inventory"))
        except ServiceError as exc:
            if exc.status != 404:
                raise
            failed = _fetch_unprocessed(api, node)
        if failed is not None:
            return failed
    try:
        inventory: Json = api.get(node_path(node["uuid"], "inventory"), revision=revision)
    except ServiceError as exc:
        if exc.status != 404:
            raise
        name = label(node)
        if revision is not None:
            lacking, advice = f"such inventory: {exc.message}", f"ferroscope inventory list {name}"
        else:
            lacking, advice = "inventory: no inspection has finished", f"inspect it: ferroscope inspect {name} --watch"
            if node.get("provision_state") == "inspect failed":
                advice = f"see why the last one failed: ferroscope node timeline {name}"
        raise Failure(f"{name} has no {lacking}", exit_code=Exit.NOT_FOUND, advice=advice) from None
    return inventory


def _fetch_unprocessed(api: Client, node: Json) -> Json | None:
    """Return the newest inventory of a failed inspection, with a message; None if there is none."""
    try:
        inventory = api.get(node_path(node["uuid"], "inventory"), revision="-1")
    except ServiceError:
        return None
    message = "no inspection has finished; showing the data of the failed one, as the ramdisk sent it"
    click.echo(f"{message}: ferroscope node timeline {label(node)}", err=True)
    return inventory


def save(inventory: Json, file: Path, out: Output) -> None:
    """Write it as JSON, readable by ``ferroscope inspect reapply --data``; ``Failure``."""
    try:
        with open_private(file, "w") as output:
            output.write(json_text(inventory) + "\n")
    except OSError as exc:
        raise Failure(f"cannot write {file}: {exc.strerror}") from None
    out.say(f"saved to {file}")
