"""``ferroscope driver list | properties``: the drivers that are enabled, and what each of them reads of a node."""

from __future__ import annotations

import click

from ferroscope.cli.client import Api, ApiError, segment
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Group, Output, table, with_api


@click.group(cls=Group)
def driver() -> None:
    """Show how BMCs can be spoken to."""


@driver.command("list")
@with_api
def list_drivers(api: Api, out: Output) -> None:
    """List the drivers that are enabled."""
    found = api.get("/v1/drivers", detail=True)["drivers"]
    rows = [
        (
            one["name"],
            ", ".join(one["enabled_inspect_interfaces"]),
            ", ".join(one["enabled_boot_interfaces"]) or None,
            ", ".join(one["hosts"]) or None,
        )
        for one in found
    ]
    titles = ("NAME", "INSPECT INTERFACES", "BOOT INTERFACES", "WORKERS ON")
    out.show(found, lambda screen: screen.print(table(titles, rows)))


@driver.command("properties")
@click.argument("name", metavar="DRIVER")
@with_api
def properties(api: Api, out: Output, *, name: str) -> None:
    """Show what a driver reads in a node's driver_info: 'ferroscope node set NODE -d PROPERTY=VALUE' sets it."""
    try:
        found = api.get(f"/v1/drivers/{segment(name)}/properties")
    except ApiError as exc:
        if exc.status != 404:
            raise
        advice = "see what is enabled: ferroscope driver list"
        raise Failure(f"there is no driver {name} here", exit_code=Exit.NOT_FOUND, advice=advice) from None
    rows = list(found.items())
    out.show(found, lambda screen: screen.print(table(("PROPERTY", "MEANING"), rows)))
