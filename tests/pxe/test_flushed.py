"""The gate in iptables, and somebody who flushes the host's firewall or a part of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.contracts.pxe_filter import GateError
from ferroscope.core.boot_macs import SetChange
from ferroscope.pxe_filter.backends.iptables import IptablesGate
from ferroscope.pxe_filter.backends.ruleset import GateRules
from ferroscope.runtime.system import SystemClock
from tests.pxe.gated import FAST, GatedLab
from tests.pxe.lab import Lab
from tests.pxe.netns import Netns
from tests.pxe.test_backends import without_ipset
from tests.support.processes import until

IDLE, UNKNOWN = (f"52:54:00:be:00:{number:02x}" for number in range(1, 3))


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Netns]:
    with Lab(tmp_path, hosts=1) as lab:
        yield lab.hosts[0].space


@pytest.fixture(params=["ipset", "watchdog"])
def with_ipset(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return without_ipset(tmp_path) if request.param == "watchdog" else None


@pytest.mark.parametrize("tool", ["iptables", "ip6tables"])
def test_a_leader_whose_firewall_is_flushed_leaves_its_lease_and_is_closed_again(
    lab: Lab, postgresql_url: str, with_ipset: Path | None, tool: str
) -> None:
    gated = GatedLab(lab, postgresql_url, sections=FAST)
    gated.node(IDLE)
    for host in gated.hosts[:2]:
        gated.start_gate(host, options="backends = iptables", path=with_ipset)
        host.start_dnsmasq()
    assert until(lambda: gated.record().open, seconds=8)
    prober = lab.prober()
    prober.add(IDLE, UNKNOWN)
    answer = prober.wait(UNKNOWN, seconds=3)
    assert answer is not None
    (leader,) = [host for host in gated.hosts if host.address == answer.server]
    leader.space.run(tool, "-F")
    flushed = time.monotonic()
    assert until(lambda: "-j fspxe-default" in leader.space.run(tool, "-S", "INPUT").stdout, seconds=3)
    assert time.monotonic() - flushed < 2.0
    assert leader.gate is not None
    assert f"the gate's rules in {tool} are gone" in leader.gate.said()
    prober.look()
    again = time.monotonic()
    assert until(lambda: gated.record().open, seconds=8)
    assert prober.wait(UNKNOWN, seconds=3) is not None
    assert prober.since(again + 0.2, IDLE) == []


@pytest.mark.parametrize(
    "command",
    [
        ("iptables", "-D", "INPUT", "2"),
        ("ip6tables", "-D", "INPUT", "1"),
        ("iptables", "-F", "fspxe-lab"),
        ("sh", "-c", "printf '*filter\\nCOMMIT\\n' | ip6tables-restore"),
    ],
)
def test_whatever_part_of_it_is_gone_a_gate_that_is_held_open_notices(space: Netns, command: tuple[str, ...]) -> None:
    with space.entered():
        gate = IptablesGate(_rules("boot", "mgmt"), clock=SystemClock(), timeout=5)
        gate.install()
        assert until(lambda: _held(gate), seconds=3)
        assert space.run(*command).returncode == 0
        time.sleep(0.6)
        with pytest.raises(GateError, match="somebody"):
            _held(gate)
        gate.close()
        assert until(lambda: _held(gate), seconds=3)
        gate.remove()


def test_jumps_of_an_earlier_configuration_are_replaced_and_taken_away(space: Netns) -> None:
    with space.entered():
        IptablesGate(_rules("boot", "old0"), clock=SystemClock(), timeout=5).install()
        IptablesGate(_rules("boot"), clock=SystemClock(), timeout=5).install()
        assert "old0" not in space.run("iptables", "-S").stdout
        IptablesGate(_rules("old0"), clock=SystemClock(), timeout=5).install()
        IptablesGate(_rules("boot"), clock=SystemClock(), timeout=5).remove()
        for tool in ("iptables", "ip6tables"):
            assert "fspx" not in space.run(tool, "-S").stdout
        assert "fspx" not in space.run("ipset", "list", "-n").stdout


def test_networks_with_similar_and_with_the_longest_names_have_gates_of_their_own(space: Netns) -> None:
    longest = "a.b-c_d.e-f_g.hi"
    names = ("lab", "lab-m", longest)
    with space.entered():
        gates = {name: IptablesGate(_rules("boot", name=name), clock=SystemClock(), timeout=5) for name in names}
        for gate in gates.values():
            gate.install()
            gate.apply(SetChange(deny=(1,)), fresh=True)
            assert until(lambda gate=gate: _held(gate), seconds=3)  # type: ignore[misc]
        gates["lab"].remove()
        time.sleep(0.6)
        for name in names[1:]:
            assert _held(gates[name])
            gates[name].remove()


def _rules(*interfaces: str, name: str = "lab") -> GateRules:
    return GateRules(network=name, interfaces=interfaces, http_ports=(8080,))


def _held(gate: IptablesGate) -> bool:
    now = SystemClock().monotonic()
    return gate.hold(now + 5) > now
