"""What the BMC of each vendor knows of its machine, and what is in a report of that BMC."""

from __future__ import annotations

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from tests.support.vendors.hardware import BMC_MAC, DISKS, GIB, SERIAL, THREADS, macs_of
from tests.support.vendors.service import Service, node_of


def test_each_nic_is_listed_once_with_its_mac(service: Service, node: Node, bmc: RedfishBmc) -> None:
    assert [nic.mac for nic in bmc.nics(node)] == list(macs_of(service.personality))


def test_the_hardware_is_what_is_in_the_machine(service: Service, node: Node, bmc: RedfishBmc) -> None:
    of, inventory = service.personality, bmc.inventory(node)
    assert [nic["mac_address"] for nic in inventory["interfaces"]] == list(macs_of(of))
    assert sorted(disk["size"] for disk in inventory["disks"]) == sorted(size for _, size in DISKS)
    if not of.parts.simple_storage:
        assert [disk["serial"].strip() for disk in inventory["disks"]] == [serial for serial, _ in DISKS]
    assert (inventory["cpu"]["count"], inventory["cpu"]["socket_count"]) == (THREADS, 2)
    assert inventory["cpu"]["architecture"] == "x86_64"
    assert inventory["memory"] == {"total": GIB * 2**30, "physical_mb": GIB * 1024}
    vendor = inventory["system_vendor"]
    assert (vendor["manufacturer"], vendor["product_name"]) == (of.manufacturer, of.model)
    assert vendor["serial_number"].strip() == SERIAL
    assert inventory["boot"] == {"current_boot_mode": "uefi"}
    broken = any(one.endswith("of the manager") for one in of.parts.broken)
    assert inventory.get("bmc_mac") == (None if broken else BMC_MAC)


def test_health_and_firmware_are_read_to_the_end(service: Service, bmc: RedfishBmc) -> None:
    found = bmc.health(node_of(service))
    assert found["health"]["state"] == "ok"
    assert found["health"]["complete"]
    if not service.personality.parts.simple_storage:
        drives = [part for part in found["health"]["parts"] if part["component"] == "drive"]
        assert sorted(one["serial"].strip() for one in drives) == sorted(serial for serial, _ in DISKS)
    assert "6.10.30.00" in {one["version"] for one in found["firmware"] if one["component"] == "bmc"}


def test_of_a_host_and_its_baseboard_one_must_be_named(service: Service, bmc: RedfishBmc) -> None:
    of = service.personality
    node = node_of(service, redfish_system_id=None)
    assert [path.rstrip("/").rpartition("/")[2] for path in bmc.systems(node)] == [*of.other_systems, of.system]
    if not of.other_systems:
        bmc.get_power(node)
        return
    with pytest.raises(BmcError) as caught:
        bmc.get_power(node)
    assert not caught.value.transient
    assert service.machine.resets == []
