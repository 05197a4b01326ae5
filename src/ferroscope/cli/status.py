"""``ferroscope status``: what is wrong first, then nodes, queue, members, leases, PXE filters, recent failures."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ferroscope.cli.client import Api
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output, console, key_values, table, with_api
from ferroscope.cli.text import parse, span
from ferroscope.core.states import Provision

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_WATCH_EVERY: Final = 1.0
_FIELDS: Final = ("uuid", "name", "provision_state", "provision_updated_at", "power_state", "last_error")
# Loops that differ by their number only are shown together.
_NUMBER: Final = re.compile(r"-\d+$")


@click.command(epilog="Exit code 1: there is a problem. 5: the service cannot be reached.")
@click.option("--failures", type=click.IntRange(min=0), default=5, show_default=True, help="Show the newest failures.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@with_api
def status(api: Api, out: Output, *, failures: int, watch: bool) -> None:
    """Show how the service is doing: problems, nodes by state, the newest failures, queue, members, leases."""
    if watch and out.for_programs:
        raise click.UsageError("--watch is for people; programs should ask again")
    if watch:
        _watch(api, failures)
    data = fetch(api, failures)
    out.show(data, lambda screen: _print(screen, data))
    if any(problem["verdict"] == "wrong" for problem in data["problems"]):
        raise click.exceptions.Exit(Exit.FAILURE)


def fetch(api: Api, failures: int) -> dict[str, Any]:
    """Return what the API says of the service, where it is, and the newest ``failures`` nodes that failed."""
    version = _version(api)
    status: dict[str, Any] = api.get("/v1/status")
    newest: list[dict[str, Any]] = []
    if failures and status["nodes"].get(Provision.INSPECT_FAILED):
        order = {"sort_key": "provision_updated_at", "sort_dir": "desc"}
        found = api.pages(
            "/v1/nodes", "nodes", limit=failures, provision_state=Provision.INSPECT_FAILED, fields=_FIELDS, **order
        )
        newest = [{name: node[name] for name in _FIELDS} for node in found]
    return {
        "url": api.url,
        "api_version": version,
        **status,
        "failures": newest,
    }


def _version(api: Api) -> str:
    """Return the greatest version of the Bare Metal API there; ``Failure`` where another one answers."""
    try:
        return str(api.get("/v1/")["version"]["version"])
    except (KeyError, TypeError):
        raise Failure(
            f"{api.url} answers, but not as the Bare Metal API does",
            advice="it listens on port 6385 unless configured otherwise; 5050 is the Introspection API's",
        ) from None


def sections(data: dict[str, Any]) -> Iterator[tuple[str, RenderableType]]:
    """Yield the parts of the status as people see it, the most important one first, each with its name."""
    service = f"{data['url']} (API {data['api_version']})"
    nodes, database = data["nodes"], data["database"]
    told = f"{database['kind']}, schema {database['schema']}, clock skew {abs(database['clock_skew']):.2f} s"
    yield "", key_values({"Service": service, "Database": told, "Nodes": sum(nodes.values())})
    if data["problems"]:
        yield "PROBLEM", table(("PROBLEM", "WHAT TO DO"), [(one["summary"], one["advice"]) for one in data["problems"]])
    if nodes:
        yield (
            "STATE",
            table(("STATE", "NODES"), [(str(state), nodes[state]) for state in Provision if nodes.get(state)]),
        )
    if data["failures"]:
        rows = [(label(node), _age(node["provision_updated_at"]), node["last_error"]) for node in data["failures"]]
        yield "FAILED", table(("FAILED", "AGE", "ERROR"), rows)
    if data["queue"]:
        queue = [(row["event"], row["waiting"], row["claimed"], span(row["oldest"])) for row in data["queue"]]
        yield "REQUEST", table(("REQUEST", "WAITING", "RUNNING", "OLDEST"), queue)
    if data["members"]:
        yield "MEMBER", table(("MEMBER", ""), [row for member in data["members"] for row in _member(member)])
    if data["pxe_filters"]:
        yield (
            "PXE FILTER",
            table(("PXE FILTER", ""), [(one["network"], _pxe_filter(one)) for one in data["pxe_filters"]]),
        )
    if data["leases"]:
        leases = [(one["name"], one["holder"], one["epoch"], _remaining(one)) for one in data["leases"]]
        yield "LEASE", table(("LEASE", "HOLDER", "EPOCH", "EXPIRES IN"), leases)


def _print(screen: Console, data: dict[str, Any]) -> None:
    for name, part in sections(data):
        if name:
            screen.print()
        screen.print(part)


def _member(member: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the member's own row, and one for each of its loops; those that do the same share one."""
    silent = member["silent_for"]
    heard = "" if silent is None else f", last heartbeat {silent:.1f} s ago"
    yield member["name"], f"{'alive' if member['alive'] else 'dead; started'} {_for(member)}{heard}"
    same = Counter((_NUMBER.sub("", loop), said) for loop, said in member["loops"].items())
    for loop, said in member["loops"].items():
        kind = _NUMBER.sub("", loop)
        number = same.pop((kind, said), 0)
        if number:
            yield f"  {loop}" if number == 1 else f"  {kind} ({number} of them)", said


def _for(member: dict[str, Any]) -> str:
    return f"for {span(member['age'])}" if member["alive"] else f"{span(member['age'])} ago"


def _remaining(lease: dict[str, Any]) -> str | None:
    return None if lease["holder"] is None else f"{lease['remaining']:.1f} s"


def _age(text: str | None) -> str | None:
    then = parse(text)
    return None if then is None else span(max(0.0, (datetime.now(UTC) - then).total_seconds()))


def _pxe_filter(seen: dict[str, Any]) -> str:
    if not seen["open"]:
        return f"open nowhere; its last epoch was {seen['epoch']}"
    return (
        f"open on {seen['host']} in epoch {seen['epoch']} for another {seen['remaining']:.1f} s; "
        f"{seen['allowed']} MACs allowed, {seen['denied']} denied, changes up to {seen['applied']} applied"
    )


def fitted(screen: Console, data: dict[str, Any]) -> RenderableType:
    """Return as much of the status as the terminal has lines for, and the names of what it has none for."""
    from rich.console import Group

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
        parts.append(f"... and {', '.join(hidden)}; a taller terminal shows them, as does: ferroscope status")
    return Group(*parts)


def _watch(api: Api, failures: int) -> NoReturn:
    """Keep one picture up to date on a terminal; elsewhere print a line for each change."""
    screen = console()
    if screen.is_terminal:
        from rich.live import Live

        with Live(fitted(screen, fetch(api, failures)), console=screen, auto_refresh=False) as live:
            while True:
                time.sleep(_WATCH_EVERY)
                live.update(fitted(screen, fetch(api, failures)), refresh=True)
    said = ""
    while True:
        nodes = fetch(api, 0)["nodes"]
        line = "  ".join(f"{nodes[state]} {state}" for state in Provision if nodes.get(state)) or "no nodes"
        if line != said:
            click.echo(f"{datetime.now(UTC).isoformat(timespec='seconds')}  {line}")
            said = line
        time.sleep(_WATCH_EVERY)
