"""The decision about a failed node, case by case; nothing here has I/O, and the clock is a number."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, OUT_OF_SERVICE
from ferroscope.contrib.kubernetes.failover.machines import MachineMatch
from ferroscope.contrib.kubernetes.failover.terms import (
    DeleteAttachment,
    DeletePod,
    FailoverRules,
    Inspect,
    PowerOff,
    PowerOn,
    SetTaint,
    is_aged,
)
from ferroscope.core.remediation import Phase, Proof
from tests.fast.contrib.kubernetes.failover.build import MACHINE, Case, attachment, node, pod
from tests.support.rows import each

_TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


@each("condition", [("False", "KubeletNotReady"), ("Unknown", "NodeStatusUnknown"), ("", "")])
def test_a_node_that_is_not_ready_any_more_is_found_without_having_seen_it_happen(condition: tuple[str, str]) -> None:
    case = Case()
    case.node = node(ready=condition[0], reason=condition[1])
    assert case.step().record.phase is Phase.DWELL


@each(
    "seen",
    [node(ready="True"), node(reason="NodeStatusNeverUpdated"), node(boot=""), None],
)
def test_a_node_that_is_ready_or_never_was_is_left_alone(seen: Any) -> None:
    case = Case()
    case.node, case.silent = seen, 0.0
    assert case.step().record is None


def test_a_machine_is_powered_off_after_the_dwell_time_and_its_pods_freed_after_two_sightings() -> None:
    case = Case()
    case.attachments = [attachment()]
    assert (case.step().reason, case.step(19.0).effects) == ("dwell", ())
    assert case.step(1.0).effects == (PowerOff(),)
    assert case.step(1.0).reason == "power-off-pending"
    case.power_off = True
    assert case.step(1.0).reason == "seen-off-once"
    assert (case.step(4.9).reason, case.record.phase) == ("seen-off-once", Phase.POWERING_OFF)
    decision = case.step(0.1)
    assert decision.effects == (DeletePod(case.pods[0]),)
    assert (decision.record.phase, decision.record.proof) == (Phase.EVACUATING, Proof.POWER_OFF)
    case.pods = []
    assert case.step(1.0).effects == (DeleteAttachment(case.attachments[0]),)
    case.attachments = []
    assert case.step(1.0).reason == "evacuated"
    assert case.step(1.0).effects == (PowerOn(),)
    case.power_off, case.node, case.silent = False, node(ready="True", boot="boot-2"), 0.0
    decision = case.step(60.0)
    assert (decision.record.phase, decision.reason) == (Phase.DONE, "returned")


def test_the_dwell_time_begins_when_the_failure_was_seen_and_not_when_the_bmc_has_answered() -> None:
    case = Case()
    case.age = 1.5
    case.step()
    case.age = 0.0
    assert case.step(18.4).reason == "dwell"
    assert case.step(0.1).effects == (PowerOff(),)


def test_a_node_that_comes_back_during_the_dwell_time_is_not_touched() -> None:
    case = Case()
    case.step()
    case.node, case.silent = node(ready="True"), 0.0
    decision = case.step(19.0)
    assert (decision.record.phase, decision.effects) == (Phase.CANCELLED, ())


def test_a_node_that_is_ready_again_after_the_command_is_watched_until_the_command_is_too_old_to_take_effect() -> None:
    case = Case().commanded()
    case.node, case.silent, case.renewal = node(ready="True"), 1.0, "r2"
    assert case.step(5.0).reason == "power-off-pending"
    # It takes effect after all: what we have powered off, we power on again.
    case.node, case.silent, case.power_off = node(), 60.0, True
    case.step(10.0)
    case.step(5.0)
    case.freed()
    assert case.step(31.0).effects == (PowerOn(),)


def test_a_machine_whose_late_power_off_has_just_taken_effect_is_not_forgotten_without_power() -> None:
    case = Case().commanded()
    case.node, case.silent, case.renewal = node(ready="True"), 1.0, "r2"
    case.step(29.0)
    # The kubelet has renewed its lease a moment ago, so the node looks alive; but its machine is off now.
    case.silent, case.power_off = 3.0, True
    assert case.step(2.0).reason == "power-off-pending"
    case.node, case.silent = node(), 16.0
    case.step(12.0)
    case.step(5.0)
    case.freed()
    assert case.step(31.0).effects == (PowerOn(),)


@each("off", [False, True])
def test_a_successor_sends_the_command_that_the_leader_may_only_have_announced(off: bool) -> None:
    case = Case()
    case.power_off = off
    case.commanded()
    case.epoch += 1
    assert case.step(1.0).effects == (PowerOff(),)
    assert case.step(1.0).effects == ()
    case.power_off = True
    case.step(1.0)
    case.step(5.0)
    case.freed()
    assert case.step(31.0).effects == (() if off else (PowerOn(),))
    case.epoch += 1
    assert case.step(1.0).effects == (() if off else (PowerOn(),))


def test_a_bmc_that_is_stuck_at_off_does_not_keep_the_remediation_of_a_ready_node_open() -> None:
    case = Case()
    case.power_off = True
    case.commanded()
    case.node, case.silent, case.renewal = node(ready="True"), 1.0, "r2"
    assert case.step(29.0).record is not None
    assert case.step(2.0).reason == "ready-again"
    assert case.record is None


def test_a_kubelet_that_reports_a_fault_itself_gets_more_time() -> None:
    case = Case()
    case.node, case.silent = node(ready="False", reason="KubeletNotReady"), 1.0
    case.step()
    assert case.step(20.0).reason == "dwell"
    assert case.step(280.0).effects == (PowerOff(),)


def test_silence_of_a_kubelet_asks_the_bmc_early_but_forces_nothing_while_the_node_counts_as_ready() -> None:
    case = Case()
    case.node, case.power_off = node(ready="True"), True
    case.step()
    assert case.step(25.0).reason == "still-ready"
    case.node = node()
    assert case.step(1.0).reason == "dwell"  # it begins when the cluster has given up the node, as others may follow
    assert case.step(19.0).effects == ()
    assert case.step(1.0).effects == (PowerOff(),)


def test_a_node_that_is_ready_in_between_begins_its_dwell_time_anew() -> None:
    case = Case()
    case.step()
    case.node = node(ready="True")
    case.step(15.0)
    case.node = node()
    case.step(1.0)
    assert case.step(19.0).reason == "dwell"
    assert case.step(1.0).effects == (PowerOff(),)


def test_a_machine_that_is_said_to_be_off_is_powered_off_all_the_same_but_not_powered_on_afterwards() -> None:
    case = Case()
    case.power_off = True
    case.step()
    assert case.step(19.0).effects == ()
    decision = case.step(1.0)
    assert decision.effects == (PowerOff(),)
    assert "although its BMC reports that it is off" in decision.message
    assert case.step(1.0).reason == "seen-off-once"
    assert case.step(5.0).effects == (DeletePod(case.pods[0]),)
    case.freed()
    assert case.step(1.0).effects == ()
    assert case.step(60.0).reason == "left-off"
    case.power_off = False
    assert case.step(1.0).reason == "waiting-for-return"


def test_a_renewed_lease_between_two_sightings_means_that_the_bmc_is_wrong() -> None:
    case = Case().seen_off()
    case.renewal = "r2"
    assert case.step(6.0).reason == "kubelet-alive"
    assert case.step(4.0).effects == ()
    assert case.step(1.0).effects == (DeletePod(case.pods[0]),)


@each(
    "life",
    [
        {"renewal": "r2"},
        {"power_off": False},
        {"node": node(boot="boot-2")},
        {"node": node(ready="True")},
    ],
)
def test_a_sign_of_life_ends_the_proof(life: dict[str, Any]) -> None:
    case = Case()
    assert case.proven().effects
    case.set(life)
    decision = case.step(1.0)
    assert (decision.effects, decision.reason) == ((), "proof-ended")
    assert case.record.proof is Proof.NONE


@each(
    ("life", "doubts"),
    [
        ({"node": node(boot="boot-2"), "power_off": False}, False),
        ({"node": node(boot="boot-2"), "renewal": "r3"}, False),
        ({}, False),
        ({"renewal": "r3"}, True),
        ({"renewal": "r3", "power_off": False}, True),
        ({"node": node(ready="True")}, True),
    ],
)
def test_a_bmc_is_doubted_if_the_node_lives_on_in_the_boot_that_was_proven_off(
    life: dict[str, Any], doubts: bool
) -> None:
    case = Case()
    case.proven()
    case.renewal = "r2"  # by a kubelet of the next boot, which has not reported its boot ID yet, or by that of this one
    assert case.step(1.0).reason == "proof-ended"
    assert not case.record.doubts_bmc
    case.set(life)
    assert case.step(10.0).record.doubts_bmc is doubts


def test_nothing_is_forced_while_the_bmc_does_not_answer() -> None:
    case = Case()
    case.proven()
    case.power_off = None
    assert (case.step(5.0).reason, case.step(5.0).effects) == ("bmc-error", ())
    case.power_off = True
    assert case.step(1.0).effects == (DeletePod(case.pods[0]),)


@each("taints", [False, True])
def test_an_answer_that_has_aged_forces_nothing_and_the_bmc_is_asked_again(taints: bool) -> None:
    case = Case()
    case.taints, case.attachments = taints, [attachment()]
    case.answer_took = case.rules.proof_age + 0.1
    case.proven()
    case.step(case.answer_took)  # now the first answer was there 5 s before this question
    assert case.record.proof is Proof.POWER_OFF
    assert case.step(1.0).reason == "answer-aged"
    assert (case.step(1.0).effects, case.record.tainted) == ((), False)
    case.answer_took = case.rules.proof_age
    assert case.step(1.0).effects == ((SetTaint(case.node, present=True),) if taints else (DeletePod(case.pods[0]),))
    case.pods, case.answer_took = [], case.rules.proof_age + 0.1
    assert (case.step(1.0).effects, case.record.phase) == ((), Phase.EVACUATING)
    case.answer_took = 0.0
    assert case.step(1.0).effects == (DeleteAttachment(case.attachments[0]),)


def test_what_was_seen_ages_until_the_moment_of_each_effect_but_a_reboot_does_not() -> None:
    case = Case()
    case.pods = [pod("old", terminating=True), pod("new")]
    (old, new) = case.proven().effects
    limit = case.now + case.rules.proof_age
    assert not is_aged(new, case.record, case.reading, limit, case.rules)
    assert is_aged(new, case.record, case.reading, limit + 0.1, case.rules)
    rebooted = msgspec.structs.replace(case.record, dead=(case.pods[0].uid,))
    assert not is_aged(old, rebooted, case.reading, limit + 100.0, case.rules)
    assert not is_aged(SetTaint(case.node, present=False), case.record, case.reading, limit + 100.0, case.rules)


def test_a_successor_goes_on_with_the_sighting_of_the_leader_that_died() -> None:
    case = Case().seen_off()
    case.epoch = 2
    assert case.step(6.0).record.proof is Proof.NONE  # who knows how long ago that was
    assert case.step(5.0).record.proof is Proof.POWER_OFF


def test_what_a_follower_has_watched_counts_when_it_takes_over() -> None:
    case = Case()
    case.follows = True
    case.step()
    case.epoch = 2
    assert case.step(19.0).reason == "dwell"
    assert case.step(1.0).effects == (PowerOff(),)
    case.power_off = True
    case.step(1.0)
    case.epoch = 3
    assert case.step(4.0).record.proof is Proof.NONE
    assert case.step(1.0).record.proof is Proof.POWER_OFF


def test_a_server_that_knows_the_out_of_service_taint_removes_the_pods() -> None:
    case = Case()
    case.taints = True
    assert case.proven().effects == (SetTaint(case.node, present=True),)
    assert case.record.tainted
    case.node = node(taints=(_TAINT,))
    assert case.step(1.0).reason == "tainted"
    assert case.step(60.0).effects == (DeletePod(case.pods[0]),)  # the taint has not helped
    case.freed()
    case.step(1.0)
    case.node, case.silent, case.power_off = node(ready="True", boot="boot-2", taints=(_TAINT,)), 0.0, False
    case.pods = [pod(terminating=True)]
    assert case.step(60.0).reason == "old-pods-left"
    case.pods = []
    assert case.step(1.0).effects == (SetTaint(case.node, present=False),)
    case.node = node(ready="True", boot="boot-2")
    assert case.step(1.0).record.phase is Phase.DONE


def test_on_wish_a_machine_is_inspected_once_before_it_is_powered_on() -> None:
    case = Case(FailoverRules(inspect=True))
    case.proven()
    case.freed()
    assert case.step(1.0).effects == (Inspect(),)
    case.match = MachineMatch(msgspec.structs.replace(MACHINE, active=True))
    case.power_off = False
    assert case.step(60.0).reason == "inspecting"
    case.match, case.power_off = MachineMatch(MACHINE), True
    assert case.step(1.0).effects == (PowerOn(),)


def test_a_node_that_was_alive_all_the_time_loses_the_taint_at_once() -> None:
    case = Case()
    case.taints = True
    case.proven()
    case.node = node(ready="True", taints=(_TAINT,))
    decision = case.step(1.0)
    assert (decision.reason, decision.effects) == ("was-alive", (SetTaint(case.node, present=False),))


def test_an_operator_confirms_one_boot_only() -> None:
    case = Case()
    case.match, case.power_off = MachineMatch(None, "machine-unknown", "?"), None
    case.node = node(annotations={CONFIRMED_OFF: "boot-0"})
    case.step()
    assert case.step(20.0).reason == "machine-unknown"
    case.node = node(annotations={CONFIRMED_OFF: "boot-1"})
    decision = case.step(1.0)
    assert (decision.record.proof, decision.effects) == (Proof.CONFIRMED, (DeletePod(case.pods[0]),))


def test_a_reboot_proves_the_pods_dead_that_were_being_deleted_long_before() -> None:
    case = Case()
    case.pods = [pod("old", terminating=True), pod("running")]
    case.step()
    case.step(16.0)
    late = pod("late", terminating=True)
    case.pods.append(late)
    case.step(1.0)
    case.node, case.renewal = node(boot="boot-2"), "r2"
    decision = case.step(1.0)
    assert decision.effects == (DeletePod(case.pods[0]),)
    assert decision.record.phase is Phase.DWELL


def test_a_pod_that_could_run_nowhere_else_keeps_the_taint_away_and_is_not_deleted() -> None:
    case = Case()
    case.taints = True
    case.pods = [pod(), pod("pinned", nodeSelector={"disk": "ssd"})]
    assert case.proven().effects == (DeletePod(case.pods[0]),)


def test_a_power_off_that_does_not_take_effect_is_repeated_but_not_in_a_storm() -> None:
    case = Case().commanded()
    assert case.step(29.0).effects == ()
    assert case.step(1.0).effects == (PowerOff(),)
    case.others = [node("n2"), node("n3"), node("n4", "True")]
    assert case.step(31.0).reason == "storm"


def test_a_deleted_node_ends_its_remediation() -> None:
    case = Case()
    case.step()
    case.node = None
    assert case.step(1.0).record.phase is Phase.DONE


def test_with_power_off_disabled_a_machine_that_was_off_anyway_is_still_a_proof() -> None:
    case = Case(FailoverRules(power_off=False))
    assert case.proven().record.proof is Proof.POWER_OFF
    case.freed()
    assert case.step(1.0).effects == ()  # and it is not powered on
