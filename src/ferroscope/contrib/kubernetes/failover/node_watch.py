"""Watches the nodes' status, so that the controller need not wait for its next regular pass."""

from __future__ import annotations

import threading
from typing import Final

from ferroscope.contracts.store import StopFlag
from ferroscope.contrib.kubernetes.api import TableRow
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.cluster import PREFIX

_STATUS_COLUMN: Final = 1
# Of a node that the watch shows for the first time nothing else would be news to a pass.
_WELL: Final = ("Ready", dict[str, str]())
_PAUSE_SECONDS: Final = 1.0  # between two watches: a server may end each of them at once


class NodeWatch:
    """Sets ``wake`` when a node's status changes, or one of our annotations, from a thread.

    Nothing depends on it but the time until the next pass, so every error only means to begin again.
    """

    def __init__(self, kube: Kubernetes, wake: threading.Event, stop: StopFlag) -> None:
        self._kube = kube
        self._wake = wake
        self._stop = stop
        self._known: dict[str, tuple[object, dict[str, str]]] = {}

    def start(self) -> None:
        threading.Thread(target=self.run, name="node watch", daemon=True).start()

    def run(self) -> None:
        version, pause = "", _PAUSE_SECONDS
        while not self._stop.is_set():
            try:
                version = self.follow(version)
                pause = _PAUSE_SECONDS
                self._stop.wait(pause)
            except KubernetesError as exc:
                version = "" if exc.is_version_expired else version
                self._stop.wait(max(pause, exc.retry_after))
                pause = min(pause * 2, 30.0)

    def follow(self, version: str) -> str:
        """Follow one watch to its end; return the version to go on from."""
        for kind, table in self._kube.watch_nodes(version):
            version = table.metadata.resource_version or version
            for row in table.rows or ():
                version = row.object.metadata.resource_version or version
                self._note(kind, row)
            if self._stop.is_set():
                break
        return version

    def _note(self, kind: str, row: TableRow) -> None:
        name, annotations = row.object.metadata.name, row.object.metadata.annotations or {}
        if kind == "DELETED":
            self._known.pop(name, None)
            self._wake.set()
            return
        status = row.cells[_STATUS_COLUMN] if len(row.cells) > _STATUS_COLUMN else None
        now = status, {key: value for key, value in annotations.items() if key.startswith(PREFIX)}
        if self._known.get(name, _WELL) != now:
            self._wake.set()
        self._known[name] = now
