"""The fake BMC succeeds, and the stored node is its truth."""

from __future__ import annotations

from ferroscope.bmc.fake import FakeBmc
from ferroscope.contracts.bmc import Bmc, BootDevice, Power
from ferroscope.core.model import Node
from tests.support.rows import each


@each(
    ("stored", "power"),
    [(None, Power.UNKNOWN), ("power off", Power.OFF), ("power on", Power.ON), ("error", Power.UNKNOWN)],
)
def test_the_power_state_is_the_stored_one(stored: str | None, power: Power) -> None:
    bmc: Bmc = FakeBmc()
    assert bmc.get_power(Node(uuid="1", driver="fake", power_state=stored)) is power


def test_a_power_command_succeeds_and_leaves_the_node_to_its_owner() -> None:
    node = Node(uuid="1", driver="fake-hardware")
    FakeBmc().set_power(node, Power.ON)
    assert node.power_state is None


def test_the_boot_device_is_remembered_per_node() -> None:
    bmc = FakeBmc()
    one, two = Node(uuid="1", driver="fake"), Node(uuid="2", driver="fake")
    assert bmc.get_boot_device(one) == (BootDevice.PXE, False)
    bmc.set_boot_device(one, BootDevice.DISK, persistent=True)
    assert bmc.get_boot_device(one) == (BootDevice.DISK, True)
    assert bmc.get_boot_device(two) == (BootDevice.PXE, False)
