"""What the agent finds in a server with the drivers of all hardware: disks, NICs, BMC, and the switch's ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.boot.checks import check_end, check_hardware, check_neighbors
from tests.support.boot.site import BootSite, plan
from tests.support.boot.ways import inspected


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", ["uefi-pxe"])
def test_the_inventory_is_that_of_the_machine_and_its_neighbors_are_known(
    tmp_path: Path, postgresql_url: str, generic_ramdisk: Path, way: str
) -> None:
    with BootSite(tmp_path, postgresql_url, generic_ramdisk, plan()) as site:
        machine = inspected(site, way)
        assert "2.0 TPM" in machine.console.text
        # The agent listens for LLDP once, however often it lists the NICs.
        assert machine.console.text.count("Waiting on LLDP info") <= 2
        check_hardware(site, machine)
        check_neighbors(site, machine)
        check_end(site, machine)
