"""What a device is made of, from the inventories of machines that may report anything."""

from __future__ import annotations

from typing import Any

from ferroscope.contrib.dcim.machines import DcimInterface, InventoryItem, machine
from tests.support.rows import each

NODE = {"name": "rack1-u07"}
INVENTORY = {
    "system_vendor": {
        "manufacturer": "Dell Inc.",
        "product_name": "PowerEdge R650 (SKU=1;ModelName=PowerEdge R650)",
        "serial_number": "9YPX7M2",
    },
    "interfaces": [
        {"name": "eth0", "mac_address": "52:54:00:0A:01:07"},
        {"name": "eth0", "mac_address": "52:54:00:0a:01:08"},
        {"name": "eth1", "mac_address": "no MAC"},
    ],
    "disks": [{"name": "/dev/sda", "model": "PM1733", "serial": "S4YN"}],
}
EXTRA = {
    "parsed_lldp": {"eth0": {"switch_system_name": "leaf1", "switch_port_id": "Ethernet7"}},
    "dmi": {"memory": {"devices": [{"Locator": "A1", "Size": "32 GB", "Manufacturer": "Samsung"}]}},
}


def test_a_machine_has_its_interfaces_disks_and_dimms() -> None:
    found = machine(NODE, INVENTORY, EXTRA)
    assert found is not None
    assert (found.manufacturer, found.model, found.serial) == ("Dell Inc.", "PowerEdge R650", "9YPX7M2")
    # of two with one name, Nautobot can have one
    assert found.interfaces == (DcimInterface("eth0", "52:54:00:0a:01:08", "leaf1", "Ethernet7"),)
    assert found.items == (InventoryItem("/dev/sda", "PM1733", "S4YN"), InventoryItem("A1", "", "", "Samsung"))


@each(
    ("node", "inventory"),
    [
        ({"name": None}, INVENTORY),
        (NODE, None),
        (NODE, {}),
        (NODE, {"system_vendor": {"manufacturer": "Dell Inc.", "product_name": "Not Specified"}}),
    ],
)
def test_a_machine_of_which_too_little_is_known_is_no_device(node: dict[str, Any], inventory: Any) -> None:
    assert machine(node, inventory, {}) is None


def test_texts_that_a_machine_reports_are_short_and_plain() -> None:
    vendor = {"manufacturer": "A" * 1000, "product_name": "B\x1b[31m\nC", "serial_number": "\u202e" * 100}
    found = machine(NODE, {"system_vendor": vendor}, None)
    assert found is not None
    assert (len(found.manufacturer), found.model, len(found.serial)) == (100, "B\ufffd[31m\\nC", 50)
    assert found.serial.isascii()
