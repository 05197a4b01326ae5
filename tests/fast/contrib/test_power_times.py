"""When it is worth to look for the effect of a power command."""

from __future__ import annotations

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.openstack.inspections import IronicPowerTimes


def test_the_first_look_follows_what_earlier_changes_took() -> None:
    times = IronicPowerTimes()
    assert times.first_look(Power.ON) == 0.0
    for _ in range(50):
        times.learn_change(Power.ON, 4.0)
    assert 2.0 < times.first_look(Power.ON) < 4.0
    assert times.first_look(Power.OFF) == 0.0
    for _ in range(50):
        times.learn_change(Power.ON, 0.1)
    assert times.first_look(Power.ON) < 0.2


def test_one_slow_change_delays_no_other_for_long() -> None:
    times = IronicPowerTimes()
    times.learn_change(Power.OFF, 600.0)
    assert times.first_look(Power.OFF) <= 15.0
