"""``ferroscope search``: find nodes by their hardware."""

from __future__ import annotations

from typing import Any

import click

from ferroscope.cli.client import Api, ApiError
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.listing import Listing
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output, table, with_api


@click.command(
    epilog="Examples: 'memory_gb >= 512 and nic.speed >= 25G', 'nic[speed >= 25G and vendor == mellanox]', "
    "'count(disk[type == nvme]) >= 4 and not has gpu', 'disk.serial == S3BSNX0J800427', 'product ~ \"*r740*\"'. "
    "Exit code 0: some were found. 1: none, or the query cannot be understood."
)
@click.argument("query", required=False)
@click.option("--limit", type=click.IntRange(min=1), help="At the most so many nodes.")
@click.option("--fields", "explain", is_flag=True, help="List the fields of queries instead.")
@with_api
def search(api: Api, out: Output, *, query: str | None, limit: int | None, explain: bool) -> None:
    """Find the nodes whose last inventory fits QUERY.

    A condition is a FIELD, a comparison (==, !=, <, <=, >, >=, ~ with * and ?, in) and a value with its unit;
    conditions are joined by and, or, not and parentheses.
    """
    if explain:
        _list_fields(out)
        return
    if not query:
        raise click.UsageError("what shall be searched for? An example: ferroscope search 'memory_gb >= 512'")
    try:
        found = list(api.pages("/v1/search", "nodes", limit=limit, q=query))
    except ApiError as exc:
        if exc.status != 400:
            raise
        raise Failure(exc.message, advice="list the fields: ferroscope search --fields") from None
    rows = [
        (
            label(node),
            node["product"],
            _gib(node["memory_gb"]),
            node["cpus"],
            node["cpu"],
            _size(node["storage"]),
            node["serial"],
        )
        for node in found
    ]
    titles = ("NAME", "PRODUCT", "MEMORY", "CPUS", "CPU", "DISKS", "SERIAL")
    spare = ("SERIAL", "CPUS", "CPU", "DISKS", "MEMORY", "PRODUCT")
    out.show(found, lambda screen: screen.print(Listing(titles, rows, spare=spare)))
    if not found:
        out.say("no node fits")
        raise click.exceptions.Exit(Exit.FAILURE)


def _list_fields(out: Output) -> None:
    from ferroscope.domain.search import fields

    known = fields()
    names = ("field", "type", "unit", "about")
    titles = [name.upper() for name in names]
    out.show([dict(zip(names, one, strict=True)) for one in known], lambda screen: screen.print(table(titles, known)))


def _gib(value: float | None) -> str | None:
    return None if value is None else f"{value:g} GiB"


def _size(value: Any) -> str | None:
    from ferroscope.domain.diff import shown

    return None if value is None else shown("node", "storage", value)
