"""Each part of a machine once, from all pages of its collections, none that is absent; what is unreadable ends nothing.

NICs may be below network adapters only: https://github.com/dsx-ai-factory/infra-controller/issues/4436.
"""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from tests.support.scripted_redfish import MANAGER, SYSTEM, ScriptedBmc, answer, collection, link

CHASSIS = "/redfish/v1/Chassis/1"
ADAPTERS = f"{CHASSIS}/NetworkAdapters"
MAC = "52:54:00:00:00:0{}"
ABSENT = {"Status": {"State": "Absent"}}
_PARTS = ("EthernetInterfaces/1", "Processors/1", "Storage/0", "Memory/0")


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


def paged(bmc: ScriptedBmc, path: str, *members: str, size: int = 1, host: str = "") -> dict[str, str]:
    """Have a collection in pages of ``size``; return the link to it."""
    pages = [members[first : first + size] for first in range(0, len(members), size)]
    for number, page in enumerate(pages):
        document = collection(*page)
        if number + 1 < len(pages):
            document["Members@odata.nextLink"] = f"{host}{path}?$skip={number + 1}"
        bmc.has(f"{path}?$skip={number}" if number else path, document)
    return link(path)


def parts(bmc: ScriptedBmc, path: str, *documents: dict[str, Any], host: str = "") -> dict[str, str]:
    paths = [f"{path}/{number}" for number in range(len(documents))]
    for one, document in zip(paths, documents, strict=True):
        bmc.has(one, {"@odata.id": one, "Id": one[-1], "Name": one, **document})
    return paged(bmc, path, *paths, host=host)


def nic(number: int, **more: Any) -> dict[str, Any]:
    return {"MACAddress": f"52:54:00:00:00:{number:02x}", **more}


def disk(serial: str, **more: Any) -> dict[str, Any]:
    return {"SerialNumber": serial, "Model": "M", "CapacityBytes": 10**12, **more}


@pytest.fixture
def machine(bmc: ScriptedBmc) -> ScriptedBmc:
    """Give a machine with two of everything, each on a page of its own."""
    bmc.system["EthernetInterfaces"] = parts(bmc, f"{SYSTEM}/EthernetInterfaces", nic(1), nic(2))
    bmc.system["Processors"] = parts(
        bmc, f"{SYSTEM}/Processors", {"TotalThreads": 16}, {"TotalThreads": 16}, {"TotalThreads": 16, **ABSENT}
    )
    bmc.system["Memory"] = parts(bmc, f"{SYSTEM}/Memory", {"CapacityMiB": 1024}, {"CapacityMiB": 1024}, ABSENT)
    for number in (1, 2):
        bmc.has(f"/drives/{number}", {"@odata.id": f"/drives/{number}", "Name": str(number), **disk(f"S{number}")})
    bmc.has("/drives/3", {"@odata.id": "/drives/3", "Name": "bay 3", **ABSENT})
    bmc.has("/drives/4", {"@odata.id": "/drives/4", "Name": "bay 4", "Status": {"State": "Enabled"}})
    bmc.system["Storage"] = parts(
        bmc,
        f"{SYSTEM}/Storage",
        {"Drives": [link("/drives/1"), link("/drives/3")]},
        {"Drives": [link("/drives/1"), link("/drives/2"), link("/drives/4")]},
    )
    bmc.documents[MANAGER]["EthernetInterfaces"] = parts(bmc, f"{MANAGER}/EthernetInterfaces", ABSENT, nic(9))
    return bmc


def test_every_page_of_every_collection_is_read(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    """https://github.com/bb-Ricardo/check_redfish/issues/28; DMTF/Redfish-Mockup-Server#43."""
    found = driver.inventory(machine.node())
    assert [one["mac_address"] for one in found["interfaces"]] == ["52:54:00:00:00:01", "52:54:00:00:00:02"]
    assert (found["cpu"]["count"], found["cpu"]["socket_count"]) == (32, 2)
    assert [one["serial"] for one in found["disks"]] == ["S1", "S2"]
    assert found["memory"]["physical_mb"] == 2048
    assert found["bmc_mac"] == "52:54:00:00:00:09"
    assert "unread" not in found
    assert [one.mac for one in driver.nics(machine.node())] == ["52:54:00:00:00:01", "52:54:00:00:00:02"]


def test_all_pages_of_systems_count(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    paged(bmc, "/redfish/v1/Systems", SYSTEM, "/redfish/v1/Systems/2", "/redfish/v1/Systems/3")
    assert list(driver.systems(bmc.node())) == [SYSTEM, "/redfish/v1/Systems/2", "/redfish/v1/Systems/3"]


def test_pages_that_lead_back_end(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    path = f"{SYSTEM}/EthernetInterfaces"
    bmc.system["EthernetInterfaces"] = parts(bmc, path, nic(1), nic(2))
    bmc.documents[f"{path}?$skip=1"]["Members@odata.nextLink"] = path
    assert len(driver.nics(bmc.node())) == 2


def test_pages_without_end_end(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    path = f"{SYSTEM}/EthernetInterfaces"
    paged(bmc, path, *(f"{path}/{number}" for number in range(200)))
    bmc.has(f"{path}/0", {"Id": "0", **nic(1)})
    bmc.system["EthernetInterfaces"] = link(path)
    assert [one.mac for one in driver.nics(bmc.node())] == ["52:54:00:00:00:01"]
    assert len(bmc.seen) < 150


def test_links_with_another_host_are_read_from_the_bmc_we_know(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    elsewhere = "http://127.0.0.1:1"  # nobody listens there
    bmc.system["EthernetInterfaces"] = parts(bmc, f"{SYSTEM}/EthernetInterfaces", nic(1), nic(2), host=elsewhere)
    bmc.documents["/redfish/v1/Systems"] = collection(elsewhere + SYSTEM)
    assert len(driver.nics(bmc.node())) == 2


@pytest.mark.parametrize(
    ("where", "broken"),
    [
        *((where, answer(500)) for where in _PARTS),
        *((_PARTS[0], broken) for broken in (answer(404), answer(503), answer(200, b"<html>"), answer(200))),
        *((_PARTS[2], broken) for broken in ({"Links": None}, [None], "text")),
    ],
)
def test_a_part_that_cannot_be_read_does_not_end_the_inventory(
    machine: ScriptedBmc, driver: RedfishBmc, where: str, broken: Any
) -> None:
    """kubevirtbmc/kubevirtbmc#70."""
    machine.documents[f"{SYSTEM}/{where}"] = broken
    found = driver.inventory(machine.node())
    assert {"interfaces", "cpu", "disks", "memory"} <= set(found)
    if not isinstance(broken, dict):
        assert any(where in one for one in found["unread"]), found["unread"]


def test_a_part_that_is_busy_for_a_moment_is_there(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    machine.will(answer(503), at="/drives/2")
    found = driver.inventory(machine.node())
    assert [one["serial"] for one in found["disks"]] == ["S1", "S2"]
    assert "unread" not in found


def test_drives_may_be_a_collection_and_a_member_may_be_no_list(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """DMTF/libredfish#27: a collection's single member without its list."""
    drives = parts(bmc, f"{SYSTEM}/Storage/1/Drives", disk("A"), disk("B", CapacityBytes=2e12))
    bmc.has(f"{SYSTEM}/Storage/1", {"Id": "1", "Name": "1", "Drives": drives})
    bmc.has(f"{SYSTEM}/Storage", {"Members": link(f"{SYSTEM}/Storage/1")})
    bmc.system["Storage"] = link(f"{SYSTEM}/Storage")
    assert [one["size"] for one in driver.inventory(bmc.node())["disks"]] == [10**12, 2 * 10**12]


@pytest.mark.parametrize(
    ("systems", "attached", "serials"), [(1, True, "S1 S2 S7"), (1, False, "S2 S7"), (2, True, "S1 S2"), (2, False, "")]
)
def test_drives_that_only_the_chassis_lists_count_unless_it_is_shared(
    machine: ScriptedBmc, driver: RedfishBmc, systems: int, attached: bool, serials: str
) -> None:
    """Reports: https://github.com/bb-Ricardo/check_redfish/issues/72, https://github.com/ansible/ansible/issues/58568."""
    if not attached:
        del machine.system["Storage"]
    machine.system["Links"]["Chassis"] = [link("/chassis")]
    boxed = parts(machine, "/chassis/Drives", disk("S2"), disk("S7"), ABSENT)
    machine.has("/chassis", {"Id": "1", "Drives": boxed, "Links": {"ComputerSystems": [link(SYSTEM)] * systems}})
    assert [one["serial"] for one in driver.inventory(machine.node()).get("disks", [])] == serials.split()


def test_one_drive_under_two_paths_is_one(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.has("/a", {"@odata.id": "/a", "Id": "0", "Name": "Bay 0", **disk("S")})
    bmc.has("/b", {"@odata.id": "/b", "Id": "0", "Name": "Drive", **disk("S")})
    bmc.system["Storage"] = parts(bmc, f"{SYSTEM}/Storage", {"Drives": [link("/a")]}, {"Drives": [link("/b")]})
    assert len(driver.inventory(bmc.node())["disks"]) == 1


def test_one_drive_in_two_places_is_one_by_its_name_for_good(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    known = disk("S", Identifiers=[{"DurableName": None}, {"DurableName": "5000C500A1B2C3D4"}])
    bmc.has("/a", {"@odata.id": "/a", "Id": "Disk.Bay.0", "Name": "Bay 0", **known})
    bmc.has("/b", {"@odata.id": "/b", "Id": "0", "Name": "Drive", **known})
    bmc.system["Storage"] = parts(bmc, f"{SYSTEM}/Storage", {"Drives": [link("/a")]}, {"Drives": [link("/b")]})
    (found,) = driver.inventory(bmc.node())["disks"]
    assert found["wwn"] == "5000C500A1B2C3D4"


@pytest.mark.parametrize(
    "bay",
    [
        {"Identifiers": [{"DurableName": None, "DurableNameFormat": None}]},
        {"Model": "N/A", "SerialNumber": "N/A", "CapacityBytes": 0},
        {"Manufacturer": "", "CapacityBytes": None, "Status": {"State": None}},
    ],
)
def test_a_bay_or_socket_that_says_in_other_words_that_it_is_empty_is_none(
    machine: ScriptedBmc, driver: RedfishBmc, bay: dict[str, Any]
) -> None:
    machine.documents["/drives/4"] = {"@odata.id": "/drives/4", "Name": "bay 4", **bay}
    socket = {"Model": "N/A", "TotalCores": 0, "TotalThreads": None, "Status": {"State": None}}
    machine.system["Processors"] = parts(machine, f"{SYSTEM}/Processors", {"TotalThreads": 16}, socket, bay)
    found = driver.inventory(machine.node())
    assert len(found["disks"]) == 2
    assert (found["cpu"]["socket_count"], found["cpu"]["count"]) == (1, 16)


def test_a_mac_of_zeros_is_none_and_others_may_be_spelled_otherwise(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    zeros = "00:00:00:00:00:00"
    bmc.system["EthernetInterfaces"] = parts(
        bmc,
        f"{SYSTEM}/EthernetInterfaces",
        {"MACAddress": zeros},
        {"MACAddress": zeros, "PermanentMACAddress": "52:54:00:00:00:01"},
        {"MACAddress": "52540000AB02"},
        {"MACAddress": "52-54-00-00-ab-03"},
        {"MACAddress": "not a MAC"},
    )
    macs = [one.mac for one in driver.nics(bmc.node())]
    assert macs == ["52:54:00:00:00:01", "52:54:00:00:ab:02", "52:54:00:00:ab:03"]


@pytest.mark.parametrize("serial", ["N/A", "0000"])
def test_drives_with_a_serial_number_that_is_none_are_several(
    bmc: ScriptedBmc, driver: RedfishBmc, serial: str
) -> None:
    drives = parts(bmc, f"{SYSTEM}/Storage/1/Drives", disk(serial), disk(serial))
    bmc.system["Storage"] = parts(bmc, f"{SYSTEM}/Storage", {"Drives": drives})
    assert len(driver.inventory(bmc.node())["disks"]) == 2


@pytest.mark.parametrize("key", ["Members", "Drives"])
def test_a_list_of_drives_goes_on_elsewhere(machine: ScriptedBmc, driver: RedfishBmc, key: str) -> None:
    """DSP0266, 7.7: any array of a resource may have a nextLink. bmc-toolbox/bmclib#451: the count is wrong."""
    more = f"{SYSTEM}/Storage/0/More?$skip=1"
    machine.documents[f"{SYSTEM}/Storage/0"] |= {"Drives@odata.nextLink": more, "Drives@odata.count": 0}
    machine.has(more, {key: [link("/drives/2"), link("/drives/5")], f"{key}@odata.nextLink": more})
    machine.has("/drives/5", {"@odata.id": "/drives/5", "Name": "5", **disk("S5")})
    machine.documents[f"{SYSTEM}/Storage/1"]["Drives"] = []
    machine.documents[f"{SYSTEM}/Storage"] = collection(f"{SYSTEM}/Storage/0", f"{SYSTEM}/Storage/1")
    assert [one["serial"] for one in driver.inventory(machine.node())["disks"]] == ["S1", "S2", "S5"]
