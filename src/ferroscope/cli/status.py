"""``ferroscope status``: how many nodes are in which state, and what has failed lately."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ferroscope.cli.client import Api
from ferroscope.cli.output import Output, console, facts, table, with_api
from ferroscope.cli.times import ago
from ferroscope.domain.provision import Provision

if TYPE_CHECKING:
    from rich.console import RenderableType

_WATCH_EVERY: Final = 1.0
_FIELDS: Final = ("uuid", "name", "provision_state", "provision_updated_at", "power_state", "last_error")


@click.command()
@click.option("--failures", type=click.IntRange(min=0), default=5, show_default=True, help="Show the newest failures.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@with_api
def status(api: Api, out: Output, *, failures: int, watch: bool) -> None:
    """Show how the service is doing: nodes by state, and the newest failures."""
    if watch and out.for_programs:
        raise click.UsageError("--watch is for people; programs should ask again")
    if watch:
        _watch(api, failures)
    data = fetch(api, failures)
    out.show(data, lambda screen: screen.print(drawn(data)))


def fetch(api: Api, failures: int) -> dict[str, Any]:
    """Return the counts, and the newest ``failures`` nodes whose inspection failed."""
    version = api.get("/v1/")["version"]["version"]
    nodes = list(api.pages("/v1/nodes", "nodes", fields=_FIELDS))
    states = Counter(node["provision_state"] for node in nodes)
    failed = [node for node in nodes if node["provision_state"] == Provision.INSPECT_FAILED]
    failed.sort(key=lambda node: node["provision_updated_at"] or "", reverse=True)
    return {
        "url": api.url,
        "api_version": version,
        "nodes": len(nodes),
        "provision_states": {str(state): states[state] for state in Provision if states[state]},
        "power_on": sum(node["power_state"] == "power on" for node in nodes),
        "failures": [{name: node[name] for name in _FIELDS} for node in failed[:failures]],
    }


def drawn(data: dict[str, Any]) -> RenderableType:
    """Return the status as people see it."""
    from rich.console import Group

    service = f"{data['url']} (API {data['api_version']})"
    parts: list[RenderableType] = [facts({"Service": service, "Nodes": data["nodes"], "Power on": data["power_on"]})]
    if data["nodes"]:
        parts += ["", table(("STATE", "NODES"), data["provision_states"].items())]
    if data["failures"]:
        rows = [
            (node["name"] or node["uuid"], ago(node["provision_updated_at"]), node["last_error"])
            for node in data["failures"]
        ]
        parts += ["", table(("FAILED", "SINCE", "ERROR"), rows)]
    return Group(*parts)


def _watch(api: Api, failures: int) -> NoReturn:
    """Keep one picture up to date on a terminal; elsewhere print a line for each change."""
    screen = console()
    if screen.is_terminal:
        from rich.live import Live

        with Live(drawn(fetch(api, failures)), console=screen, auto_refresh=False) as live:
            while True:
                time.sleep(_WATCH_EVERY)
                live.update(drawn(fetch(api, failures)), refresh=True)
    said = ""
    while True:
        counts = fetch(api, 0)["provision_states"]
        line = "  ".join(f"{count} {state}" for state, count in counts.items()) or "no nodes"
        if line != said:
            click.echo(f"{datetime.now(UTC).isoformat(timespec='seconds')}  {line}")
            said = line
        time.sleep(_WATCH_EVERY)
