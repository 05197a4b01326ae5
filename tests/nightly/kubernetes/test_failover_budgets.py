"""Disruption budgets on a real API server: kept where pods are evicted without proof, and not asked about dead pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_programs import release

_MERGE = "application/merge-patch+json"


@pytest.fixture
def namespace(api_server: Cluster) -> Iterator[str]:
    """Give a namespace with three pods of one workload on a node that is not there."""
    name = "budgets"
    api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for number in range(3):
        pod = {
            "metadata": {"name": f"cache-{number}", "labels": {"app": "cache"}},
            "spec": {
                "nodeName": "gone", "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "example.invalid/main"}],
            },
        }  # fmt: skip
        api_server.call("POST", f"/api/v1/namespaces/{name}/pods", pod)
        running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        api_server.call("PATCH", f"/api/v1/namespaces/{name}/pods/cache-{number}/status", running, content=_MERGE)
    yield name
    for one in api_server.pods(name):
        force = {"gracePeriodSeconds": 0}
        api_server.call("DELETE", f"/api/v1/namespaces/{name}/pods/{one['metadata']['name']}", force)


@pytest.fixture
def kube(api_server: Cluster) -> Iterator[Kubernetes]:
    found = role.connect(FailoverSettings(kubeconfig=str(api_server.kubeconfig)))
    found.version()
    yield found
    found.close()


def budget(allowed: int) -> dict[str, Any]:
    """Return the status of a budget, as the disruption controller computes it."""
    return {
        "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3,
            "observedGeneration": 1,
        },
    }  # fmt: skip


def test_what_a_budget_allows_once_is_not_used_twice(api_server: Cluster, kube: Kubernetes, namespace: str) -> None:
    version = "v1" if release() >= (1, 21) else "v1beta1"
    path = f"/apis/policy/{version}/namespaces/{namespace}/poddisruptionbudgets"
    api_server.call("POST", path, {
        "metadata": {"name": "cache"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "cache"}}},
    })  # fmt: skip
    api_server.call("PATCH", f"{path}/cache/status", budget(1), content=_MERGE)
    pods = kube.pods_on("gone")
    assert [kube.evict(one) for one in pods] == [True, False, False]
    assert {one["metadata"]["name"] for one in api_server.pods(namespace)} == {"cache-1", "cache-2"}
    another = msgspec.structs.replace(pods[1], metadata=msgspec.structs.replace(pods[1].metadata, uid="another"))
    api_server.call("PATCH", f"{path}/cache/status", budget(1), content=_MERGE)
    with pytest.raises(KubernetesError) as error:
        kube.evict(another)
    assert error.value.conflict
    # A pod that was proven dead does not run, so its deletion disrupts nothing.
    kube.delete_pod(pods[1])
    assert {one["metadata"]["name"] for one in api_server.pods(namespace)} == {"cache-2"}
