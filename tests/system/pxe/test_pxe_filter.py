"""The filter in front of real DHCP servers, where something is out of the ordinary: broken tools, odd data, relays."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ferroscope.contracts.store import Query
from tests.support import examples
from tests.support.processes import PATIENCE, until
from tests.support.pxe.filtered import FAST, READY, FilteredLab, is_open
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import Lab
from tests.support.pxe.prober import Prober, doubles

IDLE, BUSY, UNKNOWN, SECOND = (f"52:54:00:aa:00:{number:02x}" for number in range(1, 5))

# For how long the kernel may keep a PXE filter open of which nobody takes care any more.


@pytest.fixture
def filtered(lab: Lab, postgresql_url: str) -> FilteredLab:
    return FilteredLab(lab, postgresql_url)


@pytest.fixture
def fast(tmp_path: Path, postgresql_url: str) -> Iterator[FilteredLab]:
    """Two hosts with the profile ``fast``, for what does not depend on how long a lease lives."""
    with Lab(tmp_path, hosts=2) as lab:
        yield FilteredLab(lab, postgresql_url, sections=FAST)


def test_a_leader_that_is_frozen_is_closed_and_the_next_one_opens(filtered: FilteredLab) -> None:
    filtered.node(BUSY, booting=True)
    for host in filtered.hosts:
        filtered.start(host)
    leader = filtered.wait_open()
    prober = filtered.lab.prober()
    prober.add(BUSY)
    assert prober.wait(BUSY, seconds=READY) is not None
    assert leader.pxe_filter is not None
    leader.pxe_filter.process.send_signal(signal.SIGSTOP)
    follower = prober.wait(BUSY, seconds=READY, server=lambda server: server != leader.address)
    assert follower is not None
    assert last_answer(prober, leader) < follower.asked
    assert until(lambda: not is_open(leader)), "its watchdog closes it while it is frozen"
    leader.pxe_filter.process.send_signal(signal.SIGCONT)
    time.sleep(1.5)
    prober.look()
    assert doubles(prober.answers) == []
    assert not is_open(leader)


def last_answer(prober: Prober, host: BootHost) -> float:
    prober.look()
    return max((answer.asked for answer in prober.answers if answer.server == host.address), default=0.0)


def test_a_pxe_filter_that_is_stopped_closes_and_its_successor_opens_at_once(fast: FilteredLab) -> None:
    for host in fast.hosts[:2]:
        fast.start(host)
    leader = fast.wait_open()
    prober = fast.lab.prober()
    prober.add(UNKNOWN)
    assert prober.wait(UNKNOWN, seconds=READY) is not None
    assert leader.pxe_filter is not None
    leader.pxe_filter.process.terminate()
    assert leader.pxe_filter.process.wait(PATIENCE) == 0
    assert not is_open(leader)
    answer = prober.wait(UNKNOWN, seconds=READY, server=lambda server: server != leader.address)
    assert answer is not None
    assert doubles(prober.answers) == []
    assert prober.quiet(UNKNOWN, seconds=0.2) != []


def test_ten_thousand_ports_at_once_and_addresses_in_odd_spellings(fast: FilteredLab) -> None:
    fast.start(fast.hosts[0])
    fast.wait_open()
    node = fast.node(IDLE)
    many = [examples.port(node, address=f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}") for n in range(10_000)]
    odd = [examples.port(node, address=text) for text in ("52:54:00:AA:00:04", "no mac", "52-54-00-aa-00-05")]
    fast.write(lambda tx: tx.ports.add(many + odd))
    fast.wait_applied()
    assert fast.record().denied == 10_003
    prober = fast.lab.prober()
    prober.add(UNKNOWN, SECOND)
    assert prober.wait(UNKNOWN, seconds=READY) is not None
    assert prober.quiet(SECOND, seconds=0.3) == []


@pytest.mark.parametrize("assigns", [True, False])
def test_the_timeline_says_which_address_dnsmasq_assigned(lab: Lab, postgresql_url: str, *, assigns: bool) -> None:
    host = lab.hosts[0]
    option = f"dhcp-leasefile={host.directory}/leases"
    host.configuration.write_text(host.configuration.read_text().replace("leasefile-ro", option))
    boot = f"[boot]\nranges = 10.77.0.50-10.77.0.229\ndnsmasq_options = {option}\n"
    filtered = FilteredLab(lab, postgresql_url, options="sync_period = 1", sections=FAST + boot)
    busy = filtered.node(BUSY, booting=True)
    filtered.start(host)
    filtered.wait_open()
    filtered.wait_applied()
    if not assigns:
        host.kill_dnsmasq()
    lease = lab.client(BUSY).dhcp(seconds=10 if assigns else 2)
    text = f"assigned {lease.address} to" if lease is not None else "assigned no address to the DHCP request of"
    assert (lease is not None) == assigns
    expected = f"dnsmasq on {socket.gethostname()} {text} {BUSY}"
    query = Query(filters={"node": busy.uuid})
    assert until(lambda: expected in [entry.message for entry in filtered.write(lambda tx: tx.journal.list(query))])
    assert filtered.record().requests


def test_somebody_who_flushes_the_firewall_opens_no_host_for_long(fast: FilteredLab) -> None:
    fast.node(IDLE)
    for host in fast.hosts[:2]:
        fast.start(host)
    flush(fast.wait_open())
    leader = fast.wait_open()  # either: whoever cannot hold its filter open hands its lease back
    (follower,) = [host for host in fast.hosts if host is not leader]
    flush(follower)
    fast.wait_applied()
    assert is_open(leader)
    assert not is_open(follower)
    prober = fast.lab.prober()
    prober.add(IDLE)
    assert prober.quiet(IDLE, seconds=0.5) == []


def flush(host: BootHost) -> None:
    """Flush the host's firewall, whole; return when the filter has its rules there again."""
    host.space.run("nft", "flush", "ruleset")
    assert until(partial(guarded, host))


def guarded(host: BootHost) -> bool:
    return "chain filter" in tables(host)


def tables(host: BootHost) -> str:
    return host.space.run("nft", "list", "ruleset").stdout


@pytest.mark.parametrize("fault", ["missing", "slow"])
def test_an_nft_that_does_not_work_closes_the_pxe_filter_and_another_host_opens(
    fast: FilteredLab, tmp_path: Path, fault: str
) -> None:
    leader, other = fast.hosts
    tools = tmp_path / "tools"
    tools.mkdir()
    nft = tools / "nft"
    nft.write_text('#!/bin/sh\nexec /usr/sbin/nft "$@"\n')
    nft.chmod(0o755)
    leader.start_dnsmasq()
    fast.start_pxe_filter(leader, path=tools)
    assert fast.wait_open() is leader
    fast.start(other)
    broken = {"missing": "#!/nowhere\n", "slow": "#!/bin/sh\nsleep 60\n"}
    nft.write_text(broken[fault])
    assert until(lambda: not is_open(leader))
    fast.wait_open(but=leader, seconds=READY)
    assert not is_open(leader)


def test_a_host_is_left_clean_and_what_is_not_ours_is_not_touched(fast: FilteredLab) -> None:
    host = fast.hosts[0]
    host.space.run("nft", "add", "table", "inet", "theirs")
    host.space.run("nft", "add", "chain", "inet", "theirs", "input", "{ type filter hook input priority 0; }")
    before = tables(host)
    fast.start(host)
    fast.wait_open()
    assert host.pxe_filter is not None
    host.pxe_filter.process.terminate()
    host.pxe_filter.process.wait(PATIENCE)
    assert "ferroscope_pxe_default" in tables(host), "what is stopped stays closed"
    config = str(host.directory / "ferroscope.conf")
    assert host.space.run(*fast.command("pxe", "clean", "-c", config)).returncode == 0
    assert tables(host) == before
    shown = host.space.run(*fast.command("pxe", "ruleset", "-c", config)).stdout
    (host.directory / "closed.nft").write_text(shown)
    assert host.space.run("nft", "-f", str(host.directory / "closed.nft")).returncode == 0
    prober = fast.lab.prober()
    prober.add(UNKNOWN)
    assert prober.quiet(UNKNOWN, seconds=0.5) == [], "the ruleset for the start of the host is closed"
