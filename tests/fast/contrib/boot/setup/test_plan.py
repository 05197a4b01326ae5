"""Proposals for a boot host, and what is refused."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.options import ApiSettings, BootSettings, InspectorSettings, PxeFilterSettings, Settings
from ferroscope.contrib.boot.host_facts import HostInterface
from ferroscope.contrib.boot.setup import plan
from ferroscope.contrib.boot.setup.plan import BootHost, PlanError
from tests.support.rows import each

_ADDRESS = ipaddress.IPv4Interface("10.0.0.11/24")
_OFFICE = HostInterface("eth0", (ipaddress.IPv4Interface("192.0.2.5/24"),), up=True, routes=True)
_RACK = HostInterface("eth1", (_ADDRESS,), up=True)


def test_the_interface_of_the_default_route_is_proposed_last() -> None:
    assert plan.propose_interface([_OFFICE, _RACK, HostInterface("eth2", up=True)]) == "eth1"
    assert plan.propose_interface([_OFFICE]) == "eth0"
    assert plan.propose_interface([]) == ""


@each(
    ("address", "taken", "expected"),
    [
        ("10.0.0.11/24", [], "10.0.0.133-10.0.0.254"),
        ("10.0.0.11/24", ["10.0.0.1", "10.0.0.200"], "10.0.0.106-10.0.0.199"),
        ("10.0.0.1/29", [], "10.0.0.4-10.0.0.6"),
        ("10.0.0.1/30", [], ""),
        ("10.0.0.1/16", [], "10.0.252.23-10.0.255.254"),
        ("fd00::11/64", ["fe80::1", "10.0.0.1"], "fd00::fc17-fd00::fffe"),
        ("fd00::11/120", ["fd00::80"], "fd00::c0-fd00::fe/120"),
    ],
)
def test_the_proposed_range_avoids_addresses_in_use(address: str, taken: list[str], expected: str) -> None:
    host = ipaddress.ip_interface(address)
    found = plan.propose_range(host, [ipaddress.ip_address(one) for one in taken])
    assert found == expected
    if found:
        plan.check_ranges([found], host)


@each("ranges", ["10.0.1.1-10.0.1.9", "10.0.1.1-10.0.1.9@10.0.1.1", "10.0.0.5-10.0.0.20", "10.0.0.9-10.0.0.5", "all"])
def test_ranges_that_cannot_work_are_refused(ranges: str) -> None:
    with pytest.raises(PlanError):
        plan.check_ranges([ranges], _ADDRESS)


def test_an_interface_needs_an_address_and_must_exist() -> None:
    assert plan.choose_interface([_OFFICE, _RACK], "eth1") == (_RACK, _ADDRESS)
    for name in ("eth2", "eth9", ""):
        with pytest.raises(PlanError):
            plan.choose_interface([_RACK, HostInterface("eth2", up=True)], name)


def test_an_interface_with_ipv6_only_will_do() -> None:
    """Report: https://github.com/metal3-io/ironic-image/pull/1060."""
    address = ipaddress.ip_interface("fd00::11/64")
    assert plan.choose_interface([HostInterface("eth1", (address,), up=True)], "eth1")[1] == address
    assert plan.choose_interface([HostInterface("eth1", (address, _ADDRESS), up=True)], "eth1")[1] == _ADDRESS
    with pytest.raises(PlanError):
        plan.check_ranges(["fd01::10-fd01::20"], address)
    sections = plan.sections(BootHost("boot1", "eth1", address, ("fd00::50-fd00::99",)), None)
    assert sections["boot"]["addresses"] == "boot1 fd00::11"
    assert "listen [::]" not in plan.web_site(Path("/srv"), 8080, ipv6=False)


def test_the_settings_of_a_proxy_have_the_network_and_no_range() -> None:
    own = plan.sections(BootHost("boot1", "eth1", _ADDRESS, ("10.0.0.50-10.0.0.99",)), None)
    proxy = plan.sections(BootHost("boot1", "eth1", _ADDRESS), None)
    assert own["boot"]["ranges"] == "10.0.0.50-10.0.0.99"
    assert "ranges" not in proxy["boot"]
    assert proxy["boot"]["proxied_networks"] == "10.0.0.0/24"
    assert own["pxe_filter"] == {"interfaces": "eth1", "http_ports": "8080"}


@each(
    ("api", "inspector", "expected"),
    [
        ({}, {}, "http://10.0.0.11:6385"),
        ({"bare_metal_port": 7399, "tls_certificate_file": "/c"}, {}, "https://10.0.0.11:7399"),
        ({"public_url": "https://bm.example.org/"}, {}, "https://bm.example.org/"),
        ({"public_url": "https://bm.example.org/"}, {"callback_endpoint_override": "http://10.0.0.9:80"},
         "http://10.0.0.9:80"),
        ({"bare_metal_port": 0}, {}, ""),
    ],
)  # fmt: skip
def test_the_proposed_url_is_the_configured_one(api: dict[str, Any], inspector: dict[str, Any], expected: str) -> None:
    settings = Settings(api=ApiSettings(**api), inspector=InspectorSettings(**inspector))
    assert plan.propose_url(["localhost", " 10.0.0.11"], settings) == expected


def test_configured_http_ports_are_kept() -> None:
    known = Settings(pxe_filter=PxeFilterSettings(http_ports=(9090,)))
    sections = plan.sections(BootHost("boot1", "eth1", _ADDRESS, ("10.0.0.50-10.0.0.99",)), known)
    assert sections["boot"]["http_url"] == "http://{host}:9090/"
    assert sections["pxe_filter"] == {"interfaces": "eth1"}
    known = Settings(boot=BootSettings(http_url="http://{host}:9090/"))
    sections = plan.sections(BootHost("boot1", "eth1", _ADDRESS, ("10.0.0.50-10.0.0.99",)), known)
    assert sections["pxe_filter"]["http_ports"] == "9090"


def test_other_boot_hosts_are_kept_and_must_know_this_one() -> None:
    known = Settings(boot=BootSettings(hosts=("boot1", "boot2"), addresses=("boot1 10.0.0.11", "boot2 10.0.0.12")))
    host = BootHost("boot2", "eth1", _ADDRESS, ("10.0.0.50-10.0.0.99",))
    assert "hosts" not in plan.sections(host, known)["boot"]
    with pytest.raises(PlanError):
        plan.sections(BootHost("boot3", "eth1", _ADDRESS), known)


def test_our_own_files_are_distinguished_from_those_of_others() -> None:
    assert plan.is_ours(plan.web_site(Path("/srv"), 8080).encode())
    assert not plan.is_ours(b"server { listen 8080; }\n")
