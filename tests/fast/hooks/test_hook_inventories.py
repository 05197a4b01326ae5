"""The default hooks on whole inventories: simulated ones, and recorded ones where a checkout has them beside it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope.config.options import InspectorSettings
from ferroscope.core import mac_addresses
from ferroscope.hooks import loader
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope_sim import inventory as sim
from tests.fast.hooks.runs import context, installed, recorded, run
from tests.support.calls import calls
from tests.support.rows import each

HOOKS = (*InspectorSettings().default_hooks, "memory")


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    for index in range(30):
        yield f"simulated {index}", sim.document(index)
    for path in recorded():
        body = msgspec.json.decode(path.read_bytes())
        yield path.name, body if "inventory" in body else {"inventory": body}


@each("add_ports", ["all", "active", "pxe", "disabled"])
def test_a_whole_inventory_gives_properties_and_ports(add_ports: str) -> None:
    for name, body in bodies():
        inventory = body.pop("inventory")
        result = run(HOOKS, inventory, body, add_ports=add_ports)
        assert result.node.properties["cpu_arch"] == inventory["cpu"]["architecture"], name
        assert result.node.properties["memory_mb"] == inventory["memory"]["physical_mb"], name
        every = {mac_addresses.normalized_mac(iface["mac_address"]) for iface in inventory["interfaces"]}
        booted = mac_addresses.normalized_mac(inventory["boot"]["pxe_interface"])
        expected = {"all": every, "pxe": {booted} if booted else every, "disabled": set()}.get(add_ports)
        if expected is not None:
            assert set(result.ports()) == expected, name
        assert {mac for mac, port in result.ports().items() if port.pxe_enabled} <= ({booted} if booted else every)
        assert set(result.plugin_data["all_interfaces"]) == {iface["name"] for iface in inventory["interfaces"]}, name
        assert set(body) <= set(result.plugin_data), name
        assert msgspec.json.decode(encode(result.plugin_data))["macs"] == result.plugin_data["macs"]


def test_the_default_hooks_call_fewer_functions_than_one_copy_of_the_inventory_that_they_read() -> None:
    """What that takes in time is part of what ``python -m bench gate`` measures."""
    settings = InspectorSettings()
    pipeline = Pipeline(loader.load(settings, installed()), settings)
    body = sim.document(7, size=40_000)
    inventory = body.pop("inventory")
    pipeline.run(context(), inventory, body)  # what is made once is there now
    task = context()
    assert calls(lambda: pipeline.run(task, inventory, body)) < calls(lambda: copy.deepcopy(inventory))
