"""A machine that boots beside a foreign DHCP server: its address is from there, all else from the open boot host."""

from __future__ import annotations

from pathlib import Path

from tests.nightly.pxe.test_qemu import BOOT, MAC
from tests.support.pxe import foreign
from tests.support.pxe.machine import attach
from tests.support.pxe.site import Plan, Site


def test_a_virtual_machine_boots_by_proxy_dhcp_beside_a_foreign_server(tmp_path: Path, postgresql_url: str) -> None:
    boot = {"ranges": (), "proxied_networks": ("10.77.0.0/24",), "http_url": ""}
    with Site(tmp_path, postgresql_url, Plan(boot=boot)) as site:
        foreign.serve(site.lab)
        site.install_ramdisk()
        machine = attach(site.lab, "vm1", MAC)
        site.machines["vm1"] = machine
        site.enroll("vm1", MAC)
        site.provision("vm1", "inspect")
        site.until_state("vm1", "manageable", "inspect failed", seconds=BOOT)
        node, inventory = site.node("vm1"), site.inventory("vm1")
    assert node["provision_state"] == "manageable", f"{node['last_error']}\n{machine.output()[-3000:]}"
    assert machine.starts == 1
    addresses = [nic["ipv4_address"] for nic in inventory["interfaces"] if nic["mac_address"] == MAC]
    assert all(foreign.is_its(str(one)) for one in addresses if one), addresses
