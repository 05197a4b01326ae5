"""Servers boot our ramdisk as an image over virtual media, and get their parameters on a second virtual drive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.boot.checks import check_end, check_hardware, check_neighbors
from tests.support.boot.site import IMAGES, BootSite, plan

pytestmark = pytest.mark.timeout(7200)


@pytest.mark.parametrize("firmware", ["uefi", "bios"])
def test_a_machine_boots_the_image_and_finds_its_parameters_on_the_disk(
    tmp_path: Path, postgresql_url: str, generic_ramdisk: Path, firmware: str
) -> None:
    image = f"{IMAGES}/ipa.iso"
    with BootSite(tmp_path, postgresql_url, generic_ramdisk, plan(inspector=f"ramdisk_iso = {image}")) as site:
        machine = site.add("vm1", firmware=firmware)
        site.inspect(machine)
        inserted = site.bmc.media(machine.uuid)
        state = site.until_done(machine)
        assert state == "manageable", site.told(machine)
        assert inserted["Cd"] == image
        assert "/v1/ramdisk_parameters/" in inserted["Floppy"]
        assert "?secret=***" in machine.console.text  # nobody gets it there
        check_hardware(site, machine)
        check_neighbors(site, machine)
        check_end(site, machine)
        assert site.bmc.media(machine.uuid) == {"Cd": "", "Floppy": ""}
