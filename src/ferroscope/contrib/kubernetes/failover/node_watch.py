"""Watches the nodes' readiness, so that the controller need not wait for its next regular pass."""

from __future__ import annotations

import threading

from ferroscope.contracts.queue import StopFlag
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.cluster import KubeNode


class NodeWatch:
    """Sets ``wake`` when a node's readiness changes, from a thread: a list, then watches from its version on.

    Nothing depends on it but the time until the next pass, so every error only means to list again.
    """

    def __init__(self, kube: Kubernetes, wake: threading.Event, stop: StopFlag) -> None:
        self._kube = kube
        self._wake = wake
        self._stop = stop
        self._ready: dict[str, bool] = {}

    def start(self) -> None:
        threading.Thread(target=self.run, name="node watch", daemon=True).start()

    def run(self) -> None:
        version, pause = "", 1.0
        while not self._stop.is_set():
            try:
                if not version:
                    nodes, version = self._kube.nodes()
                    for one in nodes:
                        self._saw("MODIFIED", one)
                version = self.follow(version)
                pause = 1.0
            except KubernetesError as exc:
                version = "" if exc.gone else version
                self._stop.wait(max(pause, exc.retry_after))
                pause = min(pause * 2, 30.0)

    def follow(self, version: str) -> str:
        """Follow one watch to its end; return the version to go on from."""
        for kind, node in self._kube.watch_nodes(version):
            version = node.metadata.resource_version or version
            if kind != "BOOKMARK":
                self._saw(kind, node)
            if self._stop.is_set():
                break
        return version

    def _saw(self, kind: str, node: KubeNode) -> None:
        if kind == "DELETED":
            self._ready.pop(node.name, None)
        elif self._ready.get(node.name, node.ready) != node.ready:
            self._wake.set()
        if kind != "DELETED":
            self._ready[node.name] = node.ready
