"""Commands that take effect late, and leaders that have only begun to look: both were found by the simulation."""

from __future__ import annotations

from ferroscope.contrib.kubernetes.failover.terms import FailoverRules, PowerOff, PowerOn
from ferroscope.core.remediation import Phase
from tests.fast.contrib.kubernetes.failover.build import Case, node
from tests.support.rows import each


@each("ready", ["True", "Unknown"])
def test_a_machine_that_goes_off_late_after_the_node_has_rebooted_by_itself_is_powered_on_again(ready: str) -> None:
    case = Case().commanded()
    case.node, case.renewal, case.silent = node(boot="boot-2", ready=ready), "r2", 0.0
    assert case.step(1.0).reason == "power-off-pending"
    case.power_off = True
    assert case.step(1.0).reason == "rebooted"
    assert case.step(1.0).effects == (PowerOn(),)
    case.power_off = False
    case.node, case.renewal = node(boot="boot-3", ready="True"), "r3"
    assert case.step(60.0).record.ended
    assert case.pods


def test_a_node_that_has_rebooted_by_itself_ends_its_remediation_once_no_command_can_be_late() -> None:
    case = Case().commanded()
    case.node, case.renewal, case.silent = node(boot="boot-2", ready="True"), "r2", 0.0
    assert not case.step(29.0).record.ended
    decision = case.step(2.0)
    assert (decision.record.phase, decision.reason) == (Phase.DONE, "rebooted")


def test_a_leader_that_has_only_begun_to_look_powers_nothing_off() -> None:
    case = Case()
    case.step()
    case.watched = FailoverRules().silence - 1.0
    decision = case.step(30.0)
    assert (decision.effects, decision.reason) == ((), "watching")
    case.watched = FailoverRules().silence
    assert case.step(1.0).effects == (PowerOff(),)


def test_nor_does_it_repeat_the_command_of_its_predecessor() -> None:
    case = Case().commanded()
    case.epoch, case.watched = 2, 0.0
    assert case.step(1.0).reason == "watching"
    case.watched = 60.0
    assert case.step(15.0).effects == (PowerOff(),)
