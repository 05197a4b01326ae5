"""Whether machines reach what they load from and call: seen from their networks, not from the boot host."""

from __future__ import annotations

import ipaddress
from typing import Any

from ferroscope.config.options import BootSettings
from ferroscope.contrib.boot import reach
from tests.support.rows import each

_LOCAL = [ipaddress.ip_interface("10.20.0.5/24"), ipaddress.ip_interface("fd20::5/64")]
_RANGE = "10.20.0.130-10.20.0.199"
_NAMES = ("dhcp-option=option:dns-server,10.20.0.5",)


def _gaps(*, routers: dict[str, str] | None = None, **options: Any) -> list[reach.Gap]:
    url = {"callback_url": "http://10.20.1.254:6385/v1/continue_inspection"}
    boot = BootSettings(**{"hosts": ("boot1",), "ranges": (_RANGE,), "http_url": "http://{host}:8080/"} | url | options)
    networks = tuple(reach.segments(boot, _LOCAL, routers or {}))
    known = {"api": ("10.20.1.254", "fd20::9"), "near": ("10.20.0.9",)}

    def resolve(host: str) -> list[reach.Address]:
        return [ipaddress.ip_address(one) for one in known.get(host, ())]

    return list(reach.gaps(boot, [one.ip for one in _LOCAL], networks, resolve))


# Without a router, machines of a range on the link reach nothing but the link.
# Reports: https://github.com/metal3-io/baremetal-operator/issues/1664 (ENETUNREACH, and a URL of the other family),
# https://github.com/metal3-io/ironic-image/issues/627 (machines outside the network of the boot files).
@each(
    ("options", "expected"),
    [
        ({}, ["callback_url", "10.20.0.0/24", "@ROUTER"]),
        ({"ranges": (f"{_RANGE}@10.20.0.1",)}, []),
        ({"callback_url": "http://10.20.0.9:6385/v1/continue_inspection"}, []),
        ({"dnsmasq_options": ("dhcp-option=option:classless-static-route,10.20.1.0/24,10.20.0.1",)}, []),
        ({"dnsmasq_options": ("dhcp-option=option:router,10.20.0.1",)}, ["@ROUTER"]),  # that of the range wins
        # What else machines use.
        ({"ranges": (f"{_RANGE}@10.20.0.1", "10.9.0.5-10.9.0.9/24")}, ["10.9.0.0/24", "this host"]),
        ({"ranges": ("10.9.0.5-10.9.0.9/24",), "callback_url": "http://10.9.0.1/", "http_url": ""}, ["this host"]),
        ({"callback_url": "", "machine_script_url": "http://10.1.1.1/"}, ["machine_script_url"]),
        ({"callback_url": "", "kernel": "http://10.1.1.1/k", "ramdisk": "http://10.1.1.1/r"}, ["kernel and ramdisk"]),
        ({"callback_url": "", "http_url": "http://10.1.1.1/boot/"}, ["http_url"]),
        ({"callback_url": "http://127.0.0.1/"}, []),  # another check
        # Families.
        ({"ranges": ("fd20::10-fd20::ff",)}, ["no IPv4 address"]),
        ({"ranges": ("fd20::10-fd20::ff",), "callback_url": "http://[fd20::9]/"}, []),
        ({"ranges": ("fd20::10-fd20::ff",), "callback_url": "http://[fd21::9]/"}, ["@ROUTER", "advertise"]),
        ({"ranges": ("fd20::10-fd20::ff@fe80::1",), "callback_url": "http://[fd21::9]/"}, []),
        # Names.
        ({"callback_url": "http://near/"}, ["option:dns-server"]),
        ({"callback_url": "http://near/", "dnsmasq_options": _NAMES}, []),
        ({"callback_url": "http://api/", "dnsmasq_options": _NAMES}, ["10.20.1.254 (api)"]),
        ({"callback_url": "http://api/", "dnsmasq_options": _NAMES, "ranges": (_RANGE, "fd20::10-fd20::ff")}, []),
        # Another server assigns the addresses.
        ({"ranges": (), "proxied_networks": ("10.20.0.0/24",)}, []),  # nobody knows
        ({"ranges": (), "proxied_networks": ("10.20.0.0/24",), "routers": {"10.20.0.7": "10.20.0.1"}}, []),
        ({"ranges": (), "proxied_networks": ("10.20.0.0/24",), "routers": {"10.20.0.7": ""}}, ["that DHCP server"]),
    ],
)
def test_what_machines_have_no_way_to_is_told_with_the_option_and_what_to_do(
    options: dict[str, Any], expected: list[str]
) -> None:
    found = [f"{one.summary}; {one.advice}" for one in _gaps(**options)]
    assert bool(found) is bool(expected), found
    assert all(word in " ".join(found) for word in expected), found
