"""What is checked of a machine that the real agent has inspected, whatever way it booted."""

from __future__ import annotations

import urllib.request
from typing import Any, Final

from tests.support.boot import switch
from tests.support.boot.machine import Machine
from tests.support.boot.site import BootSite

_GB: Final = 1 << 30
# A collector of an operator, in the words of ``tests.support.ramdisk.publish``.
FANS: Final = {"fans": "#!/bin/sh\necho '{\"fans\": 4}'\n"}


def check_hardware(site: BootSite, machine: Machine) -> None:
    """Compare the inventory with the machine that libvirt was told to make."""
    inventory = site.inventory(machine.name)
    nics = {nic["mac_address"]: nic for nic in inventory["interfaces"]}
    assert nics.keys() == {machine.mac, machine.spare}
    assert nics[machine.mac]["has_carrier"] is True
    # The disk with the parameters, which the BMC has inserted, is one of them, too.
    disks = {disk["serial"]: disk for disk in inventory["disks"] if disk["size"] >= _GB}
    assert {serial: disk["size"] // _GB for serial, disk in disks.items()} == {
        f"SATA-of-{machine.name}": 8,
        f"NVME-of-{machine.name}": 16,
    }
    assert disks[f"NVME-of-{machine.name}"]["name"] == "/dev/nvme0n1"
    assert inventory["memory"]["physical_mb"] == machine.memory
    assert inventory["cpu"]["count"] == 1
    assert inventory["cpu"]["architecture"] == "x86_64"
    assert inventory["system_vendor"]["serial_number"] == f"serial-of-{machine.name}"
    assert inventory["boot"]["current_boot_mode"] == machine.firmware
    assert inventory["bmc_address"] == machine.management.address
    assert inventory["bmc_mac"] == machine.management.mac


def check_neighbors(site: BootSite, machine: Machine) -> None:
    """The switch's ports are known, by what it said over LLDP."""
    link = site.ports(machine.name)[machine.mac]["local_link_connection"]
    assert link["port_id"] == machine.taps[0]
    assert link["switch_info"] == switch.NAME


def check_collectors(results: dict[str, Any], machine_url: str) -> None:
    """SMART's verdict of the only disk and the operator's collector are in the plugin data and on the page."""
    assert results["smart"]["data"] == {"/dev/nvme0": "passed"}, results
    assert results["fans"]["data"] == {"fans": 4}, results
    with urllib.request.urlopen(f"{machine_url}?tab=hardware") as page:
        text = page.read().decode()
    assert "Collectors" in text
    assert "/dev/nvme0" in text
    assert "fans" in text


def check_end(site: BootSite, machine: Machine, *, proof: str = "verified") -> None:
    """It has proven itself, booted once, and is off; the node has what follows."""
    node, steps = site.node(machine.name), site.steps(machine)
    assert node["last_error"] is None
    assert node["power_state"] == "power off"
    assert not site.hypervisor.is_on(machine.name)
    assert node["properties"]["memory_mb"] == machine.memory
    assert node["properties"]["cpu_arch"] == "x86_64"
    assert steps["callback"]["detail"]["proof"] == proof
    assert list(steps)[-1] == "finished"
