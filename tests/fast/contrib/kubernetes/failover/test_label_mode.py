"""The decision in ``mode = label``, where nothing is proven, case by case."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover.cluster import PAUSED
from ferroscope.contrib.kubernetes.failover.terms import DeleteAttachment, DeletePod, FailoverRules, is_aged
from ferroscope.core.remediation import Phase, Proof
from tests.fast.contrib.kubernetes.failover.build import Case, attachment, node, pod, volume
from tests.support.rows import each

_LABEL = FailoverRules(mode="label", labels={"app": "noobaa"}, namespaces=("shop",))


def test_mode_label_deletes_selected_pods_at_once_and_asks_disruption_budgets() -> None:
    case = Case(_LABEL)
    chosen, dying = pod("a", labels={"app": "noobaa"}), pod("b", labels={"app": "noobaa"}, terminating=True)
    case.pods = [chosen, dying, pod("c"), pod("d", labels={"app": "noobaa"}, namespace="other")]
    decision = case.step()
    assert decision.effects == (DeletePod(chosen, ask_budget=True), DeletePod(dying))
    assert decision.record.proof is Proof.LABEL
    case.node = node(ready="True")
    assert case.step(1.0).record.phase is Phase.DONE


def test_mode_label_does_not_count_what_failed_long_ago_as_a_storm() -> None:
    case = Case(_LABEL)
    case.pods = [pod("a", labels={"app": "noobaa"})]
    case.others = [node("old"), node("n2", "True"), node("n3", "True"), node("n4", "True")]
    assert case.step().reason == "storm"
    case = Case(_LABEL)
    case.pods = [pod("a", labels={"app": "noobaa"})]
    case.others, case.old = [node("old"), node("n2", "True"), node("n3", "True")], frozenset({"old"})
    assert case.step().effects == (DeletePod(case.pods[0], ask_budget=True),)
    case = Case()  # with proof there is time, and machines are switched
    case.others, case.old = [node("old"), node("n2", "True"), node("n3", "True")], frozenset({"old"})
    assert case.step().reason == "storm"


def test_mode_label_deletes_and_detaches_by_force_if_the_operator_wishes() -> None:
    case = Case(msgspec.structs.replace(_LABEL, label_force=True))
    labels = {"app": "noobaa"}
    chosen, pinned = pod("a", labels=labels, claim="a"), pod("b", labels=labels, nodeSelector={"disk": "ssd"})
    made_again, other = pod("c", labels=labels, nodeSelector={"disk": "ssd"}, phase="Pending"), pod("d", claim="d")
    case.pods = [chosen, pinned, made_again, other, pod("e", owner="DaemonSet", labels=labels)]
    case.volumes = {("shop", "a"): volume("pv-a"), ("shop", "d"): volume("pv-d")}
    case.attachments = [attachment("va-a", "pv-a"), attachment("va-d", "pv-d"), attachment("va-x", "pv-x")]
    assert case.step().effects == (DeletePod(chosen), DeletePod(pinned))
    case.pods = [one for one in case.pods if one not in (chosen, pinned)]
    assert case.step(1.0).effects == (DeleteAttachment(case.attachments[0]),)
    case.attachments = case.attachments[1:]
    assert case.step(1.0).effects == ()
    case.node = node(ready="True")
    assert case.step(1.0).record.phase is Phase.DONE


@each(
    ("change", "reason"),
    [
        ({"node": node(annotations={PAUSED: "true"})}, "paused"),
        ({"problem": "no answer"}, "view-bad"),
        ({"others": [node("n2"), node("n3")]}, "storm"),
        ({"others": []}, "nothing-to-free"),
        ({"rules": FailoverRules(mode="label")}, "nothing-to-free"),
    ],
)
def test_mode_label_has_guards_too(change: dict[str, Any], reason: str) -> None:
    case = Case(_LABEL)
    case.pods = [pod(labels={"app": "noobaa"})]
    case.set(change)
    assert (case.step().reason, case.step(1.0).effects) == (reason, ())


def test_without_a_bmc_it_is_the_reading_of_the_node_that_ages() -> None:
    case = Case(_LABEL)
    case.pods = [pod("a", labels={"app": "noobaa"})]
    case.answer_took = 1000.0
    (effect,) = case.step().effects
    assert not is_aged(effect, case.record, case.reading, case.now, case.rules)
    assert is_aged(effect, case.record, case.reading, case.now + case.rules.proof_age + 0.1, case.rules)


def test_a_volume_is_not_detached_as_long_as_its_pod_is_there() -> None:
    case = Case(msgspec.structs.replace(_LABEL, label_force=True))
    case.pods = [pod("a", labels={"app": "noobaa"}, claim="a", finalizers=["f"])]
    case.volumes, case.attachments = {("shop", "a"): volume("pv-a")}, [attachment("va-a", "pv-a")]
    assert case.step().effects == (DeletePod(case.pods[0]),)
    case.pods = [pod("a", claim="a", terminating=True, finalizers=["f"], deletionGracePeriodSeconds=0)]
    assert case.step(1.0).effects == ()
    case.pods = []
    assert case.step(1.0).effects == (DeleteAttachment(case.attachments[0]),)
