"""Whether every node of a run really ended as it should: a fast wrong answer is no figure.

It compares what the API gives with what the ramdisks sent, and with what happened to the machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bench.client import Api, ApiError, for_each
from ferroscope_sim.fleet import SimFleet
from ferroscope_sim.inventory import generate, pxe_mac
from ferroscope_sim.machine import SimMachine

_AT_ONCE: Final = 4
# How often each of these happens to a machine in one inspection.
_COUNTS: Final = dict.fromkeys(
    ("power_ons", "power_offs", "pxe_boots", "boots", "callbacks_sent", "callbacks_accepted"), 1
) | dict.fromkeys(("reboots", "callbacks_failed", "callbacks_refused"), 0)


async def verify(api: Api, fleet: SimFleet, uuids: dict[str, str]) -> list[str]:
    """Return a sentence for everything that is wrong with the fleet's nodes after one inspection each."""
    problems: list[str] = []

    async def check(name: str) -> None:
        uuid, machine = uuids[name], fleet.machines[name]
        try:
            node = await api.get(f"/v1/nodes/{uuid}?fields=provision_state,last_error,power_state")
            data = await api.get(f"/v1/nodes/{uuid}/inventory")
            ports = (await api.get(f"/v1/ports?node={uuid}"))["ports"]
        except ApiError as error:
            problems.append(f"{name}: {error}")
            return
        sent = msgspec.json.decode(generate(machine.member.number, size=fleet.settings.inventory_size))
        problems.extend(f"{name}: {text}" for text in _find_problems(node, data, sent, ports, machine))

    names = [name for name, machine in fleet.machines.items() if machine.member.outcome.calls_back]
    await for_each(names, _AT_ONCE, check)
    return problems


def _find_problems(
    node: dict[str, Any], data: dict[str, Any], sent: dict[str, Any], ports: list[dict[str, Any]], machine: SimMachine
) -> Iterator[str]:
    if node["provision_state"] != "manageable":
        yield f"is {node['provision_state']}: {node['last_error']}"
    if node["power_state"] != "power off":
        yield f"has the power state {node['power_state']}"
    if data["inventory"] != sent["inventory"]:
        yield "the stored inventory is not the one that was sent"
    if "valid_interfaces" not in data["plugin_data"]:
        yield "the plugin data has no valid_interfaces"
    if pxe_mac(machine.member.number) not in [port["address"] for port in ports]:
        yield "the port of the NIC that booted is missing"
    for name, count in _COUNTS.items():
        if (happened := getattr(machine.tally.counters, name)) != count:
            yield f"{name} is {happened}, not {count}"
