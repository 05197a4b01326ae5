"""Whether every node of a run really ended as it should: a fast wrong answer is no figure.

It compares what the API gives with what the ramdisks sent, and with what happened to the machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bench.client import Api, ApiError
from ferroscope_sim.fleet import Fleet
from ferroscope_sim.inventory import generate, pxe_mac
from ferroscope_sim.machine import Machine

_AT_ONCE = 4


async def verify(api: Api, fleet: Fleet, uuids: dict[str, str]) -> list[str]:
    """Return a sentence for everything that is wrong with the fleet's nodes after one inspection each."""
    names = iter([name for name, machine in fleet.machines.items() if machine.member.outcome.calls_back])
    problems: list[str] = []

    async def slot() -> None:
        for name in names:
            problems.extend([f"{name}: {text}" for text in await _node(api, fleet, name, uuids[name])])

    await asyncio.gather(*(slot() for _ in range(_AT_ONCE)))
    return problems


async def _node(api: Api, fleet: Fleet, name: str, uuid: str) -> Sequence[str]:
    machine = fleet.machines[name]
    try:
        node = await api.get(f"/v1/nodes/{uuid}?fields=provision_state,last_error,power_state")
        data = await api.get(f"/v1/nodes/{uuid}/inventory")
        ports = (await api.get(f"/v1/ports?node={uuid}"))["ports"]
    except ApiError as error:
        return [str(error)]
    sent = msgspec.json.decode(generate(machine.member.number, size=fleet.settings.inventory_size))
    return [*_state(node), *_data(data, sent), *_ports(ports, machine), *effects(machine)]


def _state(node: dict[str, Any]) -> Iterator[str]:
    if node["provision_state"] != "manageable":
        yield f"is {node['provision_state']}: {node['last_error']}"
    if node["power_state"] != "power off":
        yield f"has the power state {node['power_state']}"


def _data(data: dict[str, Any], sent: dict[str, Any]) -> Iterator[str]:
    if data["inventory"] != sent["inventory"]:
        yield "the stored inventory is not the one that was sent"
    if "valid_interfaces" not in data["plugin_data"]:
        yield "the plugin data has no valid_interfaces"


def _ports(ports: list[dict[str, Any]], machine: Machine) -> Iterator[str]:
    if pxe_mac(machine.member.number) not in [port["address"] for port in ports]:
        yield "the port of the NIC that booted is missing"


def effects(machine: Machine) -> Iterator[str]:
    """Say what happened to the machine more or less than once."""
    counters = machine.tally.counters
    for name in ("power_ons", "power_offs", "pxe_boots", "boots", "callbacks_sent", "callbacks_accepted"):
        if getattr(counters, name) != 1:
            yield f"{name} is {getattr(counters, name)}, not 1"
    for name in ("reboots", "callbacks_failed", "callbacks_refused"):
        if getattr(counters, name):
            yield f"{name} is {getattr(counters, name)}, not 0"
