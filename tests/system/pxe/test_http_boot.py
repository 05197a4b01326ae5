"""HTTP boot through the filter: each boot host has a web server, and machines load from the one that is open."""

from __future__ import annotations

import pytest

from tests.support.processes import until
from tests.support.pxe.clients import Client
from tests.support.pxe.filtered import FAST, FilteredLab
from tests.support.pxe.host import BootHost, boot_settings
from tests.support.pxe.lab import Lab
from tests.support.pxe.solicit import BOOT_FILE

IDLE, BUSY = "52:54:00:ab:00:01", "52:54:00:ab:00:02"
_IPXE = ("0x5d:0000", f"0x4d:{b'iPXE'.hex()}")


@pytest.fixture
def filtered(lab: Lab, postgresql_url: str) -> FilteredLab:
    """Return three boot hosts whose web servers are guarded; all of it runs."""
    built = FilteredLab(lab, postgresql_url, options="http_ports = 8080", sections=FAST)
    for host in lab.hosts:
        host.configure(boot_settings(3, http_url="http://{host}:8080/"))
        (host.tftp / "vmlinuz").write_text(f"the kernel of {host.name}")
        lab.play(
            f"httpd-{host.name}", [*host.space.prefix, "busybox", "httpd", "-f", "-p", "8080", "-h", str(host.tftp)]
        )
        built.start(host)
    return built


def test_a_machine_loads_from_the_open_host_over_both_families_and_from_no_other_one(filtered: FilteredLab) -> None:
    filtered.node(BUSY, booting=True)
    filtered.node(IDLE)
    client = filtered.lab.client(BUSY)
    idle = filtered.lab.client(IDLE)
    idle.space.ip("address", "add", "10.77.0.40/24", "dev", "eth0")
    first = filtered.wait_open()
    filtered.wait_applied()
    _loads(client, first)
    for host in filtered.hosts:
        assert (_get(client, _kernel(host)) != "") is (host is first), host.name
        assert _get(idle, _kernel(host)) == ""
    assert first.pxe_filter is not None
    first.pxe_filter.kill()
    second = filtered.wait_open(but=first)
    assert until(lambda: client.dhcp() is not None)
    _loads(client, second)
    assert _get(client, _kernel(first)) == ""


def _loads(client: Client, host: BootHost) -> None:
    """Do what iPXE does: ask for an address, load the script that the answer names, and the kernel beside it."""
    lease = client.dhcp(says=_IPXE)
    assert lease is not None
    assert (lease.boot_file, lease.next_server) == (f"http://{host.address}:8080/boot.ipxe", host.address)
    client.space.ip("address", "replace", f"{lease.address}/24", "dev", "eth0")
    assert "set base http://${next-server}:8080/ ||" in _get(client, lease.boot_file)
    assert _get(client, f"http://{lease.next_server}:8080/vmlinuz") == f"the kernel of {host.name}"
    offered = client.offered6(arch=7, user_class="iPXE")
    assert offered is not None
    url = offered[BOOT_FILE].decode()
    assert url == f"http://[{host.address6}]:8080/boot.ipxe"
    client.space.ip("address", "replace", "fd77::40/64", "dev", "eth0")
    assert f"set base http://[{host.address6}]:8080/" in _get(client, url)


def _kernel(host: BootHost) -> str:
    return f"http://{host.address}:8080/vmlinuz"


def _get(client: Client, url: str) -> str:
    """Return what is loaded from there; "" where nothing comes within two seconds."""
    return client.space.run("busybox", "timeout", "2", "busybox", "wget", "-q", "-O", "-", url).stdout
