"""``ferroscope search``: find nodes by their hardware, by what they are and by any word."""

from __future__ import annotations

from typing import Final

import click

from ferroscope.cli.client import Api, ApiError, Json
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.node import columns
from ferroscope.cli.output import Output, table, with_api_and_lists
from ferroscope.core.values import natural

_TITLES: Final = frozenset(
    {
        "NAME",
        "STATE",
        "MAINT",
        "MODEL",
        "SERIAL",
        "CPUS",
        "MEMORY",
        "DISKS",
        "VENDOR",
        "CPU",
        "GPUS",
        "NICS",
        "FIRMWARE",
        "UUID",
    }
)
_COLUMNS: Final = tuple(column for column in columns.NODES if column.title in _TITLES)
_SPARE: Final = ("MAINT", "DISKS", "CPUS", "STATE", "MEMORY", "SERIAL", "MODEL")


@click.command(
    epilog="Examples: 'memory_gb >= 512 and nic.speed >= 25G', 'nic[speed >= 25G and vendor == mellanox]', "
    "'count(disk[type == nvme]) >= 4 and not has gpu', 'state == available and product ~ \"*r740*\"', 9YPX7M2. "
    "Exit code 0: some were found. 1: none. 2: the query cannot be understood."
)
@click.argument("query", nargs=-1)
@click.option("--limit", type=click.IntRange(min=1), help="At the most so many nodes.")
@click.option("--fields", "explain", is_flag=True, help="List the fields of queries instead.")
@with_api_and_lists
def search(api: Api, out: Output, *, query: tuple[str, ...], limit: int | None, explain: bool) -> None:
    """Find the nodes that QUERY fits: by their last inventory, by what they are, or by a word.

    A condition is a FIELD, a comparison (==, !=, <, <=, >, >=, ~ with * and ?, in) and a value with its unit;
    conditions are joined by and, or, not and parentheses. A word alone is looked for everywhere.
    """
    if explain:
        _list_fields(out)
        return
    if not query:
        raise click.UsageError("no query given; an example: ferroscope search 'memory_gb >= 512'")
    try:
        found = list(api.pages("/v1/search", "nodes", q=" ".join(query)))
    except ApiError as exc:
        if exc.status != 400:
            raise
        raise Failure(exc.message, exit_code=Exit.USAGE, advice="list the fields: ferroscope search --fields") from None
    found.sort(key=lambda node: natural(label(node)))
    shown: list[Json] = found[:limit]
    columns.show(out, shown, _COLUMNS, _SPARE, below=None)
    if not found:
        out.say("No matching nodes.")
        raise click.exceptions.Exit(Exit.FAILURE)
    more = f" of {len(found):,}" if len(shown) < len(found) else ""
    out.note(f"{len(shown):,}{more} {'node' if len(found) == 1 else 'nodes'}")


def _list_fields(out: Output) -> None:
    from ferroscope.hardware.expressions import fields

    known = fields()
    names = ("field", "type", "unit", "about")
    titles = [name.upper() for name in names]
    out.show([dict(zip(names, one, strict=True)) for one in known], lambda screen: screen.print(table(titles, known)))
