"""Booting once from the network and from virtual media, with the BMC of each vendor."""

from __future__ import annotations

from typing import Final

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.core.virtual_media import Image
from ferroscope_client.core.reasons import Reason
from tests.support.vendors.machine import DISK, NETWORK
from tests.support.vendors.personality import CD
from tests.support.vendors.service import Service, node_of
from tests.system.bmc.vendors.conftest import Reaches

ISO: Final = "http://192.0.2.1:8080/Images/Ramdisk-42.iso"
PARAMETERS: Final = "http://192.0.2.1:6385/v1/ramdisk_parameters/Node/Key/disk.img"


# Some BMCs refuse http, and are given the same by https.
SECURE: Final = {url: url.replace("http:", "https:") for url in (ISO, PARAMETERS)}


def drives(service: Service) -> dict[str, str]:
    """Return what is in the virtual drives, by name; whatever was said by https is told as by http."""
    return {name: _plain(drive.image) for name, drive in service.machine.drives.items() if drive.image}


def boots(service: Service) -> list[str]:
    """Return what the machine has booted from, likewise."""
    return list(map(_plain, service.machine.boots))


def _plain(image: str) -> str:
    return image.replace("https:", "http:")


def start(bmc: RedfishBmc, node: Node, reaches: Reaches, *, again: bool = False) -> None:
    """Have the machine boot."""
    if again:
        bmc.reboot(node)
    else:
        bmc.set_power(node, Power.ON)
    assert reaches(node, Power.ON)


@pytest.mark.parametrize("properties", [{}, {"capabilities": "boot_mode:uefi"}], ids=["any mode", "uefi"])
def test_a_machine_boots_once_from_the_network(
    service: Service, bmc: RedfishBmc, reaches: Reaches, properties: dict[str, str]
) -> None:
    node = node_of(service)
    node.properties = dict(properties)
    bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
    start(bmc, node, reaches)
    start(bmc, node, reaches, again=True)
    assert service.machine.boots == [NETWORK, DISK]
    assert service.machine.override["BootSourceOverrideMode"] == "UEFI"


@pytest.mark.parametrize("device", [BootDevice.PXE, BootDevice.CDROM])
def test_a_boot_that_was_set_once_is_taken_back_before_the_machine_comes_to_it(
    service: Service, bmc: RedfishBmc, reaches: Reaches, device: BootDevice
) -> None:
    node = node_of(service)
    assert not bmc.clear_boot_device(node, device)
    if device is BootDevice.PXE:
        bmc.set_boot_device(node, device, persistent=False)
    else:
        bmc.insert_ramdisk(node, Image(ISO, secure=SECURE))
    assert not bmc.clear_boot_device(node, BootDevice.DISK)
    assert bmc.clear_boot_device(node, device)
    assert not bmc.clear_boot_device(node, device)
    start(bmc, node, reaches)
    assert service.machine.boots == [DISK]


def test_a_machine_boots_from_the_network_again_and_again_if_its_bmc_can(
    service: Service, bmc: RedfishBmc, reaches: Reaches
) -> None:
    node = node_of(service)
    if "Continuous" not in service.personality.boot.enabled:
        with pytest.raises(BmcError) as caught:
            bmc.set_boot_device(node, BootDevice.PXE, persistent=True)
        assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)
        return
    bmc.set_boot_device(node, BootDevice.PXE, persistent=True)
    start(bmc, node, reaches)
    start(bmc, node, reaches, again=True)
    assert service.machine.boots == [NETWORK, NETWORK]


def test_a_boot_is_set_again_while_the_machine_starts(service: Service, bmc: RedfishBmc, reaches: Reaches) -> None:
    node = node_of(service)
    start(bmc, node, reaches)
    bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
    start(bmc, node, reaches, again=True)
    assert service.machine.boots == [DISK, NETWORK]


def test_what_is_set_is_said(service: Service, bmc: RedfishBmc) -> None:
    node = node_of(service)
    bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
    expected = (None, None) if service.personality.boot.settings else (BootDevice.PXE, False)
    assert bmc.get_boot_device(node) in (expected, (BootDevice.PXE, False))


def test_a_machine_boots_once_from_virtual_media_which_are_ejected_afterwards(
    service: Service, bmc: RedfishBmc, reaches: Reaches
) -> None:
    node, image = node_of(service), Image(ISO, PARAMETERS, secure=SECURE)
    remark = bmc.insert_ramdisk(node, image)
    second = [one for one in service.personality.media.slots if one.insert != "none"][1:]
    assert (remark is None) == bool(second)
    assert set(drives(service).values()) == ({ISO, PARAMETERS} if second else {ISO})
    start(bmc, node, reaches)
    assert boots(service) == [ISO]
    assert bmc.eject_ramdisk(node, image)
    assert drives(service) == {}
    assert not bmc.eject_ramdisk(node, image)
    start(bmc, node, reaches, again=True)
    assert boots(service) == [ISO, DISK]


def test_media_that_are_inserted_already_are_not_inserted_again(service: Service, bmc: RedfishBmc) -> None:
    node, image = node_of(service), Image(ISO, PARAMETERS, secure=SECURE)
    bmc.insert_ramdisk(node, image)
    before = drives(service)
    bmc.insert_ramdisk(node, image)
    assert drives(service) == before


def test_a_medium_of_somebody_else_gives_way_only_where_it_is_in_the_way(service: Service, bmc: RedfishBmc) -> None:
    node, other = node_of(service), "http://203.0.113.9/other.iso"
    *_, last = (one for one in service.personality.media.slots if one.insert != "none")
    drive = service.machine.drives[last.id]
    drive.image = drive.shown = other
    assert not bmc.eject_ramdisk(node, Image(ISO, PARAMETERS, secure=SECURE))
    bmc.insert_ramdisk(node, Image(ISO, secure=SECURE))
    bmc.eject_ramdisk(node, Image(ISO, secure=SECURE))
    free = [one for one in service.personality.media.slots if set(CD) & set(one.types) and one.insert != "none"]
    assert drives(service) == ({last.id: other} if len(free) > 1 or last not in free else {})


def test_a_machine_does_not_boot_from_a_medium_that_was_accepted_and_is_not_there(
    service: Service, bmc: RedfishBmc
) -> None:
    service.machine.loses_images = True
    with pytest.raises(BmcError):
        bmc.insert_ramdisk(node_of(service), Image(ISO, secure=SECURE))
    machine = service.machine
    assert {one["BootSourceOverrideEnabled"] for one in (machine.override, machine.pending)} == {"Disabled"}
