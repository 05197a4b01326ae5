"""NICs that a BMC lists below network adapters only, as Lenovo's XCC does.

Report: https://github.com/dsx-ai-factory/infra-controller/issues/4436.
"""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from tests.support.scripted_redfish import SYSTEM, ScriptedBmc, collection, link

CHASSIS = "/redfish/v1/Chassis/1"
ADAPTERS = f"{CHASSIS}/NetworkAdapters"
MAC = "52:54:00:00:00:0{}"


def has_adapter(bmc: ScriptedBmc, name: str, **parts: dict[str, Any]) -> str:
    """Have an adapter whose collections are named like the keywords, with one member for each name in them."""
    path = f"{ADAPTERS}/{name}"
    bmc.has(path, {"Id": name, "Name": name, **{kind: link(f"{path}/{kind}") for kind in parts}})
    for kind, members in parts.items():
        bmc.has(f"{path}/{kind}", collection(*(f"{path}/{kind}/{one}" for one in members)))
        for one, document in members.items():
            bmc.has(f"{path}/{kind}/{one}", {"Id": one, "Name": one, **document})
    return path


@pytest.fixture
def chassis(bmc: ScriptedBmc) -> ScriptedBmc:
    """Give a machine with three adapters, an empty slot, and no Ethernet interfaces."""
    functions = {
        "1": {"NetDevFuncType": "Ethernet", "Ethernet": {"MACAddress": MAC.format(1)}},
        "2": {"NetDevFuncType": "FibreChannel", "FibreChannel": {"PermanentWWPN": "10:00:00:00:00:00:00:01"}},
    }
    ports = {
        "1": {"Ethernet": {"AssociatedMACAddresses": [MAC.format(2), MAC.format(9)]}, "CurrentSpeedGbps": 25},
        "2": {"Ethernet": {"AssociatedMACAddresses": []}},
        "3": {"AssociatedNetworkAddresses": ["10:00:00:00:00:00:00:02"]},
    }
    paths = [
        has_adapter(bmc, "A", NetworkDeviceFunctions=functions, Ports=ports),
        has_adapter(bmc, "B", NetworkDeviceFunctions={}, Ports=ports),
        has_adapter(bmc, "slot-3"),
        has_adapter(bmc, "slot-4", NetworkPorts={"1": {"AssociatedNetworkAddresses": [MAC.format(3)]}}),
    ]
    bmc.documents[paths[2]]["Status"] = {"State": "Absent"}
    bmc.has(ADAPTERS, collection(*paths))
    bmc.has(CHASSIS, {"Id": "1", "Name": "1", "NetworkAdapters": link(ADAPTERS)})
    bmc.system["Links"]["Chassis"] = [link(CHASSIS)]
    return bmc


def test_without_ethernet_interfaces_the_ports_of_adapters_count(chassis: ScriptedBmc, driver: RedfishBmc) -> None:
    """Each adapter has a port 1 of its own: https://github.com/bmc-toolbox/bmclib/pull/449."""
    expected = [("A-1", MAC.format(1)), (MAC.format(2), MAC.format(2)), ("slot-4-1", MAC.format(3))]
    assert [(one.name, one.mac) for one in driver.nics(chassis.node())] == expected
    found = driver.inventory(chassis.node())["interfaces"]
    assert [(one["name"], one["mac_address"]) for one in found] == expected
    assert [one.get("speed_mbps") for one in found] == [None, 25000, None]


def test_only_the_adapters_of_the_system_count_where_it_names_them(chassis: ScriptedBmc, driver: RedfishBmc) -> None:
    """Name one of the chassis, which may hold several machines."""
    chassis.system["NetworkInterfaces"] = link(f"{SYSTEM}/NetworkInterfaces")
    chassis.has(f"{SYSTEM}/NetworkInterfaces", collection(f"{SYSTEM}/NetworkInterfaces/A"))
    chassis.has(
        f"{SYSTEM}/NetworkInterfaces/A", {"Id": "A", "Name": "A", "Links": {"NetworkAdapter": link(f"{ADAPTERS}/A")}}
    )
    assert [one.mac for one in driver.nics(chassis.node())] == [MAC.format(1), MAC.format(2)]


@pytest.mark.parametrize("mac", [None, "", "00:00:00:00:00:00", "N/A", "21:00:F4:E9:00:00:11:22"])
def test_the_nics_of_all_sources_count_each_once(chassis: ScriptedBmc, driver: RedfishBmc, mac: str | None) -> None:
    """One NIC is here, and the others are there.

    Reports: https://github.com/dsx-ai-factory/infra-controller/issues/4952,
    https://github.com/bmc-toolbox/bmclib/pull/443, https://github.com/lenovo/python-redfish-lenovo/issues/368.
    """
    listed = f"{SYSTEM}/EthernetInterfaces"
    chassis.system["EthernetInterfaces"] = link(listed)
    chassis.has(listed, collection(f"{listed}/1", f"{listed}/2"))
    chassis.has(f"{listed}/1", {"Id": "1", "MACAddress": mac})
    chassis.has(f"{listed}/2", {"Id": "2", "MACAddress": MAC.format(7), "PermanentMACAddress": MAC.format(3)})
    found = [(one.name, one.mac) for one in driver.nics(chassis.node())]
    assert found == [("2", MAC.format(7)), ("A-1", MAC.format(1)), (MAC.format(2), MAC.format(2))]


@pytest.mark.parametrize("empty", [{}, {"Ethernet": {"AssociatedMACAddresses": []}}, {"Ethernet": None}])
def test_a_field_of_the_vendor_counts_where_the_standard_one_is_empty(
    chassis: ScriptedBmc, driver: RedfishBmc, empty: dict[str, Any]
) -> None:
    """Reports: https://github.com/dsx-ai-factory/libredfish/issues/117,
    https://github.com/dsx-ai-factory/nv-redfish/issues/176.
    """
    own = {"Oem": {"Vendor": {}, "Lenovo": {"PhysicalPortMacAddress": "52:54:00:00:00:05"}}}
    ports = {"1": empty | own, "2": {"Ethernet": {"AssociatedMACAddresses": [MAC.format(6)]}} | own}
    chassis.documents[ADAPTERS] = collection(has_adapter(chassis, "C", Ports=ports))
    assert [one.mac for one in driver.nics(chassis.node())] == [MAC.format(5), MAC.format(6)]


@pytest.mark.parametrize("technology", ["LinkNetworkTechnology", "ActiveLinkTechnology", ""])
def test_a_port_of_fibre_channel_is_no_nic(chassis: ScriptedBmc, driver: RedfishBmc, technology: str) -> None:
    """A port of InfiniBand has the MAC that its driver derives from its GUID."""
    ports = {
        "1": {"AssociatedNetworkAddresses": ["21:00:00:24:ff:03:00:11"], technology: "FibreChannel"},
        "2": {"AssociatedNetworkAddresses": ["b8:3f:d2:03:00:ab:cd:ef"], technology: "InfiniBand"},
    }
    chassis.documents[ADAPTERS] = collection(has_adapter(chassis, "C", NetworkPorts=ports))
    assert [(one.name, one.mac) for one in driver.nics(chassis.node())] == [("C-2", "b8:3f:d2:ab:cd:ef")]
