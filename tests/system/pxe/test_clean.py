"""``ferroscope pxe clean``: nothing is left, or it says what; what else has to be done is said, too."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.service import executable
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.contrib.boot.pxe_filter.backends.nftables import ruleset
from ferroscope.contrib.boot.pxe_filter.host_filters import instance_lock
from ferroscope.runtime.system import SystemClock
from tests.support.processes import PATIENCE
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import Lab


class Host:
    """A boot host with a configuration; ``clean`` runs the command there."""

    def __init__(self, host: BootHost) -> None:
        self.space = host.space
        self.boot_closed = host.boot_closed
        self.directory = host.directory

    def clean(self, *words: str, options: str = "", before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        config = self.directory / "ferroscope.conf"
        config.write_text(f"[pxe_filter]\ninterfaces = boot\n{options}\n")
        return self.space.run(*before, executable(), "pxe", "clean", "-c", str(config), *words)

    def listed(self, *command: str) -> str:
        return self.space.run(*command).stdout


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Lab(tmp_path, hosts=1) as lab:
        yield Host(lab.hosts[0])


def test_what_cannot_be_removed_is_an_error(host: Host) -> None:
    with host.space.entered():
        IptablesFilter(
            FilterRules(network="default", interfaces=("boot", "old0")), clock=SystemClock(), timeout=PATIENCE
        ).install()
    weak = host.clean(options="backends = iptables", before=("setpriv", "--bounding-set=-net_admin"))
    assert weak.returncode == 1
    assert "Permission denied" in weak.stderr
    assert "[debug" not in weak.stdout + weak.stderr
    assert "-j fspxe-default" in host.listed("iptables", "-S")
    done = host.clean(options="backends = iptables")
    assert (done.returncode, done.stdout, done.stderr) == (0, "removed: iptables\n", "")
    for tool in ("iptables", "ip6tables"):
        assert "fspx" not in host.listed(tool, "-S")
    assert "fspx" not in host.listed("ipset", "list", "-n")
    assert host.clean(options="backends = iptables").returncode == 0, "there is nothing, which is as wanted"


def test_while_a_pxe_filter_runs_there_it_is_refused(host: Host) -> None:
    host.boot_closed(ruleset(FilterRules(network="default", interfaces=("boot",))).encode())
    with host.space.entered(), instance_lock("default"):
        refused = host.clean()
    assert refused.returncode == 1
    assert "stop it first" in refused.stderr
    assert "ferroscope_pxe_default" in host.listed("nft", "list", "tables")


def test_tables_of_other_networks_are_named_and_removed_when_asked(host: Host) -> None:
    for name in ("default", "renamed"):
        host.boot_closed(ruleset(FilterRules(network=name, interfaces=("boot",))).encode())
    done = host.clean()
    assert "removed: nftables" in done.stdout
    assert "ferroscope_pxe_renamed" in done.stdout
    assert "--all" in done.stdout
    assert host.listed("nft", "list", "tables") == "table inet ferroscope_pxe_renamed\n"
    done = host.clean("--all", "-o", "json")
    assert json.loads(done.stdout)["tables"] == ["ferroscope_pxe_renamed"]
    assert host.listed("nft", "list", "tables") == ""


def test_a_dnsmasq_that_cannot_be_told_to_forget_has_to_be_restarted(host: Host) -> None:
    hosts = host.directory / "hosts"
    hosts.mkdir()
    (hosts / "ferroscope-unknown").write_text("*:*:*:*:*:*,ignore\n")
    (hosts / "theirs").write_text("52:54:00:00:00:01\n")
    done = host.clean(options=f"backends = dnsmasq\ndhcp_hostsdir = {hosts}")
    assert "restart it" in done.stdout
    assert [path.name for path in hosts.iterdir()] == ["theirs"]
    done = host.clean(options=f"backends = dnsmasq\ndhcp_hostsdir = {hosts}\ndnsmasq_pid_file = {hosts}/pid")
    assert "restart it" not in done.stdout


def test_a_kernel_without_nftables_is_left_clean_too(host: Host) -> None:
    tools = host.directory / "tools"
    tools.mkdir()
    (tools / "nft").write_text(
        "#!/bin/sh\necho 'Error: cache initialization failed: Protocol not supported' >&2\nexit 1\n"
    )
    (tools / "nft").chmod(0o755)
    before = ("env", f"PATH={tools}:{os.environ['PATH']}")
    assert host.clean(options="backends = iptables", before=before).returncode == 0
    assert host.clean(before=before).returncode == 1
