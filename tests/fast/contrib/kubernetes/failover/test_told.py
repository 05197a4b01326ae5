"""Whoever is not failed over is told within ten minutes, unless people wanted it so before; and who makes a storm."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import PAUSED
from ferroscope.contrib.kubernetes.failover.guards import out_of_service
from ferroscope.contrib.kubernetes.failover.machines import MachineMatch
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules, PowerOff
from ferroscope.core.remediation import Remediation
from tests.fast.contrib.kubernetes.failover.build import MACHINE, Case, node, pod
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document
from tests.support.rows import each

_MAINTENANCE = MachineMatch(msgspec.structs.replace(MACHINE, maintenance=True))
_PAUSED = {"node": node(annotations={PAUSED: "true"})}
_CORDONED = {"node": node(cordoned=True)}
_KEPT = {"match": _MAINTENANCE}


def _told(case: Case) -> int:
    assert case.record is not None
    return [line["what"] for line in case.record.log].count("gave-up")


def _set(case: Case, change: dict[str, Any]) -> None:
    case.set(change)


@each(
    ("change", "reason"),
    [
        (_CORDONED, "cordoned"),
        (_PAUSED, "paused"),
        (_KEPT, "maintenance"),
        ({"pods": [pod(owner="DaemonSet")]}, "nothing-to-free"),
        ({"match": MachineMatch(msgspec.structs.replace(MACHINE, active=True))}, "inspecting"),
    ],
)
@each("before", [True, False])
def test_who_is_not_failed_over_is_told_unless_it_was_wanted_before(
    change: dict[str, Any], reason: str, before: bool
) -> None:
    case = Case()
    if before:
        _set(case, change)
    case.step()
    _set(case, change)
    case.step(3.0)
    case.step(596.0)
    assert _told(case) == 0
    case.step(1.0)
    assert case.record is not None
    assert case.record.reason == reason
    assert _told(case) == (not before or reason in ("nothing-to-free", "inspecting"))
    for _ in range(20):
        case.step(60.0)
    assert _told(case) <= 1


def test_a_drained_node_that_was_shut_down_has_nothing_to_free_and_nobody_is_told() -> None:
    case = Case()
    case.node, case.pods = node(cordoned=True), []
    for _ in range(30):
        case.step(60.0)
    assert case.record is not None
    assert (case.record.reason, _told(case)) == ("nothing-to-free", 0)
    case.node = node()  # it is in service again, as far as people say
    case.step(60.0)
    case.step(540.0)
    assert _told(case) == 0
    case.step(60.0)
    assert _told(case) == 1


def test_mode_label_has_done_its_work_when_no_selected_pod_is_left() -> None:
    case = Case(FailoverRules(mode="label", labels={"app": "web"}, namespaces=("shop",)))
    for _ in range(30):
        case.step(60.0)
    assert (case.record and case.record.reason, _told(case)) == ("nothing-to-free", 0)


def test_reasons_that_alternate_are_no_progress() -> None:
    case = Case()
    case.step()
    for number in range(30):
        case.problem = "1 of 3 API servers answers" if number % 2 else ""
        case.power_off = None
        case.step(30.0)
    assert _told(case) == 1


def test_a_dwell_time_that_never_ends_is_told() -> None:
    case = Case(FailoverRules(dwell=3600.0))
    for _ in range(12):
        case.step(60.0)
    assert (case.record and case.record.reason, _told(case)) == ("dwell", 1)


def test_an_inspection_that_never_ends_is_told_and_the_machine_is_said_to_be_off() -> None:
    case = Case(FailoverRules(inspect=True))
    case.proven()
    case.freed()
    busy = msgspec.structs.replace(MACHINE, active=True)
    case.machines, case.match = [busy], MachineMatch(busy)
    for _ in range(12):
        case.step(60.0)
    assert case.record is not None
    assert (case.record.reason, _told(case)) == ("inspecting", 1)
    assert case.conditions != [] or case.record.left_off


def test_the_controller_tells_by_an_event_and_a_problem(site: Site) -> None:
    task, leading = site.led(1)
    document = site.api.objects["nodes"]["n1"]
    document["spec"]["unschedulable"] = True
    site.api.put("nodes", document)
    site.passes(task, leading, 20, every=30.0)
    assert "FailoverGaveUp" in [one["reason"] for one in site.api.events]
    (problem,) = site.problems(task)
    assert "cordoned" in problem.summary


# Who makes a storm.


def test_nodes_out_of_service_are_no_part_of_the_whole() -> None:
    case = Case()
    case.others = [
        *(node(f"r{number}") for number in range(3)),
        *(node(f"w{number}", "True") for number in range(6)),
    ]
    case.step()
    decision = case.step(20.0)
    assert decision.reason == "storm"
    case.out_of_service = frozenset({"r0", "r1", "r2"})
    case.step(1.0)
    assert case.step(120.0).effects == (PowerOff(),)
    case.others[3:6] = [node("w0"), node("w1"), node("w2", "True")]
    decision = case.step(1.0)
    assert (decision.reason, decision.effects[:1]) == ("power-off-pending", ())
    case.record = None
    message = case.step(31.0).message
    assert message.startswith("3 of 7 nodes are not ready (3 that people have taken out of service not counted)")


@each(
    ("change", "recorded", "counts"),
    [
        ({"annotations": {PAUSED: "true"}}, None, False),
        ({"annotations": {PAUSED: "true"}}, (), False),  # people deal with this one
        ({"cordoned": True}, None, False),  # seen for the first time
        ({"cordoned": True}, ("cordoned",), False),
        ({"cordoned": True}, (), True),  # cordoned because it had failed
        ({}, ("cordoned",), True),  # it is in service again
        ({"ready": "True", "cordoned": True}, None, True),  # it is ready
    ],
)
def test_a_cordon_says_so_only_if_it_was_there_before_the_failure(
    change: dict[str, Any], recorded: tuple[str, ...] | None, counts: bool
) -> None:
    failed = node("n1", **{"ready": "Unknown", **change})
    record = Remediation(uuid="r", cluster="c", node="n1", node_uid="u", wanted=recorded or ())
    records = {} if recorded is None else {"n1": record}
    apart = out_of_service([failed, node("n2")], lambda _name: False, records, lambda _node: None)
    assert apart == (frozenset() if counts else {"n1"})


@each("silent", [True, False])
def test_a_machine_in_maintenance_takes_its_node_out_of_service(silent: bool) -> None:
    one = node("n1", "True" if silent else "Unknown")
    apart = out_of_service([one], lambda _name: silent, {}, lambda _node: _MAINTENANCE.machine)
    assert apart == {"n1"}


def test_the_controller_fails_over_a_node_beside_those_in_repair(site: Site) -> None:
    site.api.objects["nodes"]["n2"]["metadata"]["annotations"] = {PAUSED: "true"}
    for name in ("n2", "n3"):
        document = site.api.objects["nodes"][name]
        document["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "x"}]
        document["spec"]["unschedulable"] = True
        site.api.put("nodes", document)
    for number in (4, 5):
        site.api.put("nodes", node_document(f"n{number}"))
    site.led(8)
    assert site.power.commands[:1] == [False]
