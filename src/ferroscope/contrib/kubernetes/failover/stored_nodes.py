"""What the controllers of all clusters have stored about their nodes: which machine each runs on."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from ferroscope.contracts.store import Clock
from ferroscope.contrib.kubernetes.failover.cluster import MACHINE, SERIAL, KubeNode
from ferroscope.core.failover_node import FailoverNode
from ferroscope.db import Store

# Seconds for which the nodes of other clusters are not read again.
_ELSEWHERE_SECONDS: Final = 10.0
# Up to this many nodes are read by their names.
_MAX_NODES_BY_NAME: Final = 50
_LEASE: Final = "failover/"
# Seconds after its last leader for which a cluster may still be a different one with the same Nodes, such as a restored
# one.
_RENAMED_SECONDS: Final = 600.0
# Seconds after which a node's row is written again: rows are deleted some days after they were written.
REWRITE_SECONDS: Final = 3600.0


class StoredNodes:
    """The stored nodes of this cluster, and of all others. For one thread."""

    def __init__(self, store: Store, clock: Clock, cluster: str) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._elsewhere: list[tuple[str, KubeNode]] = []
        self._due_at = -math.inf
        # Clusters with a leader but without stored nodes: a former release, or one that has just begun.
        self.unguarded: Sequence[str] = ()

    def clear(self) -> None:
        """Read everything again."""
        self._due_at = -math.inf

    def read_nodes(self, names: Collection[str]) -> dict[str, FailoverNode]:
        """Return the stored nodes of this cluster among these, by name."""
        if len(names) <= _MAX_NODES_BY_NAME:
            stored = self._store.read(lambda tx: tx.failover_nodes.named(self._cluster, names))
        else:
            stored = self._store.read(lambda tx: tx.failover_nodes.list(self._cluster))
        return {node.node: node for node in stored}

    def elsewhere(self, nodes: Iterable[KubeNode]) -> list[KubeNode]:
        """Return the nodes of other clusters, with the identifiers of their machines; ``nodes`` are those of this one.

        A node that is here is left out: it was stored under another name of this cluster.
        """
        if self._clock.monotonic() >= self._due_at:
            stored, now, leases = self._store.read(
                lambda tx: (tx.failover_nodes.elsewhere(self._cluster), tx.now, tx.leases.list(_LEASE))
            )
            others = {lease.name.removeprefix(_LEASE): lease for lease in leases}
            others.pop(self._cluster, None)
            led_lately = {name for name, lease in others.items() if now - lease.renewed_at < _RENAMED_SECONDS}
            written = {row.cluster: 0.0 for row in stored}
            for row in stored:
                written[row.cluster] = max(written[row.cluster], row.written_at)
            # A node that is here, too, was stored under another name of this cluster, unless that one has a leader.
            self._elsewhere = [
                ("" if row.cluster in led_lately else row.uid, _foreign(row, written[row.cluster], now))
                for row in stored
            ]
            self.unguarded = sorted(name for name, lease in others.items() if lease.holder and name not in written)
            self._due_at = self._clock.monotonic() + _ELSEWHERE_SECONDS
        here = {node.metadata.uid for node in nodes} if self._elsewhere else set()
        return [node for uid, node in self._elsewhere if not uid or uid not in here]


def _foreign(stored: FailoverNode, written_at: float, now: float) -> KubeNode:
    """Return the node of another cluster, as stored; its name says where it is."""
    silent = (
        f", whose controller has not run since {format_utc(written_at)}"
        if now - written_at > 2 * REWRITE_SECONDS
        else ""
    )
    annotations = {MACHINE: stored.annotation, SERIAL: stored.serial}
    document = {
        "metadata": {
            "name": f"{stored.node} of cluster {stored.cluster}{silent}",
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "spec": {"providerID": stored.provider_id},
        "status": {"nodeInfo": {"systemUUID": stored.system_uuid}},
    }
    return msgspec.convert(document, KubeNode)


def format_utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
