"""dnsmasq beside another DHCP server: it assigns no addresses, and machines load from this host."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.config.options import BootSettings, InspectorSettings, PxeFilterSettings
from ferroscope.contrib.boot import dnsmasq, ipxe
from ferroscope.contrib.boot.addresses import AddressError
from tests.support.rows import each

_PXE_FILTER = PxeFilterSettings(interfaces=("eth1",))
_SETTINGS = BootSettings(
    hosts=("boot1",),
    addresses=("boot1 10.0.0.11",),
    proxied_networks=("10.0.0.0/24",),
    callback_url="http://10.0.0.1:6385/v1/continue_inspection",
)


def _lines(**changes: object) -> list[str]:
    settings = msgspec.structs.replace(_SETTINGS, **changes)
    return dnsmasq.configuration(settings, _PXE_FILTER, "boot1").splitlines()


def test_it_assigns_no_addresses() -> None:
    assert [line for line in _lines() if line.startswith("dhcp-range")] == ["dhcp-range=10.0.0.0,proxy,255.255.255.0"]


def test_each_kind_of_firmware_gets_its_loader_and_ia32_none() -> None:
    lines = _lines()
    assert "pxe-service=tag:!ipxe,X86-64_EFI,Ferroscope,ipxe.efi" in lines
    assert "pxe-service=tag:!ipxe,ARM64_EFI,Ferroscope,ipxe-arm64.efi" in lines
    assert "dhcp-boot=tag:bios,tag:!ipxe,undionly.kpxe,,10.0.0.11" in lines
    assert not [line for line in lines if "IA32" in line]


def test_ipxe_gets_the_script_from_this_host_whatever_the_other_server_calls_itself() -> None:
    assert "dhcp-boot=tag:ipxe,boot.ipxe,,10.0.0.11" in _lines()
    http = _lines(http_url="http://{host}:8080/")
    assert "dhcp-boot=tag:ipxe,http://10.0.0.11:8080/boot.ipxe,,10.0.0.11" in http
    script = ipxe.script(_SETTINGS, InspectorSettings(), "boot1")
    assert (
        "isset ${proxydhcp/next-server} && set base tftp://${proxydhcp/next-server}/ || set base tftp://10.0.0.11/"
        in script
    )
    assert "${next-server}" not in script.replace("proxydhcp/next-server", "")


def test_ipv6_addresses_may_be_assigned_beside_it() -> None:
    lines = _lines(ranges=("fd00::1000-fd00::1fff",), addresses=("boot1 10.0.0.11 fd00::11",))
    assert "dhcp-range=10.0.0.0,proxy,255.255.255.0" in lines
    assert "dhcp-range=set:range1,fd00::1000,fd00::1fff,64,600s" in lines


@each(
    ("changes", "error"),
    [
        ({"ranges": ("10.0.0.50-10.0.0.99",)}, AddressError),
        ({"addresses": ()}, AddressError),
        ({"proxied_networks": ("10.0.0.1/24",)}, AddressError),
        ({"proxied_networks": ("fd00::/64",)}, AddressError),
        ({"proxied_networks": ("rack a",)}, AddressError),
    ],
)
def test_what_contradicts_it_is_refused(changes: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        _lines(**changes)
