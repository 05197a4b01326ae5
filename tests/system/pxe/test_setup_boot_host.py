"""``ferroscope setup`` makes a bare host a boot host: own addresses, and beside a DHCP server that stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.service import executable
from ferroscope.contrib.boot.setup import plan
from ferroscope_client.errors import Exit
from tests.support.pxe import foreign
from tests.support.pxe.bare_host import ADDRESS, CONFIGURATION, BareHost
from tests.support.pxe.lab import Lab

_TFTP = "/var/lib/ferroscope-tftp"
_DNSMASQ = "/etc/dnsmasq.d/ferroscope.conf"
_ANSWERS = ("--interface", "boot", "--database", "", "--listen", ADDRESS, "--login", "http_basic", "--user", "admin")
_PASSWORD = "of-the-admin-1\n"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Return a network with nothing on it."""
    with Lab(tmp_path, hosts=0) as built:
        yield built


@pytest.fixture
def host(lab: Lab) -> BareHost:
    """Return a host on that network."""
    return BareHost(lab)


def _start(host: BareHost) -> None:
    """Start what setup has said, in its order, and the service."""
    host.play("all", executable(), "all").wait_ready()
    assert host.run("nft", "-f", str(plan.RULESET)).returncode == 0
    host.play("pxe-filter", executable(), "pxe-filter").wait_ready()
    host.play("dnsmasq", "dnsmasq", "-k", "--log-facility=-", f"--conf-file={_DNSMASQ}").wait_ready("started")
    host.play("nginx", "nginx", "-g", "daemon off;")


def test_a_bare_host_becomes_a_boot_host_and_the_check_from_outside_says_so(host: BareHost) -> None:
    dry = host.setup(*_ANSWERS, "--dry-run")
    assert dry.returncode == Exit.OK, dry.stderr
    assert "interfaces = boot" in dry.stdout
    assert host.read(CONFIGURATION) == host.read(_DNSMASQ) == ""
    assert "WRONG" not in dry.stdout
    elsewhere = ("--machine-url", "http://192.0.2.1:6385", "--dry-run")
    assert "@ROUTER" in host.setup(*_ANSWERS, *elsewhere).stdout.partition("WRONG")[2]
    routed = host.setup(*_ANSWERS, "--range", "10.77.0.50-10.77.0.99@10.77.0.1", *elsewhere)
    assert "WRONG" not in routed.stdout, routed.stderr
    first = host.setup(*_ANSWERS, "--range", "10.77.0.50-10.77.0.99", stdin=_PASSWORD)
    assert first.returncode == Exit.FAILURE, first.stderr  # nothing runs yet
    assert "dnsmasq does not run" in first.stdout
    assert "ferroscope ramdisk build" in first.stdout.partition("Next:")[2]
    assert "\n  * start the service: ferroscope all\n" in first.stdout
    assert "dhcp-range=set:range1,10.77.0.50,10.77.0.99,600s" in host.read(_DNSMASQ)
    for name in ("ipa.kernel", "ipa.initramfs"):
        host.write(f"{_TFTP}/{name}", name * 1000)
    before = [host.read(path) for path in (CONFIGURATION, _DNSMASQ, plan.RULESET, plan.WEB_SITE)]
    assert all(before)
    _start(host)
    second = host.setup("--interface", "boot")
    assert second.returncode == Exit.OK, second.stdout + second.stderr
    assert "WRONG" not in second.stdout
    assert second.stdout.count("unchanged: ") == 5, second.stdout  # the four, and the script
    assert "an allowed machine gets an address (10.77.0." in second.stdout
    assert "ipa.initramfs" in second.stdout.partition("from the outside")[2]
    assert before == [host.read(path) for path in (CONFIGURATION, _DNSMASQ, plan.RULESET, plan.WEB_SITE)]
    assert not host.run("ls", str(plan.BACKUPS)).stdout
    # The service runs, with these settings; then with old ones.
    assert "start the service" not in second.stdout
    third = host.setup(*_ANSWERS, "--range", "10.77.0.60-10.77.0.99", "--replace", stdin=_PASSWORD)
    assert "\n  * restart the service, which runs with its old settings: ferroscope all\n" in third.stdout


def test_dnsmasq_and_the_web_server_can_read_the_boot_files_whatever_a_package_or_the_umask_says(
    host: BareHost,
) -> None:
    host.run("install", "-d", "-m", "0750", "/var/lib/ferroscope")
    done = host.setup(*_ANSWERS, stdin=_PASSWORD, before=("sh", "-c", 'umask 077; exec "$@"', "sh"))
    assert "cannot read" not in done.stderr
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for name in ("boot.ipxe", "undionly.kpxe"):
        assert host.run(*other, "test", "-s", f"{_TFTP}/{name}").returncode == 0
    assert host.run(*other, "ls", "/var/lib/ferroscope").returncode != 0  # other users only pass


def test_a_host_with_ipv6_only_becomes_a_boot_host(host: BareHost) -> None:
    host.run("ip", "address", "flush", "dev", "boot")
    host.run("ip", "address", "add", "fd77::11/64", "dev", "boot", "nodad")
    done = host.setup(*_ANSWERS[:5], "fd77::11", *_ANSWERS[6:], stdin=_PASSWORD)
    assert "dhcp-range=set:range1,fd77::fc17,fd77::fffe,64,600s" in host.read(_DNSMASQ), done.stderr
    assert "callback_url = http://[fd77::11]:6385/" in host.read(CONFIGURATION)
    assert "tftp://[fd77::11]/ipxe.efi" in host.read(_DNSMASQ)
    assert "dnsmasq accepts" in done.stdout
    assert "cannot reach" not in done.stdout


def test_beside_a_server_that_stays_it_becomes_a_proxy(lab: Lab, host: BareHost) -> None:
    foreign.serve(lab)
    done = host.setup(*_ANSWERS, stdin=_PASSWORD)
    assert f"DHCP server {foreign.ADDRESS} (offers 10.77.0." in done.stdout, done.stderr
    text = host.read(_DNSMASQ)
    assert [line for line in text.splitlines() if "dhcp-range" in line] == ["dhcp-range=10.77.0.0,proxy,255.255.255.0"]
    for name in ("ipa.kernel", "ipa.initramfs"):
        host.write(f"{_TFTP}/{name}", name * 1000)
    _start(host)
    again = host.setup("--interface", "boot")
    assert again.returncode == Exit.OK, again.stdout + again.stderr
    assert "an allowed machine gets its boot file, and no address from this host" in again.stdout


def test_an_own_range_beside_another_server_needs_to_be_asked_for_and_warns(lab: Lab, host: BareHost) -> None:
    foreign.serve(lab)
    done = host.setup(*_ANSWERS, "--dhcp", "own", stdin=_PASSWORD)
    assert f"{foreign.ADDRESS} also assigns addresses on this network" in done.stderr
    assert f"another DHCP server answers machines: {foreign.ADDRESS}" in done.stdout  # doctor finds it, too
    assert "proxy" not in "".join(line for line in host.read(_DNSMASQ).splitlines() if "dhcp-range" in line)


def test_what_others_have_written_is_refused_or_kept(host: BareHost) -> None:
    host.write(plan.WEB_SITE, "server { listen 8080; }\n")
    refused = host.setup(*_ANSWERS, stdin=_PASSWORD)
    assert refused.returncode == Exit.CONFLICT
    assert str(plan.WEB_SITE) in refused.stderr
    assert host.read(_DNSMASQ) == host.read(CONFIGURATION) == ""
    host.setup(*_ANSWERS, "--replace", stdin=_PASSWORD)
    assert host.read(plan.BACKUPS / plan.WEB_SITE.relative_to("/")) == "server { listen 8080; }\n"
    assert "root /var/lib/ferroscope-tftp" in host.read(plan.WEB_SITE)
    other = host.setup("--interface", "boot", "--range", "10.77.0.60-10.77.0.70")
    assert other.returncode == Exit.CONFLICT
    assert "[boot] ranges" in other.stderr


def test_with_systemd_it_installs_the_units_and_starts_them_in_their_order(host: BareHost) -> None:
    """systemd cannot run here, so its place is taken by a program that writes down what it is told."""
    host.run("mkdir", "-p", "/run/systemd/system", "/run/bin")
    host.write("/run/bin/adduser", '#!/bin/sh\necho adduser "$@" >> /run/told\n', "755")
    active = 'if [ "$1" = is-active ]; then [ "$3" = ferroscope-worker.service ]; exit; fi'
    host.write("/run/bin/systemctl", f'#!/bin/sh\n{active}\necho systemctl "$@" >> /run/told\n', "755")
    host.write("/etc/systemd/system/dnsmasq.service", "[Service]\n")
    before = host.read("/etc/systemd/system/dnsmasq.service")
    path = f"PATH=/run/bin:{os.environ['PATH']}"
    done = host.setup(*_ANSWERS, stdin=_PASSWORD, before=("env", path))
    assert "systemd does not run" not in done.stdout, done.stderr
    told = host.read("/run/told").splitlines()
    units = ["ferroscope-worker", "ferroscope-pxe-closed", "ferroscope-pxe-filter", "dnsmasq", "nginx"]
    assert [line for line in told if line.startswith("systemctl")] == [
        "systemctl daemon-reload",
        *(f"systemctl {verb} {unit}.service" for unit in units for verb in ("enable", "restart")),
    ]
    text = host.read("/etc/systemd/system/ferroscope-pxe-filter.service")
    assert f"ExecStart={Path(executable()).resolve()} pxe-filter" in text
    assert host.read("/etc/systemd/system/dnsmasq.service") == before
    # Nothing has changed since, so nothing is restarted.
    host.run("rm", "/run/told")
    again = host.setup("--interface", "boot", before=("env", path))
    assert "replaced" not in again.stdout
    told = host.read("/run/told").splitlines()
    assert {line.split()[1] for line in told if line.startswith("systemctl")} == {"enable", "start"}


def test_on_a_terminal_it_proposes_and_asks(host: BareHost) -> None:
    command = f"{executable()} setup --boot network --database '' --listen localhost --login noauth"
    # Interface and range as proposed, the URL, and no ramdisk now.
    done = host.run("script", "-qec", command, "/dev/null", stdin="\n\n\nn\n")
    assert "Interface (none: this host is not a boot host) [boot]" in done.stdout, done.stdout
    assert "Addresses for machines [10.77.0.133-10.77.0.254]" in done.stdout
    assert f"[http://{ADDRESS}:6385]" in done.stdout
    assert "ranges = 10.77.0.133-10.77.0.254" in host.read(CONFIGURATION)
    assert f"callback_url = http://{ADDRESS}:6385/v1/continue_inspection" in host.read(CONFIGURATION)


def test_missing_packages_are_one_line_to_type_or_are_installed(host: BareHost) -> None:
    host.run("mount", "-t", "tmpfs", "tmpfs", "/usr/lib/ipxe")
    done = host.setup(*_ANSWERS, stdin=_PASSWORD)
    assert done.returncode == Exit.FAILURE
    assert "apt-get install -y ipxe" in done.stderr
    host.run("mkdir", "-p", "/run/bin")
    host.write("/run/bin/apt-get", '#!/bin/sh\necho "no mirror answers" >&2\nexit 100\n', "755")
    path = f"PATH=/run/bin:{os.environ['PATH']}"
    failed = host.setup(*_ANSWERS, "--install-packages", stdin=_PASSWORD, before=("env", path))
    assert failed.returncode == Exit.FAILURE
    assert "apt-get update: no mirror answers" in failed.stderr
    assert host.read(CONFIGURATION) == ""


def test_without_root_it_says_so(host: BareHost) -> None:
    done = host.setup(*_ANSWERS, before=("setpriv", "--reuid=65534", "--clear-groups"), stdin=_PASSWORD)
    assert done.returncode == Exit.USAGE, done.stdout + done.stderr
