"""``ferroscope audit``: who called the API, and what it changed."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from ferroscope_client.cli.output import Output, table, with_api
from ferroscope_client.cli.text import clean, moment
from ferroscope_client.client import Client

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MAX_PAGE_SIZE: Final = 1000


class TimeSpan(click.ParamType):  # type: ignore[type-arg]  # generic since 8.2 only
    """A time span such as 90s, 15m, 1h or 7d, in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if match is None:
            self.fail(
                f"{value!r} is not a time span; expected a number and a unit, such as 90s, 15m, 1h or 7d", param, ctx
            )
        return int(match[1]) * _UNITS[match[2]]


@click.command()
@click.option("--node", metavar="NODE", help="Only changes of this node; name a deleted node by its UUID.")
@click.option("--user", metavar="NAME", help="Only calls of this user, token or certificate.")
@click.option("--since", type=TimeSpan(), metavar="SPAN", help="Only calls of this time span, such as 1h or 7d.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Number of events.")
@with_api
def audit(api: Client, out: Output, *, node: str | None, user: str | None, since: int | None, limit: int) -> None:
    """Show who changed what, newest first: successful changes, and calls that were refused."""
    events: list[Any] = []
    before: int | None = None
    while len(events) < limit:
        size = min(limit - len(events), _MAX_PAGE_SIZE)
        page = api.get("/v1/audit", node=node, user=user, since=since, before=before, limit=size)
        events += page["events"]
        before = page.get("next")
        if before is None:
            break
    out.show({"events": events}, lambda screen: screen.print(table(_TITLES, map(_row, events))))


_TITLES: Final = ("AT", "USER", "FROM", "CALL", "TARGET", "STATUS", "REQUEST")


def _row(event: Any) -> tuple[Any, ...]:
    user = event["user"] if event["project"] is None else f"{event['user']} ({event['project']})"
    cells = (event[name] for name in ("source", "call", "target", "status", "request_id"))
    return tuple(clean(cell) if isinstance(cell, str) else cell for cell in (moment(event["at"]), user, *cells))
