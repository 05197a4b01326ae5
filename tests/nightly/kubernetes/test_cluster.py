"""The cluster of the tests itself: what runs where, and what its faults do."""

from __future__ import annotations

from typing import Any

from tests.support.kubernetes import Cluster
from tests.support.processes import until

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "example.invalid/web"}]},
        },
    },
}


def test_a_deployment_runs_on_hollow_nodes_and_their_death_or_partition_is_seen(three_nodes: Cluster) -> None:
    cluster = three_nodes
    dead, cut, whole = cluster.nodes.values()
    cluster.apply(DEPLOYMENT)
    assert until(lambda: [pod["status"]["phase"] for pod in cluster.pods()] == ["Running"] * 3)
    placed = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.pods()}
    for node in cluster.nodes.values():
        assert until(lambda node=node: node.running() == {name for name, on in placed.items() if on == node.name})
    info = cluster.node(dead.name)["status"]["nodeInfo"]
    assert info["systemUUID"] == dead.system_uuid

    # One loses power, another its network: neither is ready any more, but only one of them still runs its pods.
    before = cut.running()
    dead.kill()
    cut.cut()
    assert until(lambda: cluster.readiness(dead.name) == cluster.readiness(cut.name) == "Unknown")
    assert cluster.readiness(whole.name) == "True"
    assert (dead.running(), cut.running()) == (set(), before)

    # Both come back; the one that was off has booted anew.
    dead.start()
    cut.heal()
    assert until(lambda: cluster.readiness(cut.name) == "True")
    assert cluster.node(dead.name)["status"]["nodeInfo"]["bootID"] not in ("", info["bootID"])
