"""Names choose outcomes; the table and the counters agree."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

import pytest

from ferroscope_sim.inventory import MAX_INDEX
from ferroscope_sim.model import FleetSettings, bmc_host, roster
from ferroscope_sim.outcomes import OUTCOMES, outcome_of
from tests.support.rows import each


@each("name", sorted(OUTCOMES))
def test_every_outcome_is_chosen_by_its_name_with_and_without_a_number(name: str) -> None:
    assert outcome_of(f"sim-{name}-7").name == name
    assert outcome_of(f"sim-{name}").name == name


@each("name", ["sim-0001", "rack-3", "sim-nonsense-3", "timeout-3", "", "sim-timeout-3-x", "sim-"])
def test_any_other_name_is_ok(name: str) -> None:
    assert outcome_of(name).name == "ok"


def test_a_fleet_has_numbered_members_and_then_the_special_ones() -> None:
    members = roster(FleetSettings(nodes=2, special=("sim-timeout-1",), first=41))
    assert [(member.name, member.number) for member in members[:2]] == [("sim-0041", 41), ("sim-0042", 42)]
    assert (members[2].name, members[2].outcome.name) == ("sim-timeout-1", "timeout")


def test_a_special_machine_is_the_same_in_every_fleet_and_no_plain_one() -> None:
    special = tuple(f"sim-timeout-{number}" for number in range(3000))
    members = roster(FleetSettings(nodes=0, special=special))
    numbers = [member.number for member in members]
    assert len(set(numbers)) == 3000
    assert 8_000_000 < min(numbers) <= max(numbers) <= MAX_INDEX
    assert roster(FleetSettings(nodes=40, special=special[:1], first=7))[40] == members[0]


def test_shares_of_a_fleet_are_dead_in_every_way_or_flapping_the_same_in_every_run() -> None:
    def names(seed: int) -> list[str]:
        return [member.name for member in roster(FleetSettings(nodes=500, dead=0.03, flapping=0.02, seed=seed))]

    kinds = Counter(outcome_of(name).name for name in names(1))
    assert kinds == {"ok": 475, "bmc-dead": 5, "bmc-refused": 5, "bmc-black-hole": 5, "bmc-flapping": 10}
    assert names(1) == names(1)
    assert names(1) != names(2)
    assert [name[-4:] for name in names(1)] == [f"{number:04d}" for number in range(1, 501)]


def test_bmcs_are_spread_over_networks_of_loopback() -> None:
    settings = FleetSettings(subnet=20)
    assert [bmc_host(settings, number) for number in (1, 20, 21, 5081)] == [
        "127.0.1.1",
        "127.0.1.20",
        "127.0.2.1",
        "127.1.1.1",
    ]
    members = roster(FleetSettings(nodes=5000, special=("sim-timeout-1",)))
    hosts = {ip_address(bmc_host(settings, member.number)) for member in members}
    assert len(hosts) == 5001
    assert all(host.is_loopback for host in hosts)
    assert bmc_host(FleetSettings(subnet=0), 9) == "127.0.0.1"
    assert bmc_host(FleetSettings(host="192.0.2.1"), 9) == "192.0.2.1"


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice: sim-0002"):
        roster(FleetSettings(nodes=2, special=("sim-0002",)))
