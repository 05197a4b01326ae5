"""The gate in front of real DHCP servers, in namespaces: who gets an offer, from whom, and when nobody does."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ferroscope.ports.store import Transaction
from tests.pxe.gated import FAILOVER, GatedLab, is_open
from tests.pxe.host import BootHost
from tests.pxe.lab import Lab
from tests.pxe.prober import Prober, doubles
from tests.support import examples
from tests.support.processes import until

IDLE, BUSY, UNKNOWN, SECOND = (f"52:54:00:aa:00:{number:02x}" for number in range(1, 5))

# For how long the kernel may keep a gate open of which nobody takes care any more.
CLOSED = 5.0


@pytest.fixture
def gated(lab: Lab, postgresql_url: str) -> GatedLab:
    return GatedLab(lab, postgresql_url)


def test_a_machine_is_served_while_its_node_is_under_inspection_and_by_one_host_only(gated: GatedLab) -> None:
    gated.node(IDLE)
    busy = gated.node(BUSY)
    for host in gated.hosts:
        gated.start(host)
    leader = gated.wait_open()
    prober = gated.lab.prober()
    prober.add(IDLE, BUSY, UNKNOWN)
    assert prober.wait(UNKNOWN, seconds=2) is not None, "an unknown machine may boot by default"
    assert prober.quiet(IDLE, seconds=0.3) == prober.quiet(BUSY, seconds=0.3) == []
    began = gated.inspect(busy)
    answer = prober.wait(BUSY, seconds=2)
    assert answer is not None
    assert answer.asked - began < 0.5, "the channel tells the gate at once"
    assert gated.lab.client(BUSY).dhcp() is not None
    assert gated.lab.client(BUSY).dhcp6() is not None
    assert gated.lab.client(IDLE).dhcp6(seconds=1.5) is None
    record = gated.record()
    assert (record.open, record.allowed, record.denied) == (True, 1, 1)
    gated.finish(busy)
    gated.wait_applied()
    ended = time.monotonic()
    time.sleep(0.5)
    prober.look()
    assert prober.since(ended, BUSY) == []
    assert prober.since(0, IDLE) == []
    assert {answer.server for answer in prober.answers} == {leader.address}
    assert doubles(prober.answers) == []


def test_unknown_machines_get_nothing_where_there_is_no_discovery(gated: GatedLab) -> None:
    gated.node(BUSY, booting=True)
    gated.start(gated.hosts[0], options="unknown_hosts = deny")
    gated.wait_open()
    prober = gated.lab.prober()
    prober.add(BUSY, UNKNOWN)
    assert prober.wait(BUSY, seconds=2) is not None
    assert prober.quiet(UNKNOWN, seconds=0.5) == []


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP, "cut"], ids=["killed", "frozen", "cut off"])
def test_whatever_becomes_of_the_leader_two_gates_are_never_open(gated: GatedLab, blow: signal.Signals | str) -> None:
    gated.node(BUSY, booting=True)
    for host in gated.hosts:
        gated.start(host)
    leader = gated.wait_open()
    prober = gated.lab.prober()
    prober.add(BUSY)
    assert prober.wait(BUSY, seconds=2) is not None
    struck = strike(leader, blow)
    follower = prober.wait(BUSY, seconds=FAILOVER + 1, server=lambda server: server != leader.address)
    assert follower is not None
    assert follower.asked - struck < FAILOVER
    assert last_answer(prober, leader) - struck < CLOSED
    revive(leader, blow)
    time.sleep(2.0)
    prober.look()
    assert doubles(prober.answers) == []
    assert not is_open(leader)


def strike(host: BootHost, blow: signal.Signals | str) -> float:
    assert host.gate is not None
    if isinstance(blow, str):
        host.cut()
    else:
        host.gate.process.send_signal(blow)
    return time.monotonic()


def revive(host: BootHost, blow: signal.Signals | str) -> None:
    assert host.gate is not None
    if blow is signal.SIGSTOP:
        host.gate.process.send_signal(signal.SIGCONT)
    elif blow == "cut":
        host.heal()


def last_answer(prober: Prober, host: BootHost) -> float:
    prober.look()
    return max((answer.asked for answer in prober.answers if answer.server == host.address), default=0.0)


def test_a_gate_that_is_stopped_closes_and_its_successor_opens_at_once(gated: GatedLab) -> None:
    for host in gated.hosts[:2]:
        gated.start(host)
    leader = gated.wait_open()
    prober = gated.lab.prober()
    prober.add(UNKNOWN)
    assert prober.wait(UNKNOWN, seconds=2) is not None
    assert leader.gate is not None
    leader.gate.process.terminate()
    assert leader.gate.process.wait(10) == 0
    stopped = time.monotonic()
    assert not is_open(leader)
    answer = prober.wait(UNKNOWN, seconds=5, server=lambda server: server != leader.address)
    assert answer is not None
    assert answer.asked - stopped < 2.5
    assert doubles(prober.answers) == []
    assert prober.quiet(UNKNOWN, seconds=0.2) != []


def test_a_mac_that_moves_and_a_port_that_goes_while_its_node_boots(gated: GatedLab) -> None:
    gated.node(IDLE)
    busy = gated.node(BUSY, SECOND, booting=True)
    gated.start(gated.hosts[0], options="unknown_hosts = deny")
    gated.wait_open()
    prober = gated.lab.prober()
    prober.add(IDLE, BUSY, SECOND)
    assert prober.wait(BUSY, seconds=2) is not None

    def move(tx: Transaction) -> None:
        tx.ports.update(msgspec.structs.replace(tx.ports.get(IDLE), node=busy.uuid))

    gated.write(move)
    assert prober.wait(IDLE, seconds=2) is not None, "it belongs to a node under inspection now"
    gated.delete_ports(busy)
    gated.wait_applied()
    assert prober.quiet(BUSY, seconds=0.5) == [], "nobody knows it any more, and unknown ones may not boot"
    record = gated.record()
    assert (record.allowed, record.denied) == (0, 0)


def test_ten_thousand_ports_at_once_and_addresses_in_odd_spellings(gated: GatedLab) -> None:
    gated.start(gated.hosts[0])
    gated.wait_open()
    node = gated.node(IDLE)
    many = [examples.port(node, address=f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}") for n in range(10_000)]
    odd = [examples.port(node, address=text) for text in ("52:54:00:AA:00:04", "no mac", "52-54-00-aa-00-05")]
    gated.write(lambda tx: tx.ports.add(many + odd))
    gated.wait_applied(seconds=10)
    assert gated.record().denied == 10_003
    prober = gated.lab.prober()
    prober.add(UNKNOWN, SECOND)
    assert prober.wait(UNKNOWN, seconds=2) is not None
    assert prober.quiet(SECOND, seconds=0.3) == []


def test_somebody_who_flushes_the_firewall_opens_no_host_for_long(gated: GatedLab) -> None:
    gated.node(IDLE)
    for host in gated.hosts[:2]:
        gated.start(host)
    leader = gated.wait_open()
    (follower,) = [host for host in gated.hosts[:2] if host is not leader]
    for host in (leader, follower):
        host.space.run("nft", "flush", "ruleset")
        assert until(partial(guarded, host), seconds=3)
    gated.wait_open(but=follower)
    gated.wait_applied()
    assert not is_open(follower)
    prober = gated.lab.prober()
    prober.add(IDLE)
    assert prober.quiet(IDLE, seconds=0.5) == []


def guarded(host: BootHost) -> bool:
    return "chain gate" in tables(host)


def tables(host: BootHost) -> str:
    return host.space.run("nft", "list", "ruleset").stdout


@pytest.mark.parametrize("fault", ["missing", "failing", "slow"])
def test_an_nft_that_does_not_work_closes_the_gate_and_another_host_opens(
    gated: GatedLab, tmp_path: Path, fault: str
) -> None:
    leader, other = gated.hosts[:2]
    tools = tmp_path / "tools"
    tools.mkdir()
    nft = tools / "nft"
    nft.write_text('#!/bin/sh\nexec /usr/sbin/nft "$@"\n')
    nft.chmod(0o755)
    leader.start_dnsmasq()
    gated.start_gate(leader, path=tools)
    assert gated.wait_open() is leader
    gated.start(other)
    broken = {"missing": "#!/nowhere\n", "failing": "#!/bin/sh\nexit 1\n", "slow": "#!/bin/sh\nsleep 60\n"}
    nft.write_text(broken[fault])
    assert until(lambda: not is_open(leader), seconds=CLOSED)
    gated.wait_open(but=leader, seconds=2 * FAILOVER)
    assert not is_open(leader)


def test_a_host_is_left_clean_and_what_is_not_ours_is_not_touched(gated: GatedLab) -> None:
    host = gated.hosts[0]
    host.space.run("nft", "add", "table", "inet", "theirs")
    host.space.run("nft", "add", "chain", "inet", "theirs", "input", "{ type filter hook input priority 0; }")
    before = tables(host)
    gated.start(host)
    gated.wait_open()
    assert host.gate is not None
    host.gate.process.terminate()
    host.gate.process.wait(10)
    assert "ferroscope_pxe_default" in tables(host), "what is stopped stays closed"
    config = str(host.directory / "ferroscope.conf")
    assert host.space.run(*gated.command("pxe", "clean", "-c", config)).returncode == 0
    assert tables(host) == before
    shown = host.space.run(*gated.command("pxe", "ruleset", "-c", config)).stdout
    (host.directory / "closed.nft").write_text(shown)
    assert host.space.run("nft", "-f", str(host.directory / "closed.nft")).returncode == 0
    prober = gated.lab.prober()
    prober.add(UNKNOWN)
    assert prober.quiet(UNKNOWN, seconds=0.5) == [], "the ruleset for the start of the host is closed"
