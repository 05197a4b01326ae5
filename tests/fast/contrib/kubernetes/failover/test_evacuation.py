"""What keeps a node's pods and volumes, and what must not: finalizers, local volumes, and pods that fit nowhere."""

from __future__ import annotations

from typing import Any

from ferroscope.contrib.kubernetes.failover.cluster import OUT_OF_SERVICE
from ferroscope.contrib.kubernetes.failover.terms import DeleteAttachment, DeletePod, PowerOn, SetTaint
from ferroscope.core.remediation import Phase
from tests.fast.contrib.kubernetes.failover.build import Case, attachment, node, pod, volume
from tests.support.rows import each

_TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


def _finalizing(name: str = "kept", **more: Any) -> Any:
    finalizers = ["example.com/backup"]
    return pod(name, terminating=True, finalizers=finalizers, deletionGracePeriodSeconds=0, **more)


def test_a_pod_that_only_waits_for_its_finalizers_is_dead_and_named_and_everything_goes_on() -> None:
    case = Case()
    case.attachments = [attachment()]
    kept = pod("kept", finalizers=["example.com/backup"])
    case.pods = [pod(), kept]
    assert case.proven().effects == (DeletePod(case.pods[0]), DeletePod(kept))
    case.pods = [_finalizing()]
    assert case.step(1.0).effects == (DeleteAttachment(case.attachments[0]),)
    case.attachments = []
    decision = case.step(1.0)
    assert (decision.reason, decision.effects) == ("evacuated", ())
    assert "shop/kept (example.com/backup)" in decision.message
    assert case.record.log[-1]["text"] == decision.message
    assert case.step(1.0).effects == (PowerOn(),)


@each(
    "more",
    [{"deletionGracePeriodSeconds": 30, "finalizers": ["f"]}, {"finalizers": ["f"]}, {}],
)
def test_a_pod_that_is_deleted_with_grace_is_not_dead_yet(more: dict[str, Any]) -> None:
    case = Case()
    case.pods = [pod(terminating=True, **more)]
    assert case.proven().effects == (DeletePod(case.pods[0]),)


def test_finalizers_do_not_keep_the_taint_on_a_node_that_is_back() -> None:
    case = Case()
    case.taints = True
    case.proven()
    case.node, case.pods = node(taints=(_TAINT,)), [_finalizing()]
    case.step(1.0)
    case.step(1.0)
    case.node, case.silent, case.power_off = node(ready="True", boot="boot-2", taints=(_TAINT,)), 0.0, False
    assert case.step(60.0).effects == (SetTaint(case.node, present=False),)


def test_a_reboot_does_not_have_a_dead_pod_deleted_again_and_again() -> None:
    case = Case()
    case.pods = [pod(terminating=True)]
    case.step()
    case.step(16.0)
    case.node, case.renewal = node(boot="boot-2"), "r2"
    assert case.step(1.0).effects == (DeletePod(case.pods[0]),)
    case.pods = [_finalizing("db-0")]
    assert case.step(1.0).effects == ()


@each("owner", ["StatefulSet", "DaemonSet"])
def test_only_the_volumes_of_pods_that_stay_are_kept(owner: str) -> None:
    case = Case()
    selector = {"nodeSelector": {"disk": "ssd"}} if owner == "StatefulSet" else {}
    case.pods = [pod(claim="free"), pod("stays", owner=owner, claim="stays", **selector)]
    case.volumes = {("shop", "free"): volume("pv-free"), ("shop", "stays"): volume("pv-stays")}
    free, stays, gone = attachment("a", "pv-free"), attachment("b", "pv-stays"), attachment("c", "pv-of-nobody")
    case.attachments = [free, stays, gone]
    assert case.proven().effects == (DeletePod(case.pods[0]),)
    case.pods = case.pods[1:]
    assert case.step(1.0).effects == (DeleteAttachment(free), DeleteAttachment(gone))
    case.attachments = [stays]
    decision = case.step(1.0)
    assert (decision.reason, "shop/stays" in decision.message) == ("evacuated", owner == "StatefulSet")


@each("owner", ["StatefulSet", "DaemonSet"])
def test_a_volume_that_a_moved_pod_waits_for_is_detached_though_a_dead_pod_that_stays_has_it_too(owner: str) -> None:
    case = Case()
    stays = pod("stays", owner=owner, claim="shared", nodeSelector={"kubernetes.io/hostname": "n1"})
    own = pod("own", owner=owner, claim="own", nodeSelector={"kubernetes.io/hostname": "n1"})
    case.pods = [pod("moves", claim="shared"), stays, own]
    case.volumes = {("shop", "shared"): volume("pv-shared"), ("shop", "own"): volume("pv-own")}
    case.attachments = [attachment("va-shared", "pv-shared"), attachment("va-own", "pv-own")]
    assert case.proven().effects == (DeletePod(case.pods[0]),)
    case.pods = [stays, own]
    assert case.step(1.0).effects == (DeleteAttachment(case.attachments[0]),)
    # Kubernetes attaches it here again: that has an end, because the machine has to come back.
    assert case.step(170.0).effects == (DeleteAttachment(case.attachments[0]),)
    assert case.step(20.0).reason == "evacuated"


def test_a_pod_of_the_old_boot_that_nobody_deletes_does_not_keep_our_taint_on_a_ready_node_for_ever() -> None:
    """medik8s RHWA-216."""
    case = Case()
    case.taints = True
    case.proven()
    back = node(ready="True", boot="boot-2", taints=({"key": OUT_OF_SERVICE, "effect": "NoExecute"},))
    case.node, case.renewal, case.power_off = back, "r2", False
    case.pods = [pod(terminating=True)]
    assert case.step(60.0).reason == "old-pods-left"
    assert case.step(299.0).effects == ()
    assert case.step(1.0).effects == (SetTaint(back, present=False),)
    assert case.step(1.0).effects == (SetTaint(back, present=False),)  # until it is seen to be gone
    case.node = node(ready="True", boot="boot-2")
    assert case.step(1.0).record.phase is Phase.DONE  # type: ignore[union-attr]


@each("stays", [True, False])
def test_an_attachment_of_which_nothing_is_known_is_kept_only_if_a_pod_stays(stays: bool) -> None:
    case = Case()
    pinned = [pod("stays", nodeSelector={"disk": "ssd"})] if stays else []
    case.pods, case.attachments = [pod(), *pinned], [attachment()]
    case.proven()
    case.pods = pinned
    assert case.step(1.0).effects == (() if stays else (DeleteAttachment(case.attachments[0]),))


@each(
    ("only_on", "reason"),
    [("n1", "nowhere-to-go"), ("n2", "dwell"), ("", "dwell")],
)
def test_a_volume_that_only_this_node_reaches_leaves_its_pod_nowhere_to_go(only_on: str, reason: str) -> None:
    case = Case()
    case.pods, case.volumes = [pod(claim="data")], {("shop", "data"): volume("pv", only_on)}
    assert case.step().reason == reason
    assert bool(case.step(20.0).effects) is (reason == "dwell")


def test_a_generic_ephemeral_volume_has_the_claim_of_its_pods_name() -> None:
    ephemeral = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    assert pod("db-0", volumes=[ephemeral, {"name": "tmp", "emptyDir": {}}]).claims == ["db-0-scratch"]


def test_a_pod_that_stays_does_not_keep_a_volume_that_nobody_uses_from_being_detached() -> None:
    case = Case()
    case.pods, case.volumes = [pod(claim="data")], {("shop", "data"): volume("local", "n1")}
    case.attachments = [attachment("old", "pv-of-a-pod-that-was-evicted")]
    assert case.proven().effects == (DeleteAttachment(case.attachments[0]),)
    assert case.record.phase is Phase.EVACUATING
