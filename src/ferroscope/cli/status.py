"""``ferroscope status``: how many nodes are in which state, and what has failed lately."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

from ferroscope.cli.client import Api
from ferroscope.cli.output import Output, facts, table, with_api
from ferroscope.cli.times import ago
from ferroscope.domain.provision import Provision

_FIELDS: Final = ("uuid", "name", "provision_state", "provision_updated_at", "power_state", "last_error")


@click.command()
@click.option("--failures", type=click.IntRange(min=0), default=5, show_default=True, help="Show the newest failures.")
@with_api
def status(api: Api, out: Output, *, failures: int) -> None:
    """Show how the service is doing: nodes by state, and the newest failures."""
    version = api.get("/v1/")["version"]["version"]
    nodes = list(api.pages("/v1/nodes", "nodes", fields=_FIELDS))
    states = Counter(node["provision_state"] for node in nodes)
    failed = [node for node in nodes if node["provision_state"] == Provision.INSPECT_FAILED]
    failed.sort(key=lambda node: node["provision_updated_at"] or "", reverse=True)
    data: dict[str, Any] = {
        "url": api.url,
        "api_version": version,
        "nodes": len(nodes),
        "provision_states": {str(state): states[state] for state in Provision if states[state]},
        "power_on": sum(node["power_state"] == "power on" for node in nodes),
        "failures": [{name: node[name] for name in _FIELDS} for node in failed[:failures]],
    }

    def draw(screen: Any) -> None:
        screen.print(
            facts({"Service": f"{api.url} (API {version})", "Nodes": len(nodes), "Power on": data["power_on"]})
        )
        if nodes:
            screen.print()
            screen.print(table(("STATE", "NODES"), data["provision_states"].items()))
        if data["failures"]:
            screen.print()
            rows = [(node["name"], ago(node["provision_updated_at"]), node["last_error"]) for node in data["failures"]]
            screen.print(table(("FAILED", "SINCE", "ERROR"), rows))

    out.show(data, draw)
