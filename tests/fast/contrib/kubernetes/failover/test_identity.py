"""Whose machine it is, during a remediation: looked for until its power is commanded, and doubted afterwards."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.cluster import OUT_OF_SERVICE, PAUSED
from ferroscope.contrib.kubernetes.failover.machines import MachineMatch
from ferroscope.contrib.kubernetes.failover.terms import (
    DeletePod,
    FailoverRules,
    PowerOff,
    PowerOn,
    SetTaint,
    is_forced,
)
from ferroscope.core.remediation import Phase, Proof
from tests.fast.contrib.kubernetes.failover.build import MACHINE, Case, attachment, node, pod
from tests.support.rows import each

_OTHER = msgspec.structs.replace(MACHINE, uuid="aaaaaaaa-0000-4000-8000-000000000002", name="m2")
_NONE = MachineMatch(None, "machine-shared", "machine m1 may be that of node n2, too")
_DIFFERENT = [MachineMatch(_OTHER), _NONE, MachineMatch(None, "machine-unknown", "?")]
_TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


def test_until_the_power_off_is_commanded_the_machine_is_looked_for_in_each_pass() -> None:
    case = Case()
    case.power_off = None  # the BMC of the machine that it was taken for is silent
    case.step()
    assert (case.step(60.0).reason, case.record.machine) == ("bmc-error", MACHINE.uuid)
    case.match = _NONE
    assert (case.step(1.0).reason, case.record.machine) == ("machine-shared", "")
    case.match, case.power_off = MachineMatch(_OTHER), False
    assert case.step(1.0).effects == (PowerOff(),)
    assert case.record.machine == _OTHER.uuid


def _commanded(case: Case) -> None:
    case.commanded()
    case.power_off = True


def _seen_off(case: Case) -> None:
    _commanded(case)
    case.step(1.0)


@each(
    "different",
    _DIFFERENT,
)
@each(
    "reach",
    [_commanded, _seen_off, Case.proven],
)
def test_after_the_command_a_different_match_stops_everything_and_the_machine_is_powered_on_again(
    reach: Any, different: MachineMatch
) -> None:
    case = Case()
    reach(case)
    case.match = different
    decision = case.step(5.0)
    assert (decision.reason, decision.effects, case.record.proof) == ("machine-contradicts", (), Proof.NONE)
    assert case.record.log[-1]["what"] == "machine-contradicts"
    assert case.step(1.0).effects == (PowerOn(),)
    assert case.record.machine == MACHINE.uuid
    case.power_off = False
    for _ in range(5):
        decision = case.step(60.0)
        assert (decision.reason, decision.effects) == ("machine-contradicts", ())
    # An operator has corrected what was wrong.
    case.match = MachineMatch(_OTHER)
    case.node = node(annotations={PAUSED: "true"})
    assert case.step(1.0).record.phase is Phase.CANCELLED
    assert case.step(1.0).reason == "paused"
    case.node = node()
    assert case.step(1.0).reason == "dwell"
    assert case.step(20.0).effects == (PowerOff(),)
    assert case.record.machine == _OTHER.uuid


def test_a_command_that_takes_effect_after_the_stop_is_undone_too() -> None:
    case = Case().commanded()
    case.match = MachineMatch(_OTHER)
    assert (case.step(1.0).reason, case.step(29.0).effects) == ("machine-contradicts", ())
    case.power_off = True
    assert case.step(1.0).effects == (PowerOn(),)


def test_a_stop_takes_our_taint_away() -> None:
    case = Case()
    case.taints = True
    case.proven()
    case.node, case.match = node(taints=(_TAINT,)), MachineMatch(_OTHER)
    assert case.step(1.0).effects == (SetTaint(case.node, present=False),)


def test_a_machine_that_is_only_watched_proves_nothing_once_it_is_not_the_nodes() -> None:
    case = Case(FailoverRules(power_off=False))
    case.power_off = True
    case.commanded()
    assert case.record.off_seen is not None
    case.match = _NONE
    assert (case.step(6.0).effects, case.record.phase, case.record.off_seen) == ((), Phase.DWELL, None)
    assert case.step(400.0).reason == "machine-shared"


@each("phase", ["dwell", "powering-off"])
def test_hardware_that_was_replaced_under_the_name_of_the_node_is_noticed_after_its_reboot(phase: str) -> None:
    case = Case()
    case.step()
    if phase == "powering-off":
        case.step(20.0)
        case.power_off = True
        case.step(1.0)
    case.node, case.match, case.renewal = node(boot="boot-2"), MachineMatch(_OTHER), "r2"
    decision = case.step(1.0)
    assert decision.reason == "rebooted"
    assert case.record.left_off == ""
    assert (decision.detached is not None) is (phase == "powering-off")
    if decision.detached is not None:  # the machine that it has left behind
        assert (decision.detached.machine, decision.detached.detached) == (MACHINE.uuid, True)
        assert "m1" in decision.detached.left_off
    # From here on the new machine counts, and only that.
    case.power_off = False
    assert case.step(1.0).record.machine == _OTHER.uuid
    assert case.step(20.0).effects == (PowerOff(),)
    assert "m2" in case.record.message
    case.power_off = True
    case.step(1.0)
    assert case.step(5.0).effects == (DeletePod(case.pods[0]),)


def test_a_node_that_was_alive_all_the_time_gets_back_the_machine_that_was_powered_off_for_it() -> None:
    case = Case()
    case.proven()
    case.node, case.silent = node(ready="True"), 0.0  # in the same boot: the machine is another one, or the BMC lies
    assert case.step(1.0).reason == "proof-ended"
    assert case.step(1.0).effects == (PowerOn(),)
    case.power_off = False
    assert case.step(1.0).reason == "ready-again"
    assert case.record is None


def test_a_proof_that_ends_while_the_machine_is_off_does_not_leave_it_off() -> None:
    case = Case()
    case.pods, case.attachments = [], [attachment()]
    case.proven()
    case.attachments, case.renewal = [], "r2"
    assert case.step(1.0).reason == "proof-ended"
    assert case.step(1.0).effects == (PowerOn(),)
    case.power_off, case.attachments = False, [attachment()]
    assert case.step(1.0).reason == "dwell"
    assert case.step(290.0).effects == ()  # it boots
    assert case.step(20.0).effects == (PowerOff(),)


@each("phase", ["powering-off", "evacuating", "returning"])
@each("why", ["paused", "maintenance", "view-bad", "bmc-error"])
def test_whatever_keeps_a_machine_off_that_we_have_powered_off_is_reported_on_its_node(phase: str, why: str) -> None:
    case = Case().seen_off()
    if phase != "powering-off":
        case.step(5.0)
    if phase == "returning":
        case.pods = []
        case.step(1.0)
    if why == "paused":
        case.node = node(annotations={PAUSED: "true"})
    elif why == "maintenance":
        case.match = MachineMatch(msgspec.structs.replace(MACHINE, maintenance=True))
    elif why == "view-bad":
        case.problem = "1 of 3 API servers answers"
    else:
        case.power_off = None
    case.step(1.0)
    decision = case.step(31.0)
    assert (decision.reason, decision.effects) == (why, ())
    assert case.record.left_off in decision.message
    assert case.conditions == [case.record.left_off]
    case.power_off = False
    case.step(1.0)
    assert case.conditions == []


def test_a_machine_that_takes_its_time_to_be_powered_on_is_not_said_to_be_left_off() -> None:
    case = Case()
    case.proven()
    case.freed()
    assert case.step(1.0).effects == (PowerOn(),)
    case.power = Power.CHANGING
    for _ in range(4):
        assert (case.step(31.0).reason, case.record.left_off) == ("power-on-pending", "")


@each("proof", ["label", "power-off"])
def test_another_mode_does_not_go_on_with_what_one_mode_has_begun_without_its_own_proof(proof: str) -> None:
    label = FailoverRules(mode="label", labels={"app": "noobaa"}, namespaces=("shop",))
    case = Case(label if proof == "label" else None)
    case.pods = [pod("a", labels={"app": "noobaa"}), pod("b")]
    if proof == "label":
        assert case.step().effects
        case.rules, case.power_off = FailoverRules(), False
        decision = case.step(1.0)
        assert (decision.effects, case.record.proof) == ((), Proof.NONE)
        assert case.step(20.0).effects == (PowerOff(),)
        return
    case.commanded()
    case.rules, case.power_off = label, True
    assert not [one for one in case.step(1.0).effects if is_forced(one)]
    assert case.step(5.0).effects  # its proof is brought to its end, and the machine is powered on
    case.freed()
    assert case.step(1.0).effects == (PowerOn(),)
