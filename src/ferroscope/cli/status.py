"""``ferroscope status``: members, leases, queue and nodes, a sentence each, and what has failed lately."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ferroscope.cli.client import Api
from ferroscope.cli.exits import Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output, console, facts, table, with_api
from ferroscope.cli.times import ago, span
from ferroscope.domain.provision import Provision

if TYPE_CHECKING:
    from rich.console import RenderableType

_WATCH_EVERY: Final = 1.0
_FIELDS: Final = ("uuid", "name", "provision_state", "provision_updated_at", "power_state", "last_error")
_SHOWN: Final = ("database", "members", "leases", "gates", "queue", "problems")


@click.command()
@click.option("--failures", type=click.IntRange(min=0), default=5, show_default=True, help="Show the newest failures.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@with_api
def status(api: Api, out: Output, *, failures: int, watch: bool) -> None:
    """Show how the service is doing: members, leases, queue, nodes by state, the newest failures, problems."""
    if watch and out.for_programs:
        raise click.UsageError("--watch is for people; programs should ask again")
    if watch:
        _watch(api, failures)
    data = fetch(api, failures)
    out.show(data, lambda screen: screen.print(drawn(data)))


def fetch(api: Api, failures: int) -> dict[str, Any]:
    """Return the service's status, and the newest ``failures`` nodes whose inspection failed."""
    version = _version(api)
    status = api.get("/v1/status")
    states = status["nodes"]
    failed = []
    if failures and states.get(Provision.INSPECT_FAILED):
        failed = list(api.pages("/v1/nodes", "nodes", provision_state=Provision.INSPECT_FAILED, fields=_FIELDS))
    failed.sort(key=lambda node: node["provision_updated_at"] or "", reverse=True)
    return {
        "url": api.url,
        "api_version": version,
        "nodes": sum(states.values()),
        "provision_states": {str(state): states[state] for state in Provision if states.get(state)},
        **{name: status[name] for name in _SHOWN},
        "failures": [{name: node[name] for name in _FIELDS} for node in failed[:failures]],
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


def drawn(data: dict[str, Any]) -> RenderableType:
    """Return the status as people see it."""
    from rich.console import Group

    service = f"{data['url']} (API {data['api_version']})"
    parts: list[RenderableType] = [
        facts({"Service": service, "Database": _database(data["database"]), "Nodes": data["nodes"]})
    ]
    if data["nodes"]:
        parts += ["", table(("STATE", "NODES"), data["provision_states"].items())]
    if data["failures"]:
        rows = [(label(node), ago(node["provision_updated_at"]), node["last_error"]) for node in data["failures"]]
        parts += ["", table(("FAILED", "SINCE", "ERROR"), rows)]
    parts += ["", table(("MEMBER", ""), [row for member in data["members"] for row in _member(member)])]
    if data["leases"]:
        parts += ["", table(("LEASE", ""), [(lease["name"], _lease(lease)) for lease in data["leases"]])]
    if data["gates"]:
        parts += ["", table(("PXE GATE", ""), [(gate["network"], _gate(gate)) for gate in data["gates"]])]
    if data["queue"]:
        parts += ["", table(("QUEUE", ""), [(row["event"], _queue(row)) for row in data["queue"]])]
    if data["problems"]:
        parts += ["", table(("TO LOOK INTO",), [(problem,) for problem in data["problems"]])]
    return Group(*parts)


def _database(database: dict[str, Any]) -> str:
    skew = abs(database["clock_skew"])
    return f"{database['kind']}, schema {database['schema']}, our clock is within {max(skew, 0.01):.2f} s of its"


def _member(member: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the member's own row, and one for each of its loops."""
    silent = member["silent_for"]
    heard = "" if silent is None else f", last heard of {silent:.1f} s ago"
    yield member["name"], f"{'alive' if member['alive'] else 'dead; it began'} {_for(member)}{heard}"
    for loop, sentence in member["loops"].items():
        yield f"  {loop}", sentence


def _for(member: dict[str, Any]) -> str:
    return f"for {span(member['age'])}" if member["alive"] else f"{span(member['age'])} ago"


def _lease(lease: dict[str, Any]) -> str:
    if lease["holder"] is None:
        return f"is free; its last epoch was {lease['epoch']}"
    return f"is held by {lease['holder']} in epoch {lease['epoch']} for another {lease['remaining']:.1f} s"


def _gate(gate: dict[str, Any]) -> str:
    if not gate["open"]:
        return f"is open nowhere; its last epoch was {gate['epoch']}"
    return (
        f"is open on {gate['host']} in epoch {gate['epoch']} for another {gate['remaining']:.1f} s; "
        f"{gate['allowed']} MACs allowed, {gate['denied']} denied, changes up to {gate['applied']} applied"
    )


def _queue(row: dict[str, Any]) -> str:
    return f"{row['waiting']} wait, {row['claimed']} are being carried out; the oldest came {span(row['oldest'])} ago"


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
