"""Step 2 of the page, as it is written: the whole service in one pod, with simulated machines."""

from __future__ import annotations

from tests.nightly.kubelet.stranger import Pod, Stranger
from tests.support.kubernetes_node import Rack
from tests.support.processes import until

_FORWARD = "kubectl --namespace ferroscope port-forward deployment/ferroscope 6385"


def _volume(rack: Rack) -> None:
    """Give the claim a volume on the first node, as a provisioner would."""
    node = rack.nodes["node-1"]
    place = node.disk / "volume"
    place.mkdir()
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    rack.cluster.apply({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "first"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": str(place)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    })  # fmt: skip


def _kill(rack: Rack, pod: Pod, container: str) -> None:
    """End a container with SIGKILL, as the kernel does that has no memory left for it."""
    (its,) = (one for one in pod["status"]["containerStatuses"] if one["name"] == container)
    task = its["containerID"].removeprefix("containerd://")
    rack.nodes[pod["spec"]["nodeName"]].run("ctr", "-n", "k8s.io", "task", "kill", "--signal", "SIGKILL", task)


def test_twenty_machines_are_inspected_although_the_service_is_killed_meanwhile(stranger: Stranger, rack: Rack) -> None:
    _volume(rack)
    stranger.types("kubectl apply -k deploy/kubernetes/overlays/laptop")
    stranger.types("kubectl --namespace ferroscope rollout status deployment/ferroscope")
    (pod,) = stranger.pods("all")
    with stranger.forwarded(_FORWARD):
        assert until(lambda: len(stranger.nodes()) == 20)
        stranger.types("ferroscope status")
        stranger.types("ferroscope inspect --all")
        _kill(rack, pod, "ferroscope")
    restarted = "{.status.containerStatuses[?(@.name=='ferroscope')].restartCount}"
    named = f"kubectl --namespace ferroscope get pod {pod['metadata']['name']}"
    stranger.awaits(lambda: stranger.runs(f'{named} -o jsonpath="{restarted}"') == "1")
    stranger.awaits(lambda: len(stranger.ready("all")) == 1)
    with stranger.forwarded(_FORWARD):
        assert until(lambda: len(stranger.inspected()) == 20), stranger.nodes()

    # Another pod has the database of this one; its simulated machines are new.
    stranger.runs(f"kubectl --namespace ferroscope delete pod {pod['metadata']['name']}")
    stranger.types("kubectl --namespace ferroscope rollout status deployment/ferroscope")
    with stranger.forwarded(_FORWARD):
        assert len(stranger.inspected()) == 20
        stranger.runs("ferroscope inspect --all --wait")
