"""``ferroscope inventory``: what inspections found, each of them, and what changed between two."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from ferroscope.cli import lookup
from ferroscope.cli.client import Api, Json, node_path
from ferroscope.cli.exits import Exit
from ferroscope.cli.lookup import find, node_argument
from ferroscope.cli.output import Group, Output, table, with_api
from ferroscope.cli.text import ago
from ferroscope.core import values

_NUMBER: Final = re.compile(r"-?[0-9]+\Z", re.ASCII)
_REVISION = "REV is the UUID of an inspection or a number: 1 is the oldest that is kept, -1 the newest."


@click.group(cls=Group)
def inventory() -> None:
    """Show, save and compare what inspections found."""


def _revision_option(function: Any) -> Any:
    return click.option("--revision", metavar="REV", help=f"Another one than the newest. {_REVISION}")(function)


@inventory.command("list")
@node_argument
@with_api
def list_revisions(api: Api, out: Output, *, ident: str) -> None:
    """List the inspections of a node whose inventories are kept."""
    found = api.get(node_path(find(api, ident)["uuid"], "inventory", "revisions"))["revisions"]
    rows = [
        (one["number"], one["inspection"], one["state"], ago(one["finished_at"]), one["stored_in"]) for one in found
    ]
    out.show(found, lambda screen: screen.print(table(("REV", "INSPECTION", "STATE", "ENDED", "STORED IN"), rows)))
    if not found:
        out.say("no inventory of it is kept")


@inventory.command()
@node_argument
@_revision_option
@with_api
def show(api: Api, out: Output, *, ident: str, revision: str | None) -> None:
    """Show what the ramdisk found: a summary, or with -o json all of it."""
    from ferroscope.cli.node import columns

    found = lookup.fetch(api, find(api, ident), revision)
    out.show(found, lambda screen: columns.draw(screen, found["inventory"]))


@inventory.command()
@node_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_revision_option
@with_api
def save(api: Api, out: Output, *, ident: str, file: Path, revision: str | None) -> None:
    """Write inventory and plugin data to FILE, as JSON; 'ferroscope inspect reapply --data' reads it."""
    lookup.save(lookup.fetch(api, find(api, ident), revision), file, out)


@inventory.command(
    epilog=f"{_REVISION} Exit code 0: no differences. 1: there are some. 3: no such node or revision.",
)
@node_argument
@click.argument("before", metavar="[REV|NODE", required=False)
@click.argument("after", metavar="REV]", required=False)
@click.option("--revision", metavar="REV", help="With two nodes: the first one's revision; the newest by default.")
@click.option("--other-revision", metavar="REV", help="With two nodes: the second one's; the newest by default.")
@with_api
def diff(
    api: Api,
    out: Output,
    *,
    ident: str,
    before: str | None,
    after: str | None,
    revision: str | None,
    other_revision: str | None,
) -> None:
    """Compare two inventories of a node, by default the newest and the one before, or those of two nodes.

    Put -- before negative numbers.
    """
    node = find(api, ident)
    other = before if before is not None and after is None and not _is_revision(api, node, before) else None
    if other is not None:
        query = {"other": find(api, other)["uuid"], "before": revision or "-1", "after": other_revision or "-1"}
    elif revision or other_revision:
        raise click.UsageError("--revision and --other-revision are for two nodes: ferroscope inventory diff NODE NODE")
    else:
        query = {"before": before or "-2", "after": after or "-1"}
    found = api.get(node_path(node["uuid"], "inventory", "diff"), **query)
    changes = found["changes"]
    out.show(found, lambda screen: _draw(screen, found))
    raise click.exceptions.Exit(Exit.FAILURE if changes else Exit.OK)


def _is_revision(api: Api, node: Json, text: str) -> bool:
    """Whether it names one of the node's revisions, not another node."""
    if _NUMBER.match(text):
        return True
    if not values.is_uuid(text):
        return False
    known = api.get(node_path(node["uuid"], "inventory", "revisions"))["revisions"]
    return text.lower() in [one["inspection"] for one in known]


def _draw(screen: Any, found: Json) -> None:
    signs = {"added": "+", "removed": "-", "changed": "~", "replaced": "!"}
    for change in found["changes"]:
        screen.print(f"{signs[change['what']]} {change['text']}")
    if not found["changes"]:
        screen.print("no differences" if found.get("other") else "nothing changed")
