"""``ferroscope status``: problems first, then nodes, queue, members, PXE filters, leases.

``ferroscope driver``: the enabled drivers, and their properties.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ferroscope_client.cli.output import Group, Output, console, key_values, table, with_api
from ferroscope_client.cli.text import clean, moment, span
from ferroscope_client.client import Client, ServiceError, segment
from ferroscope_client.core.states import Provision
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_WATCH_EVERY: Final = 1.0
# Loops that differ only by their number are shown together.
_NUMBER: Final = re.compile(r"-\d+$")
# The part of a summary that grows while the problem stays the same.
_AGE: Final = re.compile(r"\d{1,9}(?:\.\d)? s\b")


@click.command(epilog="Exit code 1: there is a problem. 5: the service cannot be reached.")
@click.option("-w", "--watch", is_flag=True, help="Refresh continuously, until Ctrl-C.")
@with_api
def status(api: Client, out: Output, *, watch: bool) -> None:
    """Show the status of the service: problems, nodes by state, queue, members, leases."""
    if watch and out.for_programs:
        raise click.UsageError("--watch cannot be combined with -o json or yaml")
    if watch:
        _watch(api)
    data = fetch(api)
    out.show(data, lambda screen: _print(screen, data))
    if any(problem["verdict"] == "wrong" for problem in data["problems"]):
        raise click.exceptions.Exit(Exit.FAILURE)


def fetch(api: Client) -> dict[str, Any]:
    """Return the service's status with its URL."""
    return {"url": api.url, "api_version": _version(api), **api.get("/v1/status")}


def _version(api: Client) -> str:
    """Return the newest version of the Bare Metal API; ``Failure`` if the server is not one."""
    try:
        return str(api.get("/v1/")["version"]["version"])
    except (KeyError, TypeError):
        raise Failure(
            f"{api.url} is not the URL of a Bare Metal API",
            advice="its default port is 6385; 5050 is the port of the Introspection API",
        ) from None


def sections(data: dict[str, Any]) -> Iterator[tuple[str, RenderableType]]:
    """Yield the sections of the status with their names, the most important one first."""
    service = f"{data['url']} (API {data['api_version']})"
    nodes, database = data["nodes"], data["database"]
    described = f"{database['kind']}, schema {database['schema']}, clock skew {abs(database['clock_skew']):.2f} s"
    yield "", key_values({"Service": service, "Database": described, "Nodes": sum(nodes.values())})
    for title, verdicts in (("PROBLEM", ("wrong",)), ("NOTE", ("note", "ok"))):
        rows = [
            (problem["summary"], problem["advice"]) for problem in data["problems"] if problem["verdict"] in verdicts
        ]
        if rows:
            yield title, table((title, "WHAT TO DO"), rows)
    if nodes:
        yield (
            "STATE",
            table(("STATE", "NODES"), [(str(state), nodes[state]) for state in Provision if nodes.get(state)]),
        )
    if data["queue"]:
        queue = [(row["event"], row["waiting"], row["claimed"], span(row["oldest"])) for row in data["queue"]]
        yield "REQUEST", table(("REQUEST", "WAITING", "RUNNING", "OLDEST"), queue)
    if data["members"]:
        yield "MEMBER", table(("MEMBER", ""), [row for member in data["members"] for row in _member(member)])
    if data["pxe_filters"]:
        yield (
            "PXE FILTER",
            table(
                ("PXE FILTER", ""),
                [(pxe_filter["network"], _pxe_filter(pxe_filter)) for pxe_filter in data["pxe_filters"]],
            ),
        )
    if data["leases"]:
        leases = [(lease["name"], lease["holder"], lease["epoch"], _remaining(lease)) for lease in data["leases"]]
        if more := data["leases_total"] - len(leases):
            leases.append((f"... {more} more", None, None, None))
        yield "LEASE", table(("LEASE", "HOLDER", "EPOCH", "EXPIRES IN"), leases)


def _print(screen: Console, data: dict[str, Any]) -> None:
    for name, part in sections(data):
        if name:
            screen.print()
        screen.print(part)


def _member(member: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the member's own row, and one for each of its loops; loops with the same status share one."""
    silent = member["silent_for"]
    heartbeat = "" if silent is None else f", last heartbeat {silent:.1f} s ago"
    yield member["name"], f"{'alive' if member['alive'] else 'dead; started'} {_for(member)}{heartbeat}"
    same = Counter((_NUMBER.sub("", loop), text) for loop, text in member["loops"].items())
    for loop, text in member["loops"].items():
        kind = _NUMBER.sub("", loop)
        number = same.pop((kind, text), 0)
        if number:
            yield f"  {loop}" if number == 1 else f"  {kind} ({number} threads)", text


def _for(member: dict[str, Any]) -> str:
    return f"for {span(member['age'])}" if member["alive"] else f"{span(member['age'])} ago"


def _remaining(lease: dict[str, Any]) -> str | None:
    return None if lease["holder"] is None else f"{lease['remaining']:.1f} s"


def _pxe_filter(seen: dict[str, Any]) -> str:
    if not seen["open"]:
        return f"not open on any host; last epoch: {seen['epoch']}"
    return (
        f"open on {seen['host']} in epoch {seen['epoch']} for another {seen['remaining']:.1f} s; "
        f"{seen['allowed']} MACs allowed, {seen['denied']} denied, changes up to {seen['applied']} applied"
    )


def fit_sections(screen: Console, data: dict[str, Any]) -> RenderableType:
    """Return the sections that fit on the terminal, and the names of the others."""
    from rich import console as rich_console

    parts: list[RenderableType] = []
    hidden: list[str] = []
    left = screen.height - 1
    for name, part in sections(data):
        lines = len(screen.render_lines(part, pad=False)) + bool(name)
        if hidden or (lines > left and name):
            hidden.append(name)
            continue
        parts += ["", part] if name else [part]
        left -= lines
    if hidden:
        parts.append(f"... and {', '.join(hidden)}; enlarge the terminal, or run: ferroscope status")
    return rich_console.Group(*parts)


def _watch(api: Client) -> NoReturn:
    """Refresh the status on a terminal; otherwise print a line for each change of the counts and the problems."""
    screen = console()
    if screen.is_terminal:
        from rich.live import Live

        with Live(fit_sections(screen, fetch(api)), console=screen, auto_refresh=False) as live:
            while True:
                time.sleep(_WATCH_EVERY)
                live.update(fit_sections(screen, fetch(api)), refresh=True)
    previous: set[str] = set()
    while True:
        data = fetch(api)
        nodes = data["nodes"]
        counts = "  ".join(f"{nodes[state]} {state}" for state in Provision if nodes.get(state)) or "no nodes"
        summaries = [problem["summary"] for problem in data["problems"]] or ["no problems"]
        shown = {_AGE.sub("", line): line for line in (counts, *summaries)}
        for line in (line for key, line in shown.items() if key not in previous):
            click.echo(f"{moment(datetime.now(UTC))}  {clean(line)}")
        previous = set(shown)
        time.sleep(_WATCH_EVERY)


# ``ferroscope driver``


@click.group(cls=Group)
def driver() -> None:
    """List BMC drivers and their properties."""


@driver.command("list")
@with_api
def list_drivers(api: Client, out: Output) -> None:
    """List the enabled drivers."""
    drivers = api.get("/v1/drivers", detail=True)["drivers"]
    rows = [
        (
            driver["name"],
            ", ".join(driver["enabled_inspect_interfaces"]),
            ", ".join(driver["enabled_boot_interfaces"]) or None,
            ", ".join(driver["hosts"]) or None,
        )
        for driver in drivers
    ]
    titles = ("NAME", "INSPECT INTERFACES", "BOOT INTERFACES", "WORKERS ON")
    out.show(drivers, lambda screen: screen.print(table(titles, rows)))


@driver.command("properties")
@click.argument("name", metavar="DRIVER")
@with_api
def properties(api: Client, out: Output, *, name: str) -> None:
    """Show a driver's properties in driver_info; set them with 'ferroscope node set NODE -d PROPERTY=VALUE'."""
    try:
        meanings = api.get(f"/v1/drivers/{segment(name)}/properties")
    except ServiceError as exc:
        if exc.status != 404:
            raise
        advice = "list the enabled drivers: ferroscope driver list"
        raise Failure(f"driver {name} is not enabled", exit_code=Exit.NOT_FOUND, advice=advice) from None
    rows = list(meanings.items())
    out.show(meanings, lambda screen: screen.print(table(("PROPERTY", "MEANING"), rows)))
