"""The calls of the failed-node controller to the Kubernetes API, decoded into ``cluster``'s structs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from ferroscope.contrib.kubernetes.api import MERGE, STRATEGIC_MERGE, KubernetesClient, ResourceTable, Right
from ferroscope.contrib.kubernetes.api import KubernetesError as KubernetesError
from ferroscope.contrib.kubernetes.failover.cluster import LEFT_OFF, OUT_OF_SERVICE, KubeletLease, KubeNode
from ferroscope.contrib.kubernetes.failover.pods import PersistentVolume, Pod, VolumeAttachment, VolumeClaim
from ferroscope.contrib.kubernetes.failover.scheduling import Taint

_SERVED_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# A server compresses what is longer than 128 kB.
_LEASES_IN_A_PAGE: Final = "1000"
_ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
MAX_NEIGHBORS: Final = 500  # pods that one affinity names; with more of them it is not looked at

RIGHTS: Final = (
    Right("list", "", "nodes"),
    Right("get", "", "nodes"),
    Right("watch", "", "nodes"),
    Right("list", "", "pods"),
    Right("get", "coordination.k8s.io", "leases", "kube-node-lease"),
    Right("list", "coordination.k8s.io", "leases", "kube-node-lease"),
    Right("list", "storage.k8s.io", "volumeattachments"),
    Right("get", "", "persistentvolumeclaims"),
    Right("get", "", "persistentvolumes"),
)
# Those of a controller that does not only look.
FORCING_RIGHTS: Final = (
    Right("patch", "", "nodes"),
    Right("patch", "", "nodes/status"),
    Right("delete", "", "pods"),
    Right("delete", "storage.k8s.io", "volumeattachments"),
    Right("create", "", "events", "default"),
)


class Kubernetes(KubernetesClient):
    """The API server of a cluster with nodes."""

    def __init__(self, http: Any, *, timeout: float) -> None:
        super().__init__(http, timeout=timeout)
        self._old_eviction = False

    def version(self) -> tuple[int, int]:
        version = super().version()
        self._old_eviction = (1, 0) < version < (1, 22)
        return version

    def nodes(self) -> tuple[list[KubeNode], str]:
        """Return all nodes as a majority of etcd knows them, and the version of this list."""
        return self._list(KubeNode, "/api/v1/nodes")

    def node(self, name: str) -> KubeNode | None:
        """Return the node as a majority of etcd knows it; None if it does not exist."""
        return self._read_object(KubeNode, f"/api/v1/nodes/{quote(name)}")

    def watch_nodes(self, version: str) -> Iterator[tuple[str, ResourceTable]]:
        """Yield the changes since ``version``; see ``_watch``. The second column is the status."""
        return self._watch("/api/v1/nodes", version)

    def renewals(self) -> dict[str, str]:
        """Return what identifies the last renewal of each kubelet's lease, by node.

        From the server's cache, so it may be old, but that looks like silence: a hint, and never a sign of life.
        """
        leases, _ = self._list(KubeletLease, _SERVED_LEASES, resourceVersion="0", limit=_LEASES_IN_A_PAGE)
        return {lease.metadata.name: lease.renewal for lease in leases}

    def renewal(self, node: str) -> str:
        """Return the same of one node as a majority of etcd knows it; "" if it has no lease."""
        lease = self._read_object(KubeletLease, f"{_SERVED_LEASES}/{quote(node)}")
        return "" if lease is None else lease.renewal

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods that are bound to the node."""
        return self._list(Pod, "/api/v1/pods", fieldSelector=f"spec.nodeName={node}")[0]

    def pods_like(self, namespace: str, selector: str) -> list[Pod] | None:
        """Return the pods with these labels, in all namespaces if that is ""; None if they are too many to look at."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods" if namespace else "/api/v1/pods"
        return self._list_up_to(Pod, path, MAX_NEIGHBORS, labelSelector=selector)

    def attachments_of(self, node: str) -> list[VolumeAttachment]:
        """Return the VolumeAttachments of the node."""
        attachments, _ = self._list(VolumeAttachment, _ATTACHMENTS)
        return [attachment for attachment in attachments if attachment.spec.node_name == node]

    def volume_of(self, namespace: str, claim: str) -> PersistentVolume | None:
        """Return the volume that is bound to the claim; None if there is none, or no such claim."""
        bound = self._read_object(
            VolumeClaim, f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(claim)}"
        )
        if bound is None or not bound.spec.volume_name:
            return None
        return self._read_object(PersistentVolume, f"/api/v1/persistentvolumes/{quote(bound.spec.volume_name)}")

    def delete_pod(self, pod: Pod) -> None:
        """Delete it without grace if it is as it was read; ``KubernetesError``, ``conflict`` if it is not."""
        meta = pod.metadata
        self._delete(
            f"/api/v1/namespaces/{quote(meta.namespace)}/pods/{quote(meta.name)}", meta.uid, meta.resource_version
        )

    def delete_attachment(self, attachment: VolumeAttachment) -> None:
        """Delete it if it has not changed since it was read; see ``delete_pod``."""
        meta = attachment.metadata
        self._delete(f"{_ATTACHMENTS}/{quote(meta.name)}", meta.uid, meta.resource_version)

    def evict(self, pod: Pod) -> bool:
        """Delete the pod without grace if the disruption budgets allow it; False if they do not.

        The API server takes it off the budgets in the same step, so what it allows once is not used twice.
        """
        meta = pod.metadata
        body = {
            "apiVersion": "policy/v1beta1" if self._old_eviction else "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": {"uid": meta.uid}},
        }
        try:
            self._call("POST", f"/api/v1/namespaces/{quote(meta.namespace)}/pods/{quote(meta.name)}/eviction", body)
        except KubernetesError as exc:
            if exc.status == 429:
                return False
            if exc.status == 404:
                return True
            if exc.status != 400 or self._old_eviction:
                raise
            self._old_eviction = True  # a server that is old, and does not say its version
            return self.evict(pod)
        return True

    def set_out_of_service(self, node: KubeNode, *, present: bool) -> None:
        """Set or remove the taint if the node is as it was read; as ``delete_pod``. Other taints stay."""
        taints = [taint for taint in node.taints if taint.key != OUT_OF_SERVICE]
        if present:
            taints.append(Taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute"))
        body = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}}
        self._call("PATCH", f"/api/v1/nodes/{quote(node.name)}", body, kind=MERGE)

    def set_left_off(self, node: KubeNode, message: str) -> None:
        """Report on the node that its machine stays off, and why; "": that it no longer does."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {
            "type": LEFT_OFF,
            "status": "True" if message else "False",
            "reason": "LeftOff" if message else "NotLeftOff",
            "message": message,
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }
        body = {"status": {"conditions": [condition]}}
        self._call("PATCH", f"/api/v1/nodes/{quote(node.name)}/status", body, kind=STRATEGIC_MERGE)

    def record_event(self, node: str, reason: str, message: str, *, warning: bool) -> None:
        """Add an Event about the node."""
        # kubectl describe looks for events of nodes by name, as the kubelet records them.
        about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
        self._record(about, reason, message, warning=warning, component="ferroscope-failover", namespace="default")
