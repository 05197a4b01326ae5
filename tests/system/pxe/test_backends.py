"""Each mechanism of the filter, and two together, in front of a real dnsmasq: what it lets pass, and who closes it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.runtime.system import SystemClock
from tests.support.processes import until
from tests.support.pxe.filtered import FAST, READY, FilteredLab
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import Lab
from tests.support.pxe.prober import doubles

IDLE, BUSY, UNKNOWN = (f"52:54:00:bb:00:{number:02x}" for number in range(1, 4))


def without_ipset(directory: Path) -> Path:
    """Return a directory whose ``ipset`` says what that of a host without it says."""
    tools = directory / "tools"
    tools.mkdir()
    (tools / "ipset").write_text("#!/bin/sh\necho 'Kernel error received: set type not supported' >&2\nexit 1\n")
    (tools / "ipset").chmod(0o755)
    return tools


def with_a_lock(directory: Path) -> Path:
    """Return a directory whose ``iptables`` have one lock for the whole host, as the legacy ones before 1.8.8 have."""
    tools = directory / "tools"
    tools.mkdir()
    lock = directory / "lock"
    lock.touch()
    for name in ("iptables", "ip6tables", "iptables-restore", "ip6tables-restore"):
        real = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
        patience = 'case " $* " in *" --wait "*) patience=;; *) patience=--nonblock;; esac'
        (tools / name).write_text(f'#!/bin/sh\n{patience}\nexec flock $patience -E 4 {lock} {real} "$@"\n')
        (tools / name).chmod(0o755)
    return tools


def guarded(host: BootHost, backends: str) -> str:
    """Have dnsmasq read host files where that is wanted; return the options."""
    options = f"backends = {backends}"
    if "dnsmasq" not in backends:
        return options
    hosts = host.directory / "hosts"
    hosts.mkdir(exist_ok=True)
    host.configuration.write_text(f"{host.configuration.read_text()}dhcp-hostsdir={hosts}\n")
    return f"{options}\ndhcp_hostsdir = {hosts}\ndnsmasq_pid_file = {host.directory / 'dnsmasq.pid'}"


@pytest.mark.parametrize("backends", ["iptables", "iptables without ipset", "dnsmasq", "nftables,dnsmasq", "noop"])
def test_it_lets_pass_whom_it_should_and_closes_when_its_process_is_killed(
    lab: Lab, postgresql_url: str, tmp_path: Path, backends: str
) -> None:
    filtered = FilteredLab(lab, postgresql_url, sections=FAST)
    filtered.node(IDLE)
    busy = filtered.node(BUSY)
    path = without_ipset(tmp_path) if "without" in backends else None
    for host in filtered.hosts[:2]:
        options = guarded(host, backends.split()[0])
        filtered.start_pxe_filter(host, options=options, path=path)
        host.start_dnsmasq()
    assert until(lambda: filtered.record().open)
    prober = lab.prober()
    prober.add(IDLE, BUSY, UNKNOWN)
    answer = prober.wait(UNKNOWN, seconds=READY)
    assert answer is not None
    if backends == "noop":  # it guards nothing, and says so
        assert prober.wait(IDLE, seconds=READY) is not None
        return
    filtered.inspect(busy)
    assert prober.wait(BUSY, seconds=READY) is not None
    assert prober.quiet(IDLE, seconds=0.3) == []
    (leader,) = [host for host in filtered.hosts if host.address == answer.server]
    assert leader.pxe_filter is not None
    leader.pxe_filter.process.send_signal(signal.SIGKILL)
    follower = prober.wait(BUSY, seconds=READY, server=lambda server: server != leader.address)
    assert follower is not None
    assert max(one.asked for one in prober.answers if one.server == leader.address) < follower.asked
    filtered.finish(busy)
    filtered.wait_applied()
    ended = time.monotonic()
    time.sleep(0.4)
    prober.look()
    assert prober.since(ended, BUSY) == prober.since(0, IDLE) == []
    assert doubles(prober.answers) == []


def test_iptables_waits_for_whoever_else_changes_the_tables(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{with_a_lock(tmp_path)}:{os.environ['PATH']}")
    listed = lambda: lab.hosts[0].space.run("iptables", "-S").stdout  # noqa: E731
    with lab.hosts[0].space.entered():
        pxe_filter = IptablesFilter(FilterRules(network="lab", interfaces=("boot",)), clock=SystemClock(), timeout=10)
        steps = (pxe_filter.install, pxe_filter.close, pxe_filter.remove)
        shown = []
        for step in steps:
            with subprocess.Popen(["flock", str(tmp_path / "lock"), "sleep", "0.3"]):
                assert until(lambda: _locked(tmp_path / "lock"))
                step()
            shown.append("fspxe-lab" in listed())
    assert shown == [True, True, False]


def _locked(path: Path) -> bool:
    return subprocess.run(["flock", "--nonblock", str(path), "true"], check=False).returncode != 0


def test_a_full_disk_closes_the_host_and_another_one_opens(lab: Lab, postgresql_url: str) -> None:
    """The files of the first host are on a disk of 16 blocks."""
    filtered = FilteredLab(lab, postgresql_url, sections=FAST, options="unknown_hosts = deny")
    filtered.node(BUSY, booting=True)
    host = filtered.hosts[0]
    hosts = host.directory / "hosts"
    hosts.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(hosts)], check=True)
    lab.after(lambda: subprocess.run(["umount", str(hosts)], check=True))
    options = f"{guarded(host, 'dnsmasq')}\nunknown_hosts = deny"
    filtered.start(host, options=options)
    prober = lab.prober()
    prober.add(BUSY)
    assert prober.wait(BUSY, seconds=READY) is not None
    with contextlib.suppress(OSError):
        (hosts / ".full").write_bytes(b"x" * 1024 * 1024)
    filtered.start(filtered.hosts[1], options="unknown_hosts = deny")
    filtered.node(*(f"52:54:00:bc:00:{number:02x}" for number in range(64)), booting=True)
    successor = prober.wait(BUSY, seconds=READY, server=lambda server: server != host.address)
    assert successor is not None, "a host that cannot do it lets another one"
    time.sleep(0.5)
    prober.look()
    assert doubles(prober.answers) == []
