"""``--watch`` of ``node list`` and ``node show``: nodes again and again, until Ctrl-C.

On a terminal the table is refreshed. Elsewhere, and for programs, a node is printed when it is first seen and whenever
it has changed, so that a script can read what happens line by line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NoReturn

import click

from ferroscope.cli.client import Json
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output, console
from ferroscope.cli.text import clean, moment

if TYPE_CHECKING:
    from rich.console import RenderableType

_EVERY: Final = 1.0
# Seconds for which the service may be away.
_PATIENCE: Final = 60.0
DELETED: Final = "deleted"

Fetch = Callable[[], list[Json]]


def follow(out: Output, fetch: Fetch, drawn: Callable[[list[Json]], RenderableType]) -> NoReturn:
    """Show what ``fetch`` returns; ``drawn`` makes a table of it."""
    screen = console()
    if out.for_programs or not screen.is_terminal:
        _print_changes(out, fetch)
    from rich.live import Live

    with Live(drawn(fetch()), console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            time.sleep(_EVERY)
            live.update(drawn(_patiently(fetch)), refresh=True)


def _print_changes(out: Output, fetch: Fetch) -> NoReturn:
    known: dict[str, Json] = {}
    while True:
        found = {node["uuid"]: node for node in _patiently(fetch)}
        for uuid, node in found.items():
            if known.get(uuid) != node:
                _print(out, node)
        for uuid in known.keys() - found.keys():
            _print(out, known[uuid] | {"provision_state": DELETED})
        known = found
        time.sleep(_EVERY)


def _print(out: Output, node: Json) -> None:
    words = (moment(datetime.now(UTC)), label(node), node.get("provision_state"), node.get("last_error"))
    line = "  ".join(str(word) for word in words if word)
    out.show(node, lambda _screen: click.echo(clean(line)))


def _patiently(fetch: Fetch) -> list[Json]:
    """Return the nodes; while the service cannot be reached, try again for a minute."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return fetch()
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE or time.monotonic() > until:
                raise
        time.sleep(_EVERY)
