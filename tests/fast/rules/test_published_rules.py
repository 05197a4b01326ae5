"""Rules that others have published do what they are for."""

from __future__ import annotations

from typing import Any

from ferroscope.core.model import Rule
from tests.fast.rules.running import MAC, Site
from tests.support.kayobe import RULES
from tests.support.rows import each

_NIC = {"name": "eth0", "mac_address": MAC, "ipv4_address": "192.0.2.8", "pxe_enabled": True}


def stored() -> list[Rule]:
    return [
        Rule(uuid=f"r{number}", conditions=rule["conditions"], actions=rule["actions"], description=rule["description"])
        for number, rule in enumerate(RULES)
    ]


def site(port: str | None) -> Site:
    plugin_data: dict[str, Any] = {
        "all_interfaces": {"eth0": _NIC},
        "root_disk": {"name": "/dev/sda", "serial": "S-1"},
        "boot_interface": MAC,
    }
    if port is not None:
        plugin_data["parsed_lldp"] = {"eth0": {"switch_port_description": port}}
    return Site(plugin_data)


def test_the_rules_of_kayobe_fire() -> None:
    machine = site("rack1-u07")
    assert len(machine.run(*stored())) == len(RULES)
    node = machine.node
    assert node.name == "rack1-u07"
    assert node.properties["root_device"] == {"serial": "S-1"}
    assert node.extra["pxe_interface_mac"] == MAC
    assert node.extra["system_vendor"] == {
        "manufacturer": "Dell Inc.",
        "serial_number": "S 1/2",
        "product_name": "R640 {node.uuid}",
    }
    assert node.extra["introspection_data"]["inventory"]["cpu"]["count"] == 8
    assert (node.driver_info["deploy_kernel"], node.driver_info["redfish_address"]) == (
        "http://192.0.2.1/kernel",
        "192.0.2.7",
    )


@each("port", [None, "TenGigabitEthernet 1/1/1", "Port-channel7"])
def test_a_port_without_a_description_names_no_machine(port: str | None) -> None:
    machine = site(port)
    assert len(machine.run(*stored())) == len(RULES) - 1
    assert machine.node.name == "one"


def test_data_that_is_missing_fails_none_of_them() -> None:
    machine = Site({}, inventory={"interfaces": []})
    # What is empty is set, and the BMC's address is not known.
    with_values = [rule for rule in stored() if "redfish_address" not in str(rule.description)]
    applied = machine.run(*with_values)
    assert "system_vendor" not in machine.node.extra
    assert "pxe_interface_mac" not in machine.node.extra
    assert len(applied) == len(with_values) - 6
