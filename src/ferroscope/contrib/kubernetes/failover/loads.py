"""Reads the pods, attachments and volumes on a node, and the pods elsewhere that their affinities name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferroscope.contracts.store import Clock
from ferroscope.contrib.kubernetes.failover.bmc_calls import Load
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.placement import PodQuery, queries_of
from ferroscope.contrib.kubernetes.failover.pods import PersistentVolume, Pod

_NEIGHBORS_AGE_SECONDS: Final = 30.0  # seconds for which the pods that affinities name are not read again


class LoadReader:
    """For one thread. It remembers volumes and neighbors while nodes have failed."""

    def __init__(self, kube: Kubernetes, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._volumes: dict[tuple[str, str], PersistentVolume] = {}
        self._neighbors: dict[PodQuery, tuple[float, Sequence[Pod] | None]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._volumes.clear()
        self._neighbors.clear()

    def read(self, name: str) -> Load:
        """Return what is on the node; an error of the API server concerns this node alone."""
        try:
            pods = self._kube.pods_on(name)
            attachments = self._kube.attachments_of(name)
            return Load(pods, attachments, self._volumes_of(pods), self._neighbors_of(pods))
        except KubernetesError as exc:
            return Load(error=str(exc))

    def _neighbors_of(self, pods: Sequence[Pod]) -> dict[PodQuery, Sequence[Pod] | None]:
        """Return the pods that the affinities of movable pods name."""
        now = self._clock.monotonic()
        queries = queries_of(pod for pod in pods if not pod.bound_to_node and pod.runs)
        for query in queries:
            if query not in self._neighbors or now - self._neighbors[query][0] > _NEIGHBORS_AGE_SECONDS:
                self._neighbors[query] = (now, self._kube.pods_like(query.namespace, query.selector))
        return {query: self._neighbors[query][1] for query in queries}

    def _volumes_of(self, pods: Sequence[Pod]) -> dict[tuple[str, str], PersistentVolume]:
        """Return the pods' volumes. A bound claim stays bound, and is not read again while a node has failed."""
        for pod in pods:
            for claim in pod.claims:
                key = (pod.metadata.namespace, claim)
                if key not in self._volumes and (volume := self._kube.volume_of(*key)) is not None:
                    self._volumes[key] = volume
        keys = [(pod.metadata.namespace, claim) for pod in pods for claim in pod.claims]
        return {key: self._volumes[key] for key in keys if key in self._volumes}
