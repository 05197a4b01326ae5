"""Where a machine's values come from, as its page says: a caller, a rule, the ramdisk, or the BMC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.contrib.ui.machine import sourced_parts
from ferroscope.hardware.sources import combine
from tests.api.browsing import Browser, Elements
from tests.system.service.test_notifications import Site

RULE = {"actions": [{"op": "set-attribute", "args": {"path": "/resource_class", "value": "large"}},
                    {"op": "set-attribute", "args": {"path": "/labels/rack", "value": "r1"}}]}  # fmt: skip


@pytest.fixture
def site(sqlite_url: str) -> Iterator[Site]:
    found = Site(sqlite_url)
    yield found
    found.service.close()


def shown(site: Site) -> str:
    return Elements(Browser(site.service).get(f"/ui/machines/{site.node}").text).text


def sources(site: Site) -> dict[str, Any]:
    return site.service.node(site.node).sources


def test_values_are_of_operators_hooks_and_rules(site: Site) -> None:
    assert sources(site) == {"name": "operator", "owner": "operator", "driver": "operator"}
    assert site.service.bare_metal.post("/v1/inspection_rules", RULE).status_code == 201
    change = {"op": "add", "path": "/properties/asset", "value": "A-7"}
    assert site.service.bare_metal.patch(f"/v1/nodes/{site.node}", change).status_code == 200
    for _ in range(2):  # a second inspection finds the same, and changes nothing
        site.inspect()
        expected = {"owner": "operator", "resource_class": "rule", "labels.rack": "rule",
                    "properties.asset": "operator", "properties.cpu_arch": "in band"}  # fmt: skip
        assert sources(site).items() >= expected.items()
    text = shown(site)
    for part in ("large rule", "rack=r1 rule", "asset=A-7 operator", "cpu_arch=x86_64 in band", "lab operator"):
        assert part in " ".join(text.split()), part

    changes = [
        {"op": "replace", "path": "/resource_class", "value": "small"},
        {"op": "remove", "path": "/labels/rack"},
    ]
    assert site.service.bare_metal.patch(f"/v1/nodes/{site.node}", *changes).status_code == 200
    assert sources(site)["resource_class"] == "operator"
    assert "labels.rack" not in sources(site)
    site.service.bare_metal.put(f"/v1/nodes/{site.node}/traits/CUSTOM_A")
    assert sources(site)["traits"] == "operator"


RAMDISK = {
    "system_vendor": {"manufacturer": "Dell"},
    "interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01"}],
    "disks": [{"name": "/dev/sda", "serial": "S1", "size": 10}],
}
BMC = {
    "system_vendor": {"manufacturer": "Dell Inc.", "serial_number": "9YPX7M2"},
    "interfaces": [
        {"name": "NIC.1", "mac_address": "52:54:00:00:00:02", "speed_mbps": 1000},
        {"name": "NIC.2", "mac_address": "52:54:00:00:00:01", "speed_mbps": 25000},
    ],
    "disks": [{"name": "Disk 2", "serial": "S2", "size": 20}],
}


def found(inventory: Any, plugin_data: Any) -> dict[str, str]:
    return {
        f"{part.kind} {name} {part.fields[name]}": by[name]
        for part, by in sourced_parts(inventory, plugin_data)
        for name in part.fields
    }


def test_the_bmc_fills_what_the_ramdisk_left_open() -> None:
    hardware = combine(RAMDISK, BMC, "redfish")
    values = found(RAMDISK, {"hardware": {"inventory": hardware.inventory, "sources": hardware.sources}})
    assert values == {
        "node vendor Dell": "in band",
        "node serial 9YPX7M2": "out of band",
        "node storage 30.0": "",
        "nic name eth0": "in band",
        "nic mac 52:54:00:00:00:01": "in band",
        "nic speed 25000000000.0": "out of band",
        "nic name NIC.1": "out of band",
        "nic mac 52:54:00:00:00:02": "out of band",
        "nic speed 1000000000.0": "out of band",
        "disk name /dev/sda": "in band",
        "disk serial S1": "in band",
        "disk size 10.0": "in band",
        "disk name Disk 2": "out of band",
        "disk serial S2": "out of band",
        "disk size 20.0": "out of band",
    }


def test_without_a_ramdisk_all_is_out_of_band_and_without_a_bmc_in_band() -> None:
    hardware = combine({}, BMC, "redfish")
    alone = found(BMC, {"hardware": {"inventory": hardware.inventory, "sources": hardware.sources}})
    assert set(alone.values()) == {"out of band"}
    assert set(found(RAMDISK, {}).values()) == {"in band"}
    assert set(found(RAMDISK, {"hardware": "?"}).values()) == {"in band"}
