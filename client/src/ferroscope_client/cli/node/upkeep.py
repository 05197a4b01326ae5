"""``ferroscope node note``: notes on nodes; and the planned end of a maintenance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import click

from ferroscope_client.cli.lookup import complete_names, find
from ferroscope_client.cli.output import Output, table, with_api
from ferroscope_client.cli.text import moment
from ferroscope_client.client import Client, node_path

_UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def until_when(_context: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """Return the time; a number with a unit is counted from now."""
    if text is None:
        return None
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in _UNITS and len(text) < 7:
        end = datetime.now(UTC) + timedelta(seconds=int(text[:-1]) * _UNITS[text[-1]])
        return end.isoformat(timespec="seconds")
    try:
        return datetime.fromisoformat(text).isoformat()
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a duration such as 8h or 3d nor a time in ISO 8601") from None


@click.command("note")
@click.argument("ident", metavar="NODE", shell_complete=complete_names)
@click.argument("text", nargs=-1)
@click.option("--delete", type=click.IntRange(min=1), metavar="NUMBER", help="Delete the note with this number.")
@with_api
def note(api: Client, out: Output, *, ident: str, text: tuple[str, ...], delete: int | None) -> None:
    """Show the notes on a node, or add the note TEXT for other operators."""
    node = find(api, ident, fields=("uuid", "name", "notes"))
    if delete is not None:
        api.delete(node_path(node["uuid"], "notes", str(delete)))
    elif text:
        api.post(node_path(node["uuid"], "notes"), {"text": " ".join(text)})
    if delete is not None or text:
        node = find(api, node["uuid"], fields=("uuid", "name", "notes"))
    rows = [(one["number"], moment(one["at"]), one["by"], one["text"]) for one in node["notes"]]
    titles = ("NUMBER", "TIME", "BY", "NOTE")
    out.show(node["notes"], lambda screen: screen.print(table(titles, rows, wraps=("NOTE",)) if rows else "no notes"))
