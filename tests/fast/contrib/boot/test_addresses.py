"""Boot hosts' own addresses: found by name and family, and refused where a machine would be led astray."""

from __future__ import annotations

import ipaddress

import pytest

from ferroscope.config.options import BootSettings
from ferroscope.contrib.boot.addresses import AddressError, literal, own
from ferroscope.node_boot import base_url
from tests.support.rows import each


def _own(*addresses: str, ranges: tuple[str, ...] = ("10.0.0.50-10.0.0.99",)) -> dict[int, str]:
    settings = BootSettings(hosts=("boot1", "boot2"), addresses=addresses, ranges=ranges)
    return {version: literal(address) for version, address in own(settings, "boot1").items()}


def test_a_host_has_an_address_of_each_family_in_any_order() -> None:
    assert _own("boot2 10.0.0.2", "boot1 fd00::1 10.0.0.1") == {4: "10.0.0.1", 6: "[fd00::1]"}
    assert _own("boot1 10.0.0.1", "boot1 FD00:0::1") == {4: "10.0.0.1", 6: "[fd00::1]"}


def test_ipv4_over_tftp_needs_no_addresses() -> None:
    assert _own() == {}


def test_ipv6_needs_an_ipv6_address_of_every_host() -> None:
    ranges = ("10.0.0.50-10.0.0.99", "fd00::1000-fd00::1fff")
    with pytest.raises(AddressError, match=r"no IPv6 address of boot2.*addresses = boot1 fd00::11, boot2 fd00::12"):
        _own("boot1 10.0.0.1 fd00::1", "boot2 10.0.0.2", ranges=ranges)
    assert _own("boot1 fd00::1", "boot2 fd00::2", ranges=ranges) == {6: "[fd00::1]"}


@each(
    ("item", "why"),
    [
        ("10.0.0.1", r"\[boot\] hosts: boot1, boot2"),
        ("boot9 10.0.0.1", r"\[boot\] hosts: "),
        ("boot1 10.0.0.256", "address '10.0.0.256'"),
        ("boot1 10.0.0.1/24", "address '10.0.0.1/24'"),
        ("boot1 10.0.0.1 10.0.0.3", "two IPv4 addresses"),
        ("boot1 fe80::1", "fe80::1 in .* URL"),
        ("boot1 ::", ":: in .* URL"),
        ("boot1 10.0.0.2", "10.0.0.2 is used by both boot2 and boot1"),
        ("boot1 10.0.0.60", "in the range 10.0.0.50-10.0.0.99"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_the_reason(item: str, why: str) -> None:
    with pytest.raises(AddressError, match=why):
        _own("boot2 10.0.0.2", item)


def test_a_url_that_names_the_host_needs_an_address_of_every_host_and_family() -> None:
    settings = BootSettings(hosts=("boot1",), ranges=("10.0.0.50-10.0.0.99",), http_url="http://{host}:8080/boot/")
    with pytest.raises(AddressError, match=r"no IPv4 address of boot1.*http_url contains \{host\}"):
        own(settings, "boot1")
    assert base_url(settings, "10.0.0.1") == "http://10.0.0.1:8080/boot"


@each(
    ("url", "why"),
    [
        ("10.0.0.1:8080", "invalid URL"),
        ("ftp://{host}/", "invalid URL"),
        ("http://{host}:eighty/", "invalid URL"),
        ("http:///boot/", "invalid URL"),
        ("http://{hots}:8080/", r"'\{'"),
        ("http://{host}:8080/a,b", "','"),
        ("http://${next-server}/", r"'\$'"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused_with_the_reason(url: str, why: str) -> None:
    settings = BootSettings(hosts=("boot1",), addresses=("boot1 10.0.0.1",), http_url=url)
    with pytest.raises(AddressError, match=why):
        own(settings, "boot1")


def test_an_address_in_a_url_has_brackets_where_it_needs_them() -> None:
    assert literal(ipaddress.ip_address("fd00::1")) == "[fd00::1]"
    assert literal(ipaddress.ip_address("10.0.0.1")) == "10.0.0.1"
