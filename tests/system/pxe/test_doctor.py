"""``ferroscope doctor`` on a host with a PXE filter: what is missing there, or in the way, and what to do."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.options import BootSettings, PxeFilterSettings, Settings
from ferroscope.contrib.boot import dhcp_message
from ferroscope.contrib.boot.pxe_filter.backends.build import build_pxe_filter, rules_of
from ferroscope.contrib.boot.pxe_filter.backends.nftables import ruleset
from ferroscope.contrib.boot.pxe_filter_checks import examine_pxe_filter as examine
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.finding import Finding
from tests.support.processes import until
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import Lab


class Doctor:
    """Looks at one boot host; the rulesets for its start are in ``rulesets``."""

    def __init__(self, host: BootHost, directory: Path) -> None:
        self.host = host
        self.rulesets = directory / "etc"
        self.rulesets.mkdir()

    def __call__(self, boot: BootSettings | None = None, **options: Any) -> list[Finding]:
        """Return what is not in order."""
        pxe_filter = PxeFilterSettings(**{"interfaces": ("boot",)} | options)
        settings = Settings(pxe_filter=pxe_filter, boot=boot or BootSettings())
        with self.host.space.entered():
            found = list(examine(settings, "boot1", self.rulesets))
        assert all(check.advice for check in found if check.verdict != "ok")
        return [check for check in found if check.verdict != "ok"]

    def report(self, **options: Any) -> str:
        return "\n".join(f"{check.verdict}: {check.summary}; {check.advice}" for check in self(**options))

    def install(self, **options: Any) -> None:
        pxe_filter = PxeFilterSettings(**{"interfaces": ("boot",)} | options)
        with self.host.space.entered():
            build_pxe_filter(pxe_filter, SystemClock()).install()

    def write(self, name: str = "pxe-closed.nft", **options: Any) -> None:
        pxe_filter = PxeFilterSettings(**{"interfaces": ("boot",)} | options)
        (self.rulesets / name).write_text(ruleset(rules_of(pxe_filter)))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path, hosts=1) as built:
        yield built


@pytest.fixture
def doctor(lab: Lab, tmp_path: Path) -> Doctor:
    return Doctor(lab.hosts[0], tmp_path)


def test_a_host_without_a_pxe_filter_is_not_looked_at(doctor: Doctor) -> None:
    assert doctor(interfaces=()) == []
    assert doctor(BootSettings(hosts=("boot7", "boot8"))) == []


def test_a_host_whose_pxe_filter_is_in_place_has_nothing_to_be_told(doctor: Doctor) -> None:
    doctor.install(backends=("nftables", "iptables"))
    doctor.write()
    assert doctor(backends=("nftables", "iptables")) == []
    assert doctor(BootSettings(hosts=("boot1",)), backends=("nftables", "iptables")) == []


def test_a_host_without_rules_and_without_a_ruleset_is_noted(doctor: Doctor) -> None:
    found = doctor(backends=("nftables", "iptables"))
    assert sorted((one.code, one.verdict) for one in found) == [
        ("pxe-filter", "note"),
        ("pxe-filter", "note"),
        ("pxe-ruleset", "note"),
    ]
    text = " ".join(one.summary for one in found)
    assert "ferroscope_pxe_default" in text
    assert "fspxe-default" in text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"interfaces": ("boot", "eth*")}, "'eth*'"),
        ({"interfaces": ("boot", "nowhere0")}, "nowhere0"),
        ({"backends": ("nftable",)}, "nftables, iptables, dnsmasq, noop"),
        ({"backends": ("dnsmasq",)}, "dhcp_hostsdir"),
        ({"backends": ("dnsmasq",), "dhcp_hostsdir": "/nonexistent"}, "/nonexistent"),
    ],
)
def test_what_would_not_start_is_wrong(doctor: Doctor, options: dict[str, Any], why: str) -> None:
    (found,) = [check for check in doctor(**options) if check.verdict == "wrong"]
    assert why in found.summary


def test_programs_that_are_missing_are_named(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferroscope.contrib.boot.pxe_filter.backends.base.HostCommand._find", lambda _self: None)
    hosts = str(doctor.rulesets)
    found = doctor(backends=("nftables", "iptables", "dnsmasq"), dhcp_hostsdir=hosts)
    missing = [one.summary for one in found if (one.code, one.verdict) == ("pxe-programs", "wrong")]
    programs = ("nft ", "iptables, ip6tables, iptables-restore, ip6tables-restore ", "dnsmasq ")
    assert [name in summary for name, summary in zip(programs, missing, strict=True)] == [True] * 3


def test_host_files_that_dnsmasq_may_not_read_are_wrong(doctor: Doctor) -> None:
    for path in (doctor.rulesets, *doctor.rulesets.parents):
        path.chmod(path.stat().st_mode | 0o001)
    hosts = doctor.rulesets / "hosts"
    hosts.mkdir(mode=0o755)
    assert "host-files" not in {one.code for one in doctor(backends=("dnsmasq",), dhcp_hostsdir=str(hosts))}
    hosts.chmod(0o750)
    assert f"chmod a+rx {hosts}" in doctor.report(backends=("dnsmasq",), dhcp_hostsdir=str(hosts))
    hosts.chmod(0o755)
    doctor.rulesets.chmod(0o700)
    assert f"chmod a+x {doctor.rulesets}" in doctor.report(backends=("dnsmasq",), dhcp_hostsdir=str(hosts))


def test_a_table_that_another_name_left_behind_is_wrong(doctor: Doctor) -> None:
    doctor.install(network="rack-a")
    doctor.install(network="rack-b")
    doctor.write(network="rack-b")
    (found,) = doctor(network="rack-b")
    assert (found.verdict, found.advice[-40:]) == ("wrong", "nft delete table inet ferroscope_pxe_rack-a"[-40:])


@pytest.mark.parametrize(
    ("made", "options", "verdict"),
    [
        ({"http_ports": (80,)}, {}, "note"),
        ({"network": "old"}, {}, "wrong"),
        ({}, {"backends": ("iptables",)}, "wrong"),
        ({"network": "other"}, {"backends": ("iptables",)}, None),
    ],
)
def test_a_ruleset_that_does_not_fit_is_found(
    doctor: Doctor, made: dict[str, Any], options: dict[str, Any], verdict: str | None
) -> None:
    doctor.install(**options)
    doctor.write(**made)
    found = [(one.code, one.verdict) for one in doctor(**options)]
    assert found == ([("pxe-ruleset", verdict)] if verdict else [])


def test_an_empty_ruleset_is_wrong_and_that_of_one_network_of_several_has_its_name(doctor: Doctor) -> None:
    doctor.install()
    (doctor.rulesets / "pxe-closed.nft").touch()
    assert [(one.code, one.verdict) for one in doctor()] == [("pxe-ruleset", "wrong")]
    doctor.write("pxe-closed-default.nft")
    assert doctor() == []


def test_who_may_not_look_at_the_firewall_is_told_so(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = doctor.rulesets / "tools"
    tools.mkdir()
    (tools / "nft").write_text("#!/bin/sh\necho 'Operation not permitted (you must be root)' >&2\nexit 1\n")
    (tools / "nft").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    assert ("pxe-filter", "note") in {(one.code, one.verdict) for one in doctor()}


def test_a_relay_passes_by_the_network_that_it_names_and_what_is_dropped_is_counted(doctor: Doctor, lab: Lab) -> None:
    """A relay sends from a link-local address, or one of its other side; the DHCP of InfiniBand has no MAC address.

    Reports: https://github.com/opnsense/core/issues/10686, https://github.com/canonical/cloud-init/pull/4830.
    """
    options: dict[str, Any] = {"unknown_hosts": "deny", "relayed_networks": ("2001:db8:20::/44",)}
    doctor.install(**options)
    client = lab.client("52:54:00:cc:00:01")
    with doctor.host.space.entered():
        server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with server:
        server.bind(("::", 547))
        server.settimeout(0.2)

        def arrives(link: str) -> bool:
            # The kernel closes it by itself; each time anew, because a test may take long.
            doctor.host.space.run("nft", "flush set inet ferroscope_pxe_default open")
            doctor.host.space.run("nft", "add element inet ferroscope_pxe_default open { boot timeout 60s }")
            with client.space.entered(), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as relay:
                message = b"\x0c\0" + ipaddress.IPv6Address(link).packed + bytes(16)
                relay.sendto(message, ("ff02::1:2", 547, 0, socket.if_nametoindex("eth0")))
            with contextlib.suppress(TimeoutError):
                return server.recv(100) == message
            return False

        group = socket.inet_pton(socket.AF_INET6, "ff02::1:2")
        with doctor.host.space.entered():
            index = socket.if_nametoindex("boot")
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("@I", index))
        assert until(lambda: arrives("2001:db8:2f::1"))
        assert [arrives(one) for one in ("2001:db8:20::1", "2001:db8:30::1", "::")] == [True, False, False]
        discover = dhcp_message.message(client.mac, 7)
        with client.space.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
            link.bind(("eth0", 0))
            link.send(dhcp_message.frame(discover[:1] + b"\x20\0" + discover[3:], client.mac))
    found = {one.summary for one in doctor(**options) if one.code == "pxe-dropped"}
    assert [("dropped 2 relayed DHCPv6" in one, "dropped 1 DHCP" in one) for one in sorted(found)] == [
        (False, True),
        (True, False),
    ]
