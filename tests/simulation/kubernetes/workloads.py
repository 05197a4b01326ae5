"""What runs in the cluster: a StatefulSet with volumes, and Deployments on workers and on the control plane."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.kubernetes.objects import Document, terminating

if TYPE_CHECKING:
    from tests.simulation.kubernetes.cluster import Cluster

_FINALIZER: Final = "example.com/flush"
_TOLERATES: Final = [{"key": "control-plane", "operator": "Exists"}]


class Workloads:
    """``replicas`` of the StatefulSet; some have a finalizer, are pinned to their host, or have a local volume."""

    def __init__(self, cluster: Cluster, replicas: int) -> None:
        site = cluster.site
        self._cluster = cluster
        self._numbers = itertools.count(1)
        self._rng = cluster.kernel.rng("workloads")
        self.names = [f"db-{number}" for number in range(replicas)]
        self.kinds = {name: self._kind() for name in self.names}
        self.pinned_to: dict[str, str] = {}
        self._web = site.workers
        self._dns = min(2, site.control_planes)
        for name in self.names:
            claim = {"metadata": {"name": f"data-{name}", "namespace": "shop"}, "spec": {"volumeName": f"pv-{name}"}}
            cluster.objects.put("claims", claim)

    def _kind(self) -> str:
        return self._rng.choices(("plain", "finalizer", "pinned", "local"), self._cluster.site.kinds)[0]

    def replace(self) -> None:
        """Create the pods that are missing: a StatefulSet waits until the old one has gone, a Deployment does not."""
        objects = self._cluster.objects
        for name in self.names:
            if objects.get("pods", f"shop/{name}") is None:
                self._create_database(name)
        living = [one for one in objects.all("pods") if not terminating(one)]
        for owner, wanted in (("web", self._web), ("dns", self._dns)):
            present = sum(1 for one in living if one["metadata"]["ownerReferences"][0]["name"] == owner)
            for _ in range(wanted - present):
                tolerations = _TOLERATES if owner == "dns" else None
                selector = {"control-plane": "true"} if owner == "dns" else {}
                name = f"{owner}-{next(self._numbers)}"
                self._create(name, owner, {"nodeSelector": selector, "tolerations": tolerations})

    def _create_database(self, name: str) -> None:
        kind, spec = self.kinds[name], dict[str, Any]()
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
        if kind == "pinned" and name in self.pinned_to:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.pinned_to[name]}
        self._create(name, "db", spec, finalizers=[_FINALIZER] if kind == "finalizer" else [])

    def _create(self, name: str, owner: str, spec: dict[str, Any], finalizers: list[str] | None = None) -> None:
        kind = "StatefulSet" if owner == "db" else "ReplicaSet"
        metadata: Document = {
            "name": name,
            "namespace": "shop",
            "labels": {"app": owner},
            "ownerReferences": [{"kind": kind, "name": owner, "controller": True}],
        }
        if finalizers:
            metadata["finalizers"] = finalizers
        self._cluster.objects.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def settle(self) -> None:
        """The pods have their nodes: those that are bound to a host stay there from now on."""
        for name in self.names:
            pod = self._cluster.objects.get("pods", f"shop/{name}")
            assert pod is not None
            kind, node = self.kinds[name], pod["spec"]["nodeName"]
            if kind in ("pinned", "local"):
                self.pinned_to[name] = node
            if kind == "pinned":
                pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
                self._cluster.objects.put("pods", pod)
            self._cluster.add_volume(name, node if kind == "local" else "")
