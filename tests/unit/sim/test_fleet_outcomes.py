"""Names choose outcomes; the table and the counters agree."""

from __future__ import annotations

import pytest

from ferroscope.sim.outcomes import OUTCOMES, TABLE, outcome_of
from ferroscope.sim.roster import roster
from ferroscope.sim.settings import FleetSettings
from ferroscope.sim.tally import MEANINGS, Counters, Effect


@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_every_outcome_is_chosen_by_its_name_with_and_without_a_number(name: str) -> None:
    assert outcome_of(f"sim-{name}-7").name == name
    assert outcome_of(f"sim-{name}").name == name


@pytest.mark.parametrize("name", ["sim-0001", "rack-3", "sim-nonsense-3", "timeout-3", "", "sim-timeout-3-x", "sim-"])
def test_any_other_name_is_ok(name: str) -> None:
    assert outcome_of(name).name == "ok"


def test_no_outcome_is_listed_twice_and_each_says_what_it_does() -> None:
    assert len(OUTCOMES) == len(TABLE)
    for outcome in TABLE:
        assert outcome.sentence.endswith("."), outcome.name
        assert outcome.ends.startswith(("finished", "error: ")), outcome.name


def test_every_counter_is_an_effect_with_a_meaning() -> None:
    assert set(Counters.__struct_fields__) == set(Effect) == set(MEANINGS)


def test_a_fleet_has_numbered_members_and_then_the_special_ones() -> None:
    members = roster(FleetSettings(nodes=2, special=("sim-timeout-1",), first=41))
    assert [(member.name, member.number) for member in members] == [
        ("sim-0041", 41),
        ("sim-0042", 42),
        ("sim-timeout-1", 43),
    ]
    assert members[2].outcome.name == "timeout"


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice: sim-0002"):
        roster(FleetSettings(nodes=2, special=("sim-0002",)))
