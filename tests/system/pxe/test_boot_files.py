"""What machines are told to boot, on the wire: by a real dnsmasq with the generated file, to firmware and to iPXE."""

from __future__ import annotations

import pytest

from tests.support.processes import until
from tests.support.pxe.clients import Client
from tests.support.pxe.host import BootHost, boot_settings
from tests.support.pxe.lab import Lab
from tests.support.pxe.solicit import BOOT_FILE, VENDOR_CLASS

MAC = "52:54:00:aa:00:02"
BIOS, X64, X64_TOO, ARM64, X64_HTTP, ARM64_HTTP = 0, 7, 9, 11, 16, 19


@pytest.fixture
def host(lab: Lab) -> BootHost:
    """Return the second of three boot hosts; its dnsmasq does not run yet."""
    return lab.hosts[1]


@pytest.fixture
def client(lab: Lab) -> Client:
    """Return a machine on its network."""
    return lab.client(MAC)


def test_over_ipv6_firmware_and_ipxe_get_urls_that_name_the_host_that_answers(host: BootHost, client: Client) -> None:
    """DHCPv6 has the architecture in option 61: https://github.com/metal3-io/ironic-image/issues/916."""
    host.start_dnsmasq()
    told = {
        (arch, user_class): _file6(client, arch, user_class)
        for arch in (BIOS, X64, X64_TOO, ARM64, X64_HTTP)
        for user_class in ("", "iPXE")
    }
    script = "tftp://[fd77::12]/boot.ipxe"
    assert told == {
        (BIOS, ""): "",  # it does not boot over IPv6
        (X64, ""): "tftp://[fd77::12]/ipxe.efi",
        (X64_TOO, ""): "tftp://[fd77::12]/ipxe.efi",
        (ARM64, ""): "tftp://[fd77::12]/ipxe-arm64.efi",
        (X64_HTTP, ""): "",  # there is no web server
        **{(arch, "iPXE"): script for arch in (BIOS, X64, X64_TOO, ARM64, X64_HTTP)},
    }


def test_firmware_that_boots_over_http_gets_a_url_and_reads_that_it_is_meant(host: BootHost, client: Client) -> None:
    """It takes nothing else: https://github.com/xcat2/xcat-core/issues/7743."""
    host.configure(boot_settings(3, http_url="http://192.0.2.1/boot/"))
    host.start_dnsmasq()
    for arch, loader in ((X64_HTTP, "ipxe.efi"), (ARM64_HTTP, "ipxe-arm64.efi")):
        offered = client.offered6(arch=arch)
        assert offered is not None
        assert offered[BOOT_FILE].decode() == f"http://192.0.2.1/boot/{loader}"
        # Behind an enterprise's number and the length, as EDK II looks for it.
        assert offered[VENDOR_CLASS][4:] == b"\x00\x0aHTTPClient"
        assert _file4(client, arch) == f"http://192.0.2.1/boot/{loader}"
    assert _file6(client, X64) == "tftp://[fd77::12]/ipxe.efi"
    assert _file6(client, X64, "iPXE") == "http://192.0.2.1/boot/boot.ipxe"
    assert _file4(client, X64) == "ipxe.efi"


def _file6(client: Client, arch: int, user_class: str = "") -> str:
    offered = client.offered6(arch=arch, user_class=user_class)
    assert offered is not None
    return offered.get(BOOT_FILE, b"").decode()


def _file4(client: Client, arch: int, user_class: str = "") -> str:
    said = (f"0x5d:{arch:04x}", *((f"0x4d:{user_class.encode().hex()}",) if user_class else ()))
    lease = client.dhcp(says=said)
    assert lease is not None
    return lease.boot_file


def test_a_boot_host_tells_the_networks_prefix_and_is_nobodys_router(host: BootHost, client: Client) -> None:
    host.start_dnsmasq()
    routes = lambda: client.space.ip("-6", "route")  # noqa: E731
    assert until(lambda: "fd77::/64" in routes()), "no advertisement came"
    assert "default" not in routes()
