"""The filter of host files before a real dnsmasq: one that is not root, one that has to forget, many MACs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from ferroscope.contrib.boot.pxe_filter.backends.dnsmasq import DnsmasqFilter
from ferroscope.core.boot_macs import SetChange, number
from ferroscope.runtime.system import SystemClock
from tests.support.processes import until
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import Lab
from tests.support.pxe.prober import Prober

IDLE, BUSY, UNKNOWN, LATER = (f"52:54:00:bb:00:0{digit}" for digit in range(1, 5))
_MANY = 0x525401000000


def macs(*texts: str) -> list[int]:
    return [mac for text in texts if (mac := number(text)) is not None]


def soon(seconds: float = 60.0) -> float:
    return SystemClock().monotonic() + seconds


@pytest.fixture(autouse=True)
def hostsdir() -> Iterator[Path]:
    """Give a directory into which everybody may look, as tmp_path is not.

    It is there before the lab, and is removed after it: the lab's processes write into it until they end.
    """
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-hosts-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def host(lab: Lab, hostsdir: Path) -> BootHost:
    """Give a host whose dnsmasq, not started yet, reads host files and is not root."""
    found = lab.hosts[0]
    text = found.configuration.read_text().replace("user=root", "user=nobody")
    text = "\n".join(line for line in text.splitlines() if "tftp" not in line)  # which nobody may read
    found.configuration.write_text(f"{text}\ndhcp-hostsdir={hostsdir}\n")
    return found


@pytest.fixture
def pxe_filter(hostsdir: Path, tmp_path: Path) -> Iterator[DnsmasqFilter]:
    """Give a PXE filter with a pid file that nobody has written yet."""
    built = DnsmasqFilter(str(hostsdir), unknown=True, pid_file=str(tmp_path / "pid"))
    yield built
    built.remove()


@pytest.fixture
def prober(lab: Lab) -> Prober:
    """Give a prober that asks for all of them."""
    found = lab.prober()
    found.add(IDLE, BUSY, UNKNOWN, LATER)
    return found


def answered(prober: Prober) -> set[str]:
    """Return who gets answers now."""
    time.sleep(0.3)
    began = time.monotonic()
    time.sleep(0.4)
    return {one.mac for one in prober.since(began)}


@pytest.mark.parametrize("dnsmasq_is_first", [True, False])
def test_a_dnsmasq_that_is_not_root_reads_the_files_of_a_pxe_filter_whose_umask_is_narrow(
    host: BootHost, pxe_filter: DnsmasqFilter, hostsdir: Path, prober: Prober, *, dnsmasq_is_first: bool
) -> None:
    mask = os.umask(0o027)
    try:
        for name, text in (("unknown", "*:*:*:*:*:*,ignore\n"), ("525400bb0004", "52:54:00:bb:00:04\n")):
            (hostsdir / f"ferroscope-{name}").write_text(text)
        if dnsmasq_is_first:
            host.start_dnsmasq()
        pxe_filter.install()
        pxe_filter.apply(SetChange(allow=macs(BUSY), deny=macs(IDLE)), fresh=True)
        if not dnsmasq_is_first:
            host.start_dnsmasq()
        assert answered(prober) == set()
        pxe_filter.hold(soon())
        assert answered(prober) == {BUSY, UNKNOWN, LATER}
        pxe_filter.close()
        assert answered(prober) == set()
    finally:
        os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in hostsdir.iterdir()} == {0o644}


def test_a_denied_mac_on_a_list_is_allowed_and_denied_again_also_after_a_restart_of_dnsmasq(
    host: BootHost, pxe_filter: DnsmasqFilter, hostsdir: Path, prober: Prober
) -> None:
    host.start_dnsmasq()
    pxe_filter.install()
    many = range(_MANY, _MANY + 500)
    pxe_filter.apply(SetChange(deny=[*macs(IDLE, BUSY, LATER), *many]), fresh=True)
    pxe_filter.hold(soon())
    assert len(list(hostsdir.iterdir())) == 2, "one list, and the unknown hosts"
    assert answered(prober) == {UNKNOWN}
    pxe_filter.apply(SetChange(allow=macs(BUSY), no_longer_deny=macs(BUSY)), fresh=False)
    pxe_filter.apply(SetChange(no_longer_deny=macs(LATER)), fresh=False)
    assert answered(prober) == {BUSY, UNKNOWN, LATER}
    host.kill_dnsmasq()
    host.start_dnsmasq()
    assert answered(prober) == {BUSY, UNKNOWN, LATER}
    pxe_filter.apply(SetChange(deny=macs(BUSY), no_longer_allow=macs(BUSY)), fresh=False)
    assert answered(prober) == {UNKNOWN, LATER}
    host.kill_dnsmasq()
    host.start_dnsmasq()
    assert answered(prober) == {UNKNOWN, LATER}
    pxe_filter.close()
    assert answered(prober) == set()


def test_only_a_dnsmasq_is_told_to_forget(
    host: BootHost, pxe_filter: DnsmasqFilter, hostsdir: Path, prober: Prober, tmp_path: Path
) -> None:
    pxe_filter.install()
    pxe_filter.apply(SetChange(allow=macs(BUSY), deny=macs(IDLE)), fresh=True)
    pxe_filter.hold(soon())
    host.start_dnsmasq()
    other = subprocess.Popen(["sleep", "60"])
    try:
        for pid in (other.pid, -1, 0, 1, "x"):
            (tmp_path / "pid").write_text(f"{pid}\n")
            with structlog.testing.capture_logs() as logs:
                pxe_filter.install()
            assert any("names another process" in line["event"] for line in logs), pid
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert (hostsdir / "ferroscope-525400bb0001").exists(), "dnsmasq remembers it, as far as anybody knows"
    (tmp_path / "pid").write_text(str(host.dnsmasq_pid))
    pxe_filter.install()
    pxe_filter.hold(soon())
    assert [path.name for path in hostsdir.iterdir()] == ["ferroscope-unknown"]
    assert answered(prober) == {IDLE, BUSY, UNKNOWN, LATER}, "forgotten"


def test_what_a_dnsmasq_remembers_after_the_pxe_filter_was_removed_is_said(
    host: BootHost, pxe_filter: DnsmasqFilter, prober: Prober, tmp_path: Path
) -> None:
    host.start_dnsmasq()
    pxe_filter.install()
    assert answered(prober) == set()
    with structlog.testing.capture_logs() as logs:
        pxe_filter.remove()
    assert [line["log_level"] for line in logs] == ["warning"]
    assert answered(prober) == set()
    (tmp_path / "pid").write_text(str(host.dnsmasq_pid))
    with structlog.testing.capture_logs() as logs:
        pxe_filter.remove()
    assert logs == []
    assert answered(prober) == {IDLE, BUSY, UNKNOWN, LATER}


def test_what_the_watchdog_closed_opens_again(host: BootHost, pxe_filter: DnsmasqFilter, prober: Prober) -> None:
    host.start_dnsmasq()
    pxe_filter.install()
    pxe_filter.apply(SetChange(allow=macs(BUSY), deny=macs(IDLE)), fresh=True)
    pxe_filter.hold(soon(0.3))
    time.sleep(0.5)
    pxe_filter.apply(SetChange(allow=macs(LATER)), fresh=False)
    assert answered(prober) == set(), "also who is allowed only now"
    pxe_filter.hold(soon())
    assert answered(prober) == {BUSY, UNKNOWN, LATER}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"nonsense\n"])
def test_whatever_a_file_says_the_watchdog_closes_and_the_pxe_filter_starts(
    host: BootHost, pxe_filter: DnsmasqFilter, hostsdir: Path, prober: Prober, content: bytes
) -> None:
    host.start_dnsmasq()
    for name in ("ferroscope-525400bb0001", "ferroscope-denied-3", "ferroscope-foreign"):
        (hostsdir / name).write_bytes(content)
    pxe_filter.install()
    pxe_filter.apply(SetChange(allow=macs(BUSY), deny=macs(IDLE)), fresh=True)
    pxe_filter.hold(soon(2))
    assert answered(prober) == {BUSY, UNKNOWN, LATER}
    (hostsdir / "ferroscope-525400bb0004").write_bytes(content)
    (hostsdir / "ferroscope-525400bb0001").write_bytes(content)
    assert until(lambda: b"ignore" in (hostsdir / "ferroscope-unknown").read_bytes())
    assert answered(prober) == set()
    assert (hostsdir / "ferroscope-foreign").read_bytes() == content


def test_dhcpv6_is_answered_as_host_files_say(lab: Lab, hostsdir: Path) -> None:
    host = lab.hosts[0]
    host.configuration.write_text(f"{host.configuration.read_text()}dhcp-hostsdir={hostsdir}\n")
    host.start_dnsmasq()
    pxe_filter = DnsmasqFilter(str(hostsdir), unknown=True)
    clients = {mac: lab.client(mac) for mac in (IDLE, BUSY, UNKNOWN)}
    given = lambda: {mac for mac, client in clients.items() if client.dhcp6(seconds=2.5) is not None}  # noqa: E731
    pxe_filter.install()
    pxe_filter.apply(SetChange(allow=macs(BUSY), deny=[*macs(IDLE), *range(_MANY, _MANY + 50)]), fresh=True)
    assert given() == set()
    pxe_filter.hold(soon())
    assert given() == {BUSY, UNKNOWN}
    pxe_filter.apply(SetChange(allow=macs(IDLE), no_longer_deny=macs(IDLE)), fresh=False)
    pxe_filter.apply(SetChange(deny=macs(BUSY), no_longer_allow=macs(BUSY)), fresh=False)
    assert given() == {IDLE, UNKNOWN}
    pxe_filter.remove()
