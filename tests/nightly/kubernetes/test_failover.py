"""``ferroscope failover`` on a real cluster: what ran on a dead node runs elsewhere, and on a living one never twice.

Each test ends with what ``witness`` found: nothing was forced without proof, and no pod of a StatefulSet ran twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ferroscope.contrib.kubernetes.failover.reading import TAINT_SINCE
from ferroscope.core.remediation import Phase, Proof
from tests.nightly.kubernetes.fleet import Fleet, prefers, workload
from tests.nightly.kubernetes.witness import evicted, forced
from tests.support.installation import Played
from tests.support.kubernetes_programs import release
from tests.support.processes import until

_DRIVER = "csi.example.invalid"


def volume(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a volume of a CSI driver, and a claim that is bound to it."""
    name, core = f"disk-vol-{number}", {"apiVersion": "v1"}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none"}
    return (
        core | {
            "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                **common, "capacity": {"storage": "1Gi"}, "csi": {"driver": _DRIVER, "volumeHandle": name},
                "claimRef": {"namespace": "default", "name": name},
            },
        },
        core | {
            "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        },
    )  # fmt: skip


class Attacher:
    """Plays the CSI driver's: attaches what shall be attached, and lets go of what was deleted."""

    def __init__(self, fleet: Fleet) -> None:
        self._call = fleet.cluster.call

    def nodes(self) -> dict[str, str]:
        """Do what there is to do; return the node of each attached volume that is not being deleted."""
        path, found = "/apis/storage.k8s.io/v1/volumeattachments", {}
        for one in self._call("GET", path)["items"]:
            here = f"{path}/{one['metadata']['name']}"
            if "deletionTimestamp" in one["metadata"]:
                self._patch(here, {"metadata": {"finalizers": None}})
                continue
            if not one["status"]["attached"]:
                self._patch(here, {"metadata": {"finalizers": ["external-attacher/example"]}})
                self._patch(f"{here}/status", {"status": {"attached": True}})
            found[one["spec"]["source"]["persistentVolumeName"]] = one["spec"]["nodeName"]
        return found

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        self._call("PATCH", path, body, content="application/merge-patch+json")


def test_a_dead_nodes_pods_and_volumes_are_freed_with_proof_and_everything_is_reported(fleet: Fleet) -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": _DRIVER}}
    fleet.cluster.apply(driver | {"spec": {"attachRequired": True}}, *volume(0))
    claim = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk-vol-0"}}]
    home = fleet.place("db")
    fleet.cluster.apply(workload("web", "Deployment", 2, affinity=prefers(home)))
    fleet.cluster.apply(workload("vol", "StatefulSet", 1, affinity=prefers(home), volumes=claim))
    attacher = Attacher(fleet)
    assert until(lambda: attacher.nodes() == {"disk-vol-0": home})
    assert until(lambda: len(fleet.places("web")) == 2)

    machine = fleet.machines[home]
    machine.lose_power()
    # A hollow kubelet mounts nothing. As one that does would say, the volume is in use, which is why Kubernetes alone
    # does not detach it for six minutes.
    in_use = {"status": {"volumesInUse": [f"kubernetes.io/csi/{_DRIVER}^disk-vol-0"]}}
    fleet.cluster.call("PATCH", f"/api/v1/nodes/{home}/status", in_use, content="application/merge-patch+json")
    assert until(lambda: fleet.moved("db", home))
    assert until(lambda: attacher.nodes().get("disk-vol-0", home) != home, seconds=180)
    assert until(lambda: len(fleet.places("web")) == 2)
    assert home not in fleet.places("web")
    # A newer server frees both itself, because of the taint.
    means = ("taint",) if release() >= TAINT_SINCE else ("pods", "volumeattachments")
    assert {(one, home) for one in means} <= {(one.what, one.node) for one in forced(fleet.audit)}

    machine.boot()
    fleet.settle()
    record = next(one for one in fleet.records() if one.node == home)
    assert (record.phase, record.proof) == (Phase.DONE, Proof.POWER_OFF)
    assert "FailoverProven" in fleet.cluster.kubectl("describe", "node", home)
    fleet.cluster.kubectl("delete", "deployment/web", "statefulset/vol", "--wait=false")


def test_a_machine_that_hangs_is_powered_off_before_its_pods_run_elsewhere_and_on_again_after_that(
    fleet: Fleet,
) -> None:
    home = fleet.place("db")
    machine = fleet.machines[home]
    machine.commands.clear()
    boot = fleet.cluster.node(home)["status"]["nodeInfo"]["bootID"]
    machine.hang()
    assert until(lambda: fleet.moved("db", home))
    assert until(lambda: machine.on and fleet.cluster.is_ready(home))
    assert [on for _, on in machine.commands] == [False, True]
    assert fleet.cluster.node(home)["status"]["nodeInfo"]["bootID"] not in ("", boot)
    assert until(fleet.settled)
    assert fleet.records()[0].log[-1]["what"] == "returned"


def test_a_node_that_is_cut_off_and_runs_on_is_powered_off_before_its_pod_runs_elsewhere(fleet: Fleet) -> None:
    home = fleet.place("db")
    machine = fleet.machines[home]
    machine.node.cut()
    assert until(lambda: fleet.cluster.readiness(home) == "Unknown")
    assert "db-0" in machine.node.running()
    assert until(lambda: fleet.moved("db", home))
    assert machine.commands[-1][1] or not machine.on  # it is off, or on again already, in a new boot
    machine.node.heal()


def test_a_node_that_is_cut_off_for_a_moment_keeps_its_pod_and_its_power(fleet: Fleet) -> None:
    home = fleet.place("db")
    machine, before = fleet.machines[home], fleet.cluster.node(home)["status"]["nodeInfo"]["bootID"]
    machine.says = "on"
    machine.obeys = False
    machine.node.cut()
    assert until(lambda: fleet.cluster.readiness(home) == "Unknown")
    machine.node.heal()
    assert until(lambda: fleet.cluster.is_ready(home))
    assert fleet.place("db") == home
    assert fleet.cluster.node(home)["status"]["nodeInfo"]["bootID"] == before


@contextmanager
def in_mode_label(fleet: Fleet, home: str) -> Iterator[Played]:
    """Run one controller in mode ``label``, and two pods on a node that it may delete without proof."""
    fleet.cluster.apply(workload("stateless", "Deployment", 2, affinity=prefers(home)))
    assert until(lambda: fleet.places("stateless") == [home, home])
    for one in fleet.controllers:
        one.stop()
    options = {"mode": "label", "label_selector": "app:stateless", "label_namespaces": "default"}
    options["max_unhealthy"] = "50%"
    alone = fleet.add_controller(fleet.configure(options, name="label.conf"))
    try:
        yield alone
        fleet.machines[home].boot()
        assert until(fleet.settled)
    finally:
        alone.kill()
        fleet.controllers.remove(alone)
        fleet.cluster.kubectl("delete", "deployment/stateless", "--wait=false")


def budget(app: str, available: int) -> dict[str, Any]:
    """Return a disruption budget that wants so many pods of the workload to be available."""
    version = "v1" if release() >= (1, 21) else "v1beta1"
    spec = {"minAvailable": available, "selector": {"matchLabels": {"app": app}}}
    about = {"name": app, "namespace": "default"}
    return {"apiVersion": f"policy/{version}", "kind": "PodDisruptionBudget", "metadata": about, "spec": spec}


def test_mode_label_deletes_selected_pods_without_proof_and_no_others(fleet: Fleet) -> None:
    home = fleet.place("db")
    with in_mode_label(fleet, home):
        before = len(evicted(fleet.audit))
        fleet.machines[home].lose_power()
        assert until(lambda: len(fleet.places("stateless")) == 2 and home not in fleet.places("stateless"))
        assert fleet.pod("db-0")["spec"]["nodeName"] == home  # type: ignore[index]  # it was not selected
        assert {name.partition("-")[0] for name in evicted(fleet.audit)[before:]} == {"stateless"}


def test_mode_label_leaves_pods_where_they_are_as_long_as_a_disruption_budget_wants_them(fleet: Fleet) -> None:
    home = fleet.place("db")
    with in_mode_label(fleet, home) as controller:
        before = len(evicted(fleet.audit))
        fleet.cluster.apply(budget("stateless", 2))
        fleet.machines[home].lose_power()
        assert until(lambda: controller.output().count("a disruption budget keeps a pod") >= 6)  # three passes
        assert evicted(fleet.audit)[before:] == []
        fleet.cluster.kubectl("delete", "poddisruptionbudget/stateless")
        assert until(lambda: len(fleet.places("stateless")) == 2 and home not in fleet.places("stateless"))
