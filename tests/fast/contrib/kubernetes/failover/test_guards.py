"""What keeps the controller from acting, case by case: storms, the control plane, operators, and what never works."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, PAUSED
from ferroscope.contrib.kubernetes.failover.machines import MachineMatch
from ferroscope.contrib.kubernetes.failover.terms import DeletePod, FailoverRules, PowerOff, PowerOn
from tests.fast.contrib.kubernetes.failover.build import MACHINE, Case, node, pod
from tests.support.rows import each

_CP = {"node-role.kubernetes.io/control-plane": ""}


@each(
    ("change", "reason"),
    [
        ({"node": node(annotations={PAUSED: "true"})}, "paused"),
        ({"problem": "1 of 2 API servers answers"}, "view-bad"),
        ({"match": MachineMatch(msgspec.structs.replace(MACHINE, maintenance=True))}, "maintenance"),
        ({"match": MachineMatch(msgspec.structs.replace(MACHINE, active=True))}, "inspecting"),
        ({"match": MachineMatch(msgspec.structs.replace(MACHINE, keeps_power=True))}, "power-is-on"),
        ({"match": MachineMatch(None, "machine-ambiguous", "2 machines")}, "machine-ambiguous"),
        ({"power_off": None}, "bmc-error"),
        ({"pods": [pod(owner="DaemonSet"), pod("done", phase="Succeeded")]}, "nothing-to-free"),
        ({"pods": [pod(annotations={"kubernetes.io/config.mirror": "x"})]}, "nothing-to-free"),
        ({"pods": [pod(nodeSelector={"disk": "ssd"})]}, "nowhere-to-go"),
        ({"others": [node("n2", "True", cordoned=True)]}, "nowhere-to-go"),
        ({"others": [node("n2", "True"), node("n3"), node("n4", "True")]}, "storm"),
    ],
)
def test_each_guard_says_why_nothing_is_done(change: dict[str, Any], reason: str) -> None:
    case = Case()
    case.set(change)
    case.step()
    decision = case.step(400.0)
    assert (decision.reason, decision.effects) == (reason, ())
    assert decision.message


def test_after_a_storm_nothing_is_done_for_a_while() -> None:
    case = Case()
    case.step()
    calm, case.others = case.others, [node("n2"), node("n3"), node("n4", "True")]
    case.step(30.0)
    case.others = calm
    assert case.step(119.0).reason == "dwell"
    assert case.step(1.0).effects == (PowerOff(),)


def test_nodes_that_are_only_silent_make_a_storm_too() -> None:
    case = Case()
    case.others = [node("n2", "True"), node("n3", "True"), node("n4", "True")]
    case.silent_nodes = frozenset({"n1", "n2"})
    case.step()
    decision = case.step(20.0)
    assert (decision.reason, decision.effects) == ("storm", ())
    assert "1 of 4 nodes are not ready and 1 are silent" in decision.message
    case.silent_nodes = frozenset({"n1"})
    assert case.step(119.0).effects == ()
    assert case.step(1.0).effects == (PowerOff(),)


def test_a_storm_does_not_keep_the_pods_of_a_machine_that_we_have_powered_off_from_running_anywhere() -> None:
    case = Case().commanded()
    case.power_off, case.silent_nodes = True, frozenset({"n1", "n2", "n3"})
    case.step(1.0)
    assert case.step(5.0).effects == (DeletePod(case.pods[0]),)
    case.freed()
    assert case.step(1.0).effects == (PowerOn(),)


def test_a_storm_keeps_the_pods_of_a_machine_that_was_off_without_us() -> None:
    case = Case(FailoverRules(power_off=False))
    case.power_off, case.silent_nodes = True, frozenset({"n1", "n2", "n3"})
    case.step()
    assert (case.step(30.0).effects, case.record.reason) == ((), "storm")


@each("role", ["control-plane", "master", "etcd"])
@each("other", ["down", "silent", "dealt-with", "ready"])
def test_of_the_control_plane_one_node_at_a_time_is_powered_off_and_only_if_the_others_are_ready(
    other: str, role: str
) -> None:
    case = Case()
    labels = {f"node-role.kubernetes.io/{role}": ""}
    workers = [node(f"w{number}", "True") for number in range(8)]
    case.node = node(labels=labels)
    case.others = [node("n2", "Unknown" if other == "down" else "True", labels=_CP), node("n3", "True"), *workers]
    case.silent_nodes = frozenset({"n2"} if other == "silent" else ())
    case.switched = frozenset({"n1", *(["n2"] if other == "dealt-with" else [])})
    case.step()
    decision = case.step(20.0)
    if other == "ready":
        assert decision.effects == (PowerOff(),)
        case.others[0] = node("n2", labels=_CP)
        assert case.step(31.0).reason == "control-plane"  # the command is not repeated
        return
    assert (decision.reason, decision.effects) == ("control-plane", ())
    assert "n2" in decision.message
    case.node = node()  # a worker may be powered off meanwhile
    assert case.step(1.0).effects == (PowerOff(),)


@each(
    "marked",
    [
        {"cordoned": True},
        {"taints": ({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},)},
        {"taints": ({"key": "medik8s.io/drain", "effect": "NoSchedule"},)},
    ],
)
def test_a_node_that_is_cordoned_or_drained_is_left_alone_unless_its_pods_are_known_to_be_dead(marked: Any) -> None:
    case = Case()
    case.node = node(**marked)
    case.step()
    assert (case.step(60.0).reason, case.step(1.0).effects) == ("cordoned", ())
    case.node, case.power_off = node(annotations={CONFIRMED_OFF: "boot-1"}, **marked), None
    assert case.step(1.0).effects == (DeletePod(case.pods[0]),)


def test_a_cordon_after_the_power_off_keeps_neither_pods_nor_power() -> None:
    case = Case().commanded()
    case.node, case.power_off = node(cordoned=True), True
    case.step(1.0)
    assert case.step(5.0).effects == (DeletePod(case.pods[0]),)
    case.freed()
    assert case.step(1.0).effects == (PowerOn(),)


def test_a_power_off_that_never_takes_effect_is_given_up_until_somebody_pauses_the_node() -> None:
    case = Case()
    case.step()
    commands = [effect for _ in range(40) for effect in case.step(31.0).effects]
    assert commands == [PowerOff()] * 10
    assert (case.record.reason, case.record.message.startswith("gave up, because")) == ("gave-up", True)
    assert [line["what"] for line in case.record.log].count("gave-up") == 1
    case.node = node(annotations={PAUSED: "true"})
    case.step(1.0)
    case.node = node()
    assert case.step(1.0).reason == "dwell"
    assert case.step(20.0).effects == (PowerOff(),)
    # Whoever pulls the plug helps, too.
    case.power_off = True
    case.step(1.0)
    assert case.step(5.0).effects == (DeletePod(case.pods[0]),)


def test_a_power_on_that_never_takes_effect_is_given_up_and_the_machine_is_said_to_be_off() -> None:
    case = Case()
    case.proven()
    case.pods = []
    commands = [effect for _ in range(40) for effect in case.step(31.0).effects]
    assert commands == [PowerOn()] * 10
    assert case.record.reason == "gave-up"
    assert case.conditions == ["machine m1 is still off after 10 power-on commands"]
    case.power_off = False
    assert case.step(1.0).reason == "waiting-for-return"
    assert case.record.left_off == ""


@each("reason", ["bmc-error", "machine-unknown", "storm", "paused"])
def test_people_are_called_once_if_nothing_has_changed_for_long_unless_they_wish_it_so(reason: str) -> None:
    case = Case()
    if reason == "bmc-error":
        case.power_off = None
    elif reason == "machine-unknown":
        case.match = MachineMatch(None, "machine-unknown", "?")
    elif reason == "storm":
        case.others = [node("n2"), node("n3")]
    else:
        case.node = node(annotations={PAUSED: "true"})
    for _ in range(40):
        case.step(60.0)
    assert case.record.reason == reason
    texts = [line["text"] for line in case.record.log if line["what"] == "gave-up"]
    assert len(texts) == (reason != "paused")
    assert all(text.startswith("gave up, because") for text in texts)
