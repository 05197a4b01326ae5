"""What the cases are made of: small machines by hand, and servers of the simulator with a shorter bus."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from ferroscope_sim import inventory as sim
from ferroscope_sim.inventory.body import Neighbour, tlvs

GIB = 1 << 30
MAC = "52:54:00:aa:00:{:02x}"


def nic(number: int, **changes: Any) -> dict[str, Any]:
    """Return the record of one NIC as ironic-python-agent writes it."""
    record = {
        "name": f"eth{number}",
        "mac_address": MAC.format(number),
        "ipv4_address": f"192.0.2.{10 + number}",
        "ipv6_address": f"fe80::5054:ff:feaa:{number:x}%eth{number}",
        "has_carrier": True,
        "lldp": None,
        "vendor": "0x8086",
        "product": "0x1563",
        "client_id": None,
        "biosdevname": None,
        "speed_mbps": 10000,
        "pci_address": f"0000:3b:00.{number}",
        "driver": "ixgbe",
    }
    return {**record, **changes}


def disk(letter: str, gib: float = 100, **changes: Any) -> dict[str, Any]:
    """Return the record of one disk."""
    record = {
        "name": f"/dev/sd{letter}",
        "model": "MTFDDAK480TDS",
        "size": int(gib * GIB),
        "rotational": False,
        "wwn": f"0x500a0751e000000{letter}",
        "serial": f"SERIAL-{letter.upper()}",
        "vendor": "ATA",
        "wwn_with_extension": f"0x500a0751e000000{letter}",
        "wwn_vendor_extension": None,
        "hctl": f"{ord(letter) - 97}:0:0:0",
        "by_path": f"/dev/disk/by-path/pci-0000:00:17.0-ata-{ord(letter) - 96}",
    }
    return {**record, **changes}


def pci(vendor: str, product: str, number: int = 0) -> dict[str, Any]:
    """Return the record of one PCI device."""
    bus = f"0000:{0x20 + number:02x}:00.0"
    return {
        "vendor_id": vendor,
        "product_id": product,
        "class": "030200",
        "revision": "a1",
        "bus": bus,
        "numa_node_id": "0",
    }


def body(inventory: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a callback body of a small machine; ``inventory`` replaces keys, those that are None go."""
    found: dict[str, Any] = {
        "interfaces": [nic(0), nic(1, ipv4_address=None)],
        "cpu": {
            "model_name": "Intel(R) Xeon(R) Gold 6226R CPU @ 2.90GHz",
            "frequency": "3900.0",
            "count": 64,
            "architecture": "x86_64",
            "flags": ["fpu", "pse", "sse2", "vmx", "smx", "aes", "pdpe1gb"],
            "socket_count": 2,
        },
        "memory": {"total": 201_000_000_000, "physical_mb": 196_608},
        "disks": [disk("a"), disk("b", 480)],
        "bmc_address": "203.0.113.7",
        "bmc_v6address": "::/0",
        "bmc_mac": "52:54:00:bb:00:01",
        "system_vendor": {"product_name": "R1", "serial_number": "X1", "manufacturer": "Acme"},
        "boot": {"current_boot_mode": "uefi", "pxe_interface": MAC.format(0)},
        "hostname": "localhost",
    }
    found = {key: value for key, value in {**found, **(inventory or {})}.items() if value is not None}
    plugin_data = {
        "root_disk": next(iter(found.get("disks") or []), None),
        "boot_interface": MAC.format(0),
        "configuration": {
            "collectors": ["default"],
            "managers": [{"name": "generic_hardware_manager", "version": "1.2"}],
        },
        "error": None,
    }
    everything = copy.deepcopy({"inventory": found, **plugin_data, **more})
    return {key: value for key, value in everything.items() if value is not None or key == "error"}


def server(index: int) -> dict[str, Any]:
    """Return the body of a simulated server, with a dozen PCI devices."""
    found = sim.document(index, size=sim.MIN_SIZE)
    found.pop("numa_topology", None)
    found["pci_devices"] = found["pci_devices"][:12]
    return found


def many(count: int) -> list[dict[str, Any]]:
    """Return NICs with MACs of their own, every hundredth with LLDP and an address."""
    octets = itertools.product(range(256), repeat=2)
    return [
        {
            "name": f"eth{number}",
            "mac_address": f"52:54:00:cc:{high:02x}:{low:02x}",
            "ipv4_address": None if number % 100 else f"192.0.2.{number // 100 + 1}",
            "lldp": None if number % 100 else lldp(port=f"Ethernet{number}"),
        }
        for number, (high, low) in zip(range(count), octets, strict=False)
    ]


def lldp(*, switch: str = "leaf1.example.com", port: str = "Ethernet7", vlan: int = 100) -> list[list[Any]]:
    """Return what a switch announces, as the ramdisk records it."""
    neighbour = Neighbour(
        chassis_mac="52:54:00:dd:00:01",
        system_name=switch,
        system_description="Acme switch",
        management_address="198.51.100.1",
        port_name=port,
        port_description="to the rack",
        vlan=vlan,
        mtu=9216,
    )
    return [list(tlv) for tlv in tlvs(neighbour)]
