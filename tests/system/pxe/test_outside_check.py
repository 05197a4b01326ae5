"""The check of a boot host from the outside finds each fault, and says what to do about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope.config.options import BootSettings, InspectorSettings, PxeFilterSettings
from ferroscope.contrib.boot import dnsmasq, ipxe
from ferroscope.contrib.boot.pxe_filter.backends.build import rules_of
from ferroscope.contrib.boot.pxe_filter.backends.nftables import ruleset
from ferroscope.contrib.boot.setup import plan
from tests import ROOT
from tests.support.installation import Played
from tests.support.pxe.bare_host import ADDRESS, BareHost
from tests.support.pxe.lab import Lab

_TFTP = "/var/lib/ferroscope-tftp"
_PXE_FILTER = PxeFilterSettings(interfaces=("boot",), http_ports=(8080,))
_BOOT = BootSettings(
    hosts=("boot1",),
    addresses=(f"boot1 {ADDRESS}",),
    ranges=("10.77.0.50-10.77.0.99",),
    callback_url="http://10.77.0.1:6385/v1/continue_inspection",
    tftp_root=_TFTP,
    http_url="http://{host}:8080/",
)
_TABLE = rules_of(_PXE_FILTER).table
_LOOK = """\
import json, sys
import msgspec
from ferroscope.contrib.boot.setup import outside_check
subject = msgspec.json.decode(sys.stdin.read(), type=outside_check.Subject)
print(json.dumps([msgspec.to_builtins(one) for one in outside_check.look(subject)]))
"""

Found = dict[str, dict[str, Any]]


class Ready:
    """A boot host whose filter is open; ``look`` returns what the check has found, by code, what is wrong first."""

    def __init__(self, lab: Lab) -> None:
        self.host = host = BareHost(lab)
        host.run("mkdir", "-p", _TFTP)
        host.run("cp", "/usr/lib/ipxe/undionly.kpxe", "/usr/lib/ipxe/ipxe.efi", _TFTP)
        for name in (_BOOT.kernel, _BOOT.ramdisk):
            host.write(f"{_TFTP}/{name}", name * 10_000)
        host.write("/etc/dnsmasq.d/x.conf", dnsmasq.configuration(_BOOT, _PXE_FILTER, "boot1"))
        host.write(f"{_TFTP}/{dnsmasq.SCRIPT_NAME}", ipxe.script(_BOOT, InspectorSettings(), "boot1"))
        host.write(plan.WEB_SITE, plan.web_site(Path(_TFTP), 8080))
        host.write("/etc/closed.nft", ruleset(rules_of(_PXE_FILTER)))
        self.close_filter()
        self.open_filter()
        self.nginx = host.play("nginx", "nginx", "-g", "daemon off;")
        self.dnsmasq: Played
        self.start_dnsmasq()

    def start_dnsmasq(self) -> None:
        self.dnsmasq = self.host.play(
            "dnsmasq", "dnsmasq", "-k", "--log-facility=-", "--conf-file=/etc/dnsmasq.d/x.conf"
        )
        self.dnsmasq.wait_ready("started")

    def close_filter(self) -> None:
        assert self.host.run("nft", "-f", "/etc/closed.nft").returncode == 0

    def open_filter(self) -> None:
        assert self.host.run("nft", f'add element inet {_TABLE} open {{ "boot" timeout 1h }}').returncode == 0

    def look(self, **changes: Any) -> Found:
        subject = {"interface": "boot", "bridge": False, "server": ADDRESS, "table": _TABLE, "patience": 1.5}
        subject |= {
            "machine": "10.77.0.99/24",
            "boot": msgspec.to_builtins(_BOOT),
            "opens": 0.5,
            "silence": 0.7,
        } | changes
        done = self.host.run(
            "env", f"PYTHONPATH={ROOT}/client/src:{ROOT}/src", sys.executable, "-c", _LOOK, stdin=json.dumps(subject)
        )
        assert done.returncode == 0, done.stderr
        found: Found = {}
        for one in sorted(json.loads(done.stdout), key=lambda one: one["verdict"] != "wrong"):
            found.setdefault(one["code"], one)
        return found


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """Return one host for all tests of this file; each repairs what it breaks."""
    with Lab(tmp_path_factory.mktemp("outside"), hosts=0) as lab:
        yield Ready(lab)


def test_a_boot_host_that_works_is_found_to_work(ready: Ready) -> None:
    found = ready.look()
    assert {code: one["verdict"] for code, one in found.items()} == dict.fromkeys(
        ("denied", "dhcp", "tftp", "http"), "ok"
    )
    # Nothing of the visitor is left.
    assert ready.host.run("ip", "netns", "list").stdout == ""
    assert len(ready.host.run("ip", "-brief", "link").stdout.splitlines()) == 2
    assert "elements" not in ready.host.run("nft", "list", "set", "inet", _TABLE, "allow").stdout
    assert "mirred" not in ready.host.run("tc", "filter", "show", "dev", "boot", "egress").stdout


def _stops_dnsmasq(ready: Ready) -> Callable[[], object]:
    ready.dnsmasq.kill()
    return ready.start_dnsmasq


def _closes_the_filter(ready: Ready) -> Callable[[], object]:
    ready.close_filter()
    return ready.open_filter


def _removes_the_filter(ready: Ready) -> Callable[[], object]:
    ready.host.run("nft", "delete", "table", "inet", _TABLE)
    return lambda: (ready.close_filter(), ready.open_filter())


def _lets_everybody_pass(ready: Ready) -> Callable[[], object]:
    ready.host.run("nft", "insert", "rule", "inet", _TABLE, "filter", "accept")
    return lambda: (ready.close_filter(), ready.open_filter())


def _hides(name: str) -> Callable[[Ready], Callable[[], object]]:
    def plant(ready: Ready) -> Callable[[], object]:
        ready.host.run("mv", f"{_TFTP}/{name}", f"{_TFTP}/hidden")
        return lambda: ready.host.run("mv", f"{_TFTP}/hidden", f"{_TFTP}/{name}")

    return plant


def _forbids(name: str) -> Callable[[Ready], Callable[[], object]]:
    def plant(ready: Ready) -> Callable[[], object]:
        ready.host.run("chmod", "600", f"{_TFTP}/{name}")
        return lambda: ready.host.run("chmod", "644", f"{_TFTP}/{name}")

    return plant


def _drops(rule: str) -> Callable[[Ready], Callable[[], object]]:
    def plant(ready: Ready) -> Callable[[], object]:
        chain = "add chain inet fw input { type filter hook input priority 0; }"
        ready.host.run("nft", f"add table inet fw; {chain}; add rule inet fw input {rule} drop")
        return lambda: ready.host.run("nft", "delete", "table", "inet", "fw")

    return plant


def _changes_the_settings(ready: Ready) -> Callable[[], object]:
    path = "/etc/dnsmasq.d/x.conf"
    before = ready.host.read(path)
    ready.dnsmasq.kill()
    ready.host.write(path, before.replace("ipxe.efi", "other.efi"))
    ready.start_dnsmasq()

    def repair() -> None:
        ready.dnsmasq.kill()
        ready.host.write(path, before)
        ready.start_dnsmasq()

    return repair


@pytest.mark.parametrize(
    ("plant", "code", "advice"),
    [
        (_stops_dnsmasq, "dhcp", "journalctl -u dnsmasq"),
        (_closes_the_filter, "filter", "ferroscope status"),
        (_removes_the_filter, "filter", "ferroscope-pxe-filter"),
        (_lets_everybody_pass, "denied", "ferroscope doctor"),
        (_hides("ipxe.efi"), "tftp", ""),
        (_hides("ipa.kernel"), "http", "ferroscope ramdisk build"),
        (_forbids("undionly.kpxe"), "tftp", "chmod o+r"),
        (_forbids("ipa.initramfs"), "http", "chmod o+r"),
        (_drops("udp dport 67"), "dhcp", "nft list ruleset"),
        (_drops("udp dport 69"), "tftp", "nft list ruleset"),
        (_drops("tcp dport 8080"), "http", "nft list ruleset"),
        (_changes_the_settings, "dhcp", "restart dnsmasq"),
    ],
    ids=lambda value: getattr(value, "__qualname__", "") or None,
)
def test_each_fault_is_found_and_its_cure_is_named(
    ready: Ready, plant: Callable[[Ready], Callable[[], object]], code: str, advice: str
) -> None:
    repair = plant(ready)
    try:
        found = ready.look()
    finally:
        repair()
    if not advice:  # a loader that is not there is not offered, so another one is
        assert found["tftp"]["verdict"] == "ok"
        return
    assert found[code]["verdict"] == "wrong", found
    assert advice in found[code]["advice"]
    others = {name for name, one in found.items() if one["verdict"] == "wrong"} - {code}
    assert not others, found


def test_on_a_bridge_the_cable_is_plugged_into_it(ready: Ready) -> None:
    ready.dnsmasq.kill()
    for words in (
        ("link", "set", "boot", "down"),
        ("link", "set", "boot", "name", "port"),
        ("link", "set", "port", "up"),
        ("link", "add", "boot", "type", "bridge"),
        ("link", "set", "port", "master", "boot"),
        ("address", "flush", "dev", "port"),
        ("address", "add", f"{ADDRESS}/24", "dev", "boot"),
        ("link", "set", "boot", "up"),
    ):
        ready.host.space.ip(*words)
    ready.start_dnsmasq()
    found = ready.look(bridge=True)
    assert {one["verdict"] for one in found.values()} == {"ok"}, found
