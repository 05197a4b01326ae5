"""Firmware of servers boots through our boot hosts, with a BMC that is driven over Redfish, in each way there is.

The ramdisk is the small one of ``tests.support.pxe``: what matters here is what happens before it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.boot.checks import check_end
from tests.support.boot.site import BootSite, plan
from tests.support.boot.ways import inspected
from tests.support.pxe import ramdisk


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a directory with the kernel and the small ramdisk."""
    place = tmp_path / "small"
    place.mkdir()
    ramdisk.build(place / "ipa.initramfs", tmp_path / "tree")
    shutil.copy(ramdisk.kernel(), place / "ipa.kernel")
    return place


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["uefi-pxe", "uefi-http", "bios-pxe"])
def test_a_machine_boots_from_the_network_and_proves_itself(
    tmp_path: Path, postgresql_url: str, small: Path, way: str
) -> None:
    with BootSite(tmp_path, postgresql_url, small, plan()) as site:
        machine = inspected(site, way)
        assert site.inventory(machine.name)["boot"]["current_boot_mode"] == machine.firmware
        assert site.inventory(machine.name)["system_vendor"]["serial_number"] == "serial-of-vm1"
        check_end(site, machine)


@pytest.mark.timeout(3600)
def test_a_boot_host_that_dies_in_the_middle_of_a_download_is_replaced_by_the_second_one(
    tmp_path: Path, postgresql_url: str, small: Path
) -> None:
    _grow(small / "ipa.initramfs")
    with BootSite(tmp_path, postgresql_url, small, plan(hosts=2)) as site:
        machine = site.add("vm1", firmware="bios")
        first = site.open_boot_host()
        site.slow_down(machine, megabits=8)
        site.inspect(machine)
        site.until_printed(machine, f"{first.address}:8080/ipa.initramfs")
        site.kill(first)
        site.speed_up(machine)
        state = site.until_done(machine)
        assert state == "manageable", site.told(machine)
        (second,) = (host for host in site.hosts if host is not first)
        assert f"{second.address}:8080/ipa.initramfs" in machine.console.text
        check_end(site, machine)


@pytest.mark.timeout(3600)
def test_a_machine_without_the_memory_for_its_ramdisk_is_reported_as_silent_after_its_script(
    tmp_path: Path, postgresql_url: str, small: Path
) -> None:
    _grow(small / "ipa.initramfs")
    with BootSite(tmp_path, postgresql_url, small, plan()) as site:
        machine = site.add("vm1", firmware="bios", memory=128)
        site.inspect(machine)
        site.until_step(machine, "boot-script")
        site.let_time_pass(machine)
        state = site.until_done(machine)
        node = site.node(machine.name)
        assert state == "inspect failed", site.told(machine)
        assert "boot script" in node["last_error"]
        assert site.steps(machine)["failed"]["reason"] == "ramdisk-silent"
        assert not site.hypervisor.is_on(machine.name)


def _grow(initramfs: Path) -> None:
    """Make it as large as a real one: the kernel skips zeros after the end of an archive."""
    with initramfs.open("ab") as file:
        file.truncate(120 << 20)
