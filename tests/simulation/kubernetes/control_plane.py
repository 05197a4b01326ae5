"""Kubernetes' own controllers and its scheduler, as far as they matter to a node that has failed; default times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.kubernetes.api_server import OUT_OF_SERVICE
from tests.simulation.kubernetes.machines import UNREACHABLE
from tests.simulation.kubernetes.objects import Document, has_taint, key_of, ready, terminating

if TYPE_CHECKING:
    from tests.simulation.kubernetes.cluster import Cluster

# Seconds: kube-controller-manager's defaults.
MONITOR: Final = 5.0
GRACE: Final = 40.0
_EVICTION: Final = 300.0
_FORCE_DETACH: Final = 360.0
_ORPHANED: Final = 40.0
_COLLECT: Final = 20.0
_LOOP: Final = 1.0


class ControlPlane:
    """The controller manager and the scheduler; they work while the API server does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._objects = cluster.objects
        self._probes: dict[str, tuple[str, float]] = {}
        self._unreachable_since: dict[str, float] = {}
        self._unwanted_since: dict[str, float] = {}
        self._orphans_since: dict[str, float] = {}
        self._seen = 0
        self._detached_at = 0.0

    def start(self) -> None:
        rng, kernel = self._cluster.kernel.rng("control plane"), self._cluster.kernel
        kernel.at(rng.uniform(0.0, MONITOR), self._monitor)
        kernel.at(rng.uniform(0.0, _LOOP), self._loop)
        kernel.at(rng.uniform(0.0, _COLLECT), self._collect)

    # The node lifecycle controller.

    def _monitor(self) -> None:
        self._cluster.kernel.at(MONITOR, self._monitor)
        if not self._cluster.api_up:
            return
        now = self._cluster.kernel.now
        for node in self._objects.all("nodes"):
            name = node["metadata"]["name"]
            lease = self._objects.get("leases", name)
            renewal = lease["spec"]["renewTime"] if lease else ""
            if name not in self._probes or self._probes[name][0] != renewal:
                self._probes[name] = (renewal, now)
            silent = now - self._probes[name][1] > GRACE
            if silent and ready(node) != "Unknown":
                condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
                self._cluster.set_condition(node, condition)
            self._taint(node, now)

    def _taint(self, node: Document, now: float) -> None:
        """NoExecute for what is not ready, and after 300 s its pods are marked as deleted."""
        name, tainted = node["metadata"]["name"], has_taint(node, UNREACHABLE)
        if (ready(node) != "True") is not tainted:
            taints = [one for one in node["spec"]["taints"] if one["key"] != UNREACHABLE]
            if not tainted:
                taints.append({"key": UNREACHABLE, "effect": "NoExecute"})
                self._unreachable_since[name] = now
            node["spec"]["taints"] = taints
            self._objects.put("nodes", node)
        overdue = tainted and now - self._unreachable_since.get(name, now) > _EVICTION
        if overdue or has_taint(node, OUT_OF_SERVICE):
            for pod in self._cluster.pods_on(name):
                if not terminating(pod):
                    self._objects.delete("pods", key_of(pod["metadata"]), {}, at_once=False)

    # Pods.

    def _loop(self) -> None:
        self._cluster.kernel.at(_LOOP, self._loop)
        if not self._cluster.api_up:
            return
        if self._seen != self._objects.version or self._unwanted_since:
            self._seen = self._objects.version
            self._cluster.workloads.replace()
            self._schedule()
            self._attach()

    def _schedule(self) -> None:
        load = {one.node: 0 for one in self._cluster.machines if one.node}
        pending = []
        for pod in self._objects.all("pods"):
            node = pod["spec"].get("nodeName")
            if node in load:
                load[node] += 1
            elif not node and not terminating(pod):
                pending.append(pod)
        for pod in pending:
            fits = [one for one in self._cluster.machines if one.node and one.is_tolerated_by(pod)]
            if fits:
                chosen = min(fits, key=lambda one: load[one.node]).node
                load[chosen] += 1
                pod["spec"]["nodeName"] = chosen
                self._objects.put("pods", pod)

    def _attach(self) -> None:
        """The attach and detach controller; each volume can be attached to one node."""
        cluster, now = self._cluster, self._cluster.kernel.now
        wanted = {}
        for pod in self._objects.all("pods"):
            if pod["spec"].get("nodeName") and (volume := cluster.attachable(pod)):
                wanted.setdefault(volume, pod["spec"]["nodeName"])
        for one in self._objects.all("attachments"):
            name, on = one["metadata"]["name"], one["spec"]["nodeName"]
            if terminating(one) or wanted.get(one["spec"]["source"]["persistentVolumeName"]) == on:
                self._unwanted_since.pop(name, None)
                continue
            since = self._unwanted_since.setdefault(name, now)
            node = self._objects.get("nodes", on)
            healthy = node is not None and ready(node) == "True"
            out = node is None or has_taint(node, OUT_OF_SERVICE)
            if healthy or out or now - since > _FORCE_DETACH:
                self._objects.delete("attachments", name, {})
        for volume, on in wanted.items():
            if not cluster.attachments_of(volume):
                cluster.attach(volume, on)

    def _collect(self) -> None:
        """The collector of pods whose node is gone, or is out of service and not ready."""
        cluster, now = self._cluster, self._cluster.kernel.now
        cluster.kernel.at(_COLLECT, self._collect)
        if not cluster.api_up:
            return
        for pod in self._objects.all("pods"):
            name, key = pod["spec"].get("nodeName"), key_of(pod["metadata"])
            node = self._objects.get("nodes", name) if name else None
            if not name:
                continue
            if node is None:
                if now - self._orphans_since.setdefault(name, now) > _ORPHANED:
                    cluster.collected.add(pod["metadata"]["uid"])
                    self._objects.delete("pods", key, {})
            else:
                self._orphans_since.pop(name, None)
                if has_taint(node, OUT_OF_SERVICE) and ready(node) != "True" and terminating(pod):
                    self._objects.delete("pods", key, {})
