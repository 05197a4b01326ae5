"""The filter in iptables, and another program that flushes the host's firewall or a part of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.core.boot_macs import SetChange
from ferroscope.runtime.system import SystemClock
from tests.support.processes import PATIENCE, until
from tests.support.pxe.filtered import FAST, READY, FilteredLab
from tests.support.pxe.lab import Lab
from tests.support.pxe.netns import Netns
from tests.system.pxe.test_backends import without_ipset

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
    filtered = FilteredLab(lab, postgresql_url, sections=FAST)
    filtered.node(IDLE)
    for host in filtered.hosts[:2]:
        filtered.start_pxe_filter(host, options="backends = iptables", path=with_ipset)
        host.start_dnsmasq()
    assert until(lambda: filtered.record().open)
    prober = lab.prober()
    prober.add(IDLE, UNKNOWN)
    answer = prober.wait(UNKNOWN, seconds=READY)
    assert answer is not None
    (leader,) = [host for host in filtered.hosts if host.address == answer.server]
    leader.space.run(tool, "-F")
    assert until(lambda: "-j fspxe-default" in leader.space.run(tool, "-S", "INPUT").stdout)
    assert leader.pxe_filter is not None
    assert f"rules in {tool}" in leader.pxe_filter.output()
    prober.look()
    again = time.monotonic()
    assert until(lambda: filtered.record().open)
    assert prober.wait(UNKNOWN, seconds=READY) is not None
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
def test_whatever_part_of_it_is_gone_a_filter_that_is_held_open_notices(space: Netns, command: tuple[str, ...]) -> None:
    with space.entered():
        pxe_filter = IptablesFilter(_rules("boot", "mgmt"), clock=SystemClock(), timeout=PATIENCE)
        pxe_filter.install()
        assert until(lambda: _held(pxe_filter))
        assert space.run(*command).returncode == 0
        time.sleep(0.6)
        with pytest.raises(PxeFilterError, match=r"ip6?tables"):
            _held(pxe_filter)
        pxe_filter.close()
        assert until(lambda: _held(pxe_filter))
        pxe_filter.remove()


def test_jumps_of_an_earlier_configuration_are_replaced_and_taken_away(space: Netns) -> None:
    with space.entered():
        IptablesFilter(_rules("boot", "old0"), clock=SystemClock(), timeout=PATIENCE).install()
        IptablesFilter(_rules("boot"), clock=SystemClock(), timeout=PATIENCE).install()
        assert "old0" not in space.run("iptables", "-S").stdout
        IptablesFilter(_rules("old0"), clock=SystemClock(), timeout=PATIENCE).install()
        IptablesFilter(_rules("boot"), clock=SystemClock(), timeout=PATIENCE).remove()
        for tool in ("iptables", "ip6tables"):
            assert "fspx" not in space.run(tool, "-S").stdout
        assert "fspx" not in space.run("ipset", "list", "-n").stdout


def test_networks_with_similar_and_with_the_longest_names_have_pxe_filters_of_their_own(space: Netns) -> None:
    longest = "a.b-c_d.e-f_g.hi"
    names = ("lab", "lab-m", longest)
    with space.entered():
        pxe_filters = {
            name: IptablesFilter(_rules("boot", name=name), clock=SystemClock(), timeout=PATIENCE) for name in names
        }
        for pxe_filter in pxe_filters.values():
            pxe_filter.install()
            pxe_filter.apply(SetChange(deny=(1,)), fresh=True)
            assert until(lambda pxe_filter=pxe_filter: _held(pxe_filter))  # type: ignore[misc]
        pxe_filters["lab"].remove()
        time.sleep(0.6)
        for name in names[1:]:
            assert _held(pxe_filters[name])
            pxe_filters[name].remove()


def _rules(*interfaces: str, name: str = "lab") -> FilterRules:
    return FilterRules(network=name, interfaces=interfaces, http_ports=(8080,))


def _held(pxe_filter: IptablesFilter) -> bool:
    now = SystemClock().monotonic()
    return pxe_filter.hold(now + 5) > now
