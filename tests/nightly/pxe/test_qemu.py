"""End to end with a machine that really boots: firmware, DHCP, TFTP, kernel, ramdisk, callback, hooks, end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ferroscope_client.client import ServiceError
from tests.support.processes import until
from tests.support.pxe import ramdisk
from tests.support.pxe.host import boot_settings
from tests.support.pxe.lab import Lab
from tests.support.pxe.machine import VirtualMachine, attach
from tests.support.pxe.site import Plan, Site

MAC = "52:54:00:fe:00:01"
# Seconds until an emulated machine has called back; if it finds no server at first, its firmware begins again.
BOOT = 300

SCRIPT_URL = "http://10.77.0.1:6385/v1/boot.ipxe"
CALLBACK_URL = "http://10.77.0.1:6385/v1/continue_inspection"
OPTIONS = f"""\
[inspector]
hooks = $default_hooks,memory
[boot]
machine_script_url = {SCRIPT_URL}
[log]
access = true
"""
# Before the PXE filter sees it.
_NO_DHCPV4 = """\
table netdev late {
    chain ingress {
        type filter hook ingress device "boot" priority -200;
        udp dport 67 drop
    }
}
"""


@contextmanager
def _site(
    directory: Path,
    database_url: str,
    plan: Plan = Plan(options=OPTIONS, boot={"machine_script_url": SCRIPT_URL}),  # noqa: B008  # it is frozen
) -> Iterator[tuple[Site, VirtualMachine]]:
    """Give a site with the ramdisk, and the machine vm1 on its network."""
    with Site(directory, database_url, plan) as site:
        site.install_ramdisk()
        machine = attach(site.lab, "vm1", MAC)
        site.machines["vm1"] = machine
        yield site, machine


def test_a_virtual_machine_boots_through_the_open_pxe_filter_proves_itself_and_its_inspection_finishes(
    tmp_path: Path, postgresql_url: str
) -> None:
    with _site(tmp_path, postgresql_url) as (site, machine):
        site.enroll("vm1", MAC)
        site.provision("vm1", "inspect")
        spoofed = until(lambda: _refused(site))
        site.until_state("vm1", "manageable", "inspect failed", seconds=BOOT)
        node, inventory = site.node("vm1"), site.inventory("vm1")
        timeline = {entry["step"]: entry for entry in site.timeline("vm1")}
        steps = list(timeline)
        ports = site.ports("vm1")
        logged = "".join(process.output() for process in site.processes)
    assert node["provision_state"] == "manageable", f"{node['last_error']}\n{machine.output()[-3000:]}"
    assert machine.starts == 1
    # It got the secret by its script, and returned it; somebody else without it was refused.
    assert spoofed
    secret = re.search(r"continue_inspection\?secret=([0-9a-f]{64})", machine.output())
    assert secret is not None, machine.output()[-3000:]
    assert timeline["callback"]["detail"]["proof"] == "verified"
    assert timeline["callback-refused"]["reason"] == "callback-unproven"
    assert timeline["boot-script"]["detail"]["source"]
    assert "/v1/boot.ipxe" in logged
    assert secret[1] not in logged
    # What only a machine that runs can know.
    assert inventory["system_vendor"]["serial_number"] == "vm1"
    assert {nic["mac_address"] for nic in inventory["interfaces"]} == {MAC, machine.spare}
    assert inventory["memory"]["physical_mb"] == 1024
    assert node["properties"]["memory_mb"] == 1024
    assert inventory["boot"] == {"current_boot_mode": "bios", "pxe_interface": MAC}
    assert node["properties"]["cpu_arch"] == "x86_64"
    assert set(ports) == {MAC}
    assert steps[-1] == "finished"


def test_a_virtual_machine_boots_by_its_own_script_with_the_files_of_its_node(
    tmp_path: Path, postgresql_url: str
) -> None:
    # The boot hosts' own kernel is none, so that only the script of the node can boot the machine.
    plan = Plan(options=OPTIONS, boot={"machine_script_url": SCRIPT_URL, "kernel": "none", "ramdisk": "none"})
    options = f"callback_url = {CALLBACK_URL}\nkernel_options = console=ttyS0 quiet panic=1\n"
    plan = msgspec.structs.replace(plan, options=OPTIONS.replace("[log]", f"{options}[log]"))
    with _site(tmp_path, postgresql_url, plan) as (site, machine):
        uuid = site.enroll("vm1", MAC)
        files = {"deploy_kernel": "tftp://${next-server}/vmlinuz", "deploy_ramdisk": "tftp://${next-server}/initramfs"}
        patch = [{"op": "add", "path": f"/driver_info/{name}", "value": url} for name, url in files.items()]
        patch.append({"op": "add", "path": "/boot_interface", "value": "ipxe"})
        site.api.call("PATCH", f"/v1/nodes/{uuid}", patch)
        site.provision("vm1", "inspect")
        state = site.until_state("vm1", "manageable", "inspect failed", seconds=BOOT)
        timeline = {entry["step"]: entry for entry in site.timeline("vm1")}
    assert state == "manageable", machine.output()[-3000:]
    assert machine.starts == 1
    assert timeline["callback"]["detail"]["proof"] == "verified"
    assert "vmlinuz" in timeline["ipxe"]["message"]


def test_a_machine_whose_dhcpv4_is_answered_late_asks_for_its_script_again_with_an_ipv4_address(
    tmp_path: Path, postgresql_url: str
) -> None:
    with _site(tmp_path, postgresql_url) as (site, machine):
        site.enroll("vm1", MAC)
        for host in site.hosts:
            host.nft(_NO_DHCPV4)
        site.provision("vm1", "inspect")
        without = until(lambda: "No answer from Ferroscope; asking again" in machine.output(), seconds=BOOT)
        for host in site.hosts:
            host.nft("delete table netdev late")
        state = site.until_state("vm1", "manageable", "inspect failed", seconds=BOOT)
    assert without, machine.output()
    assert state == "manageable"
    assert "Giving up" not in machine.output()


def _refused(site: Site) -> bool:
    """Whether a callback of somebody who knows the machine's MAC address only is refused."""
    try:
        site.call_back(MAC)
    except ServiceError as exc:
        return exc.status == 404
    return False


def test_over_ipv6_alone_a_virtual_machine_loads_from_the_open_host_and_goes_on_with_the_next_one(
    tmp_path: Path,
) -> None:
    with Lab(tmp_path, hosts=2) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            host.configure(boot_settings(2, ranges=("fd77::1000-fd77::ffff",)))
        (second.tftp / "vmlinuz").symlink_to(ramdisk.kernel())
        (second.tftp / "initramfs").write_bytes(bytes(4096))
        machine = attach(lab, "vm1", MAC)
        first.start_dnsmasq()
        machine.power_on()
        lab.after(machine.power_off)
        moved = until(lambda: "asking for another boot host" in machine.output())
        first.kill_dnsmasq()
        second.start_dnsmasq()
        assert moved, machine.output()[-2000:]
        # The kernel that starts clears the serial console and may swallow iPXE's last "ok". That it runs and misses a
        # root file system (the initramfs is empty) shows that both files came.
        assert until(lambda: "Unable to mount root fs" in machine.output()), machine.output()[-2000:]
        said = machine.output()
    assert "tftp://[fd77::11]/boot.ipxe... ok" in said
    assert "tftp://[fd77::12]/boot.ipxe... ok" in said
    assert "tftp://[fd77::12]/initramfs..." in said
