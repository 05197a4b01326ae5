"""The watched nodes of clusters: see ``core.failover_node``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, delete, select

from ferroscope.core.failover_node import FailoverNode
from ferroscope.db import schema
from ferroscope.db.mapping import upsert
from ferroscope.db.session import Repository
from ferroscope_client.core import json_safety

_n = schema.failover_nodes.c
_OF_CLUSTER: Final = select(_n.record).where(_n.cluster == bindparam("cluster")).order_by(_n.node)
_ELSEWHERE: Final = select(_n.record).where(_n.cluster != bindparam("cluster")).order_by(_n.cluster, _n.node)
_ONE: Final = select(_n.record).where(_n.cluster == bindparam("cluster"), _n.node == bindparam("node"))
_REMOVE: Final = delete(schema.failover_nodes).where(_n.cluster == bindparam("cluster"), _n.node == bindparam("node"))
_OLD: Final = delete(schema.failover_nodes).where(_n.written_at < bindparam("before"))


class FailoverNodes(Repository):
    """One row for each node of each cluster, written by the controller that leads for the cluster."""

    def save(self, nodes: Iterable[FailoverNode]) -> list[FailoverNode]:
        """Add or replace them; return them as they are stored, with their ``written_at``."""
        statement = upsert(self._tx.dialect.name, schema.failover_nodes)
        written = [msgspec.structs.replace(record, written_at=self._tx.now) for record in nodes]
        for record in written:
            row: dict[str, Any] = {
                "cluster": record.cluster,
                "node": record.node,
                "machine": record.machine or None,
                "ready": record.ready,
                "written_at": record.written_at,
                "record": msgspec.json.encode(record).decode(),
            }
            self._tx.ask(statement, row)
        return written

    def list(self, cluster: str) -> Sequence[FailoverNode]:
        """Return the nodes of this cluster, by name."""
        return _decode(self._tx.run(_OF_CLUSTER, {"cluster": cluster}))

    def elsewhere(self, cluster: str) -> Sequence[FailoverNode]:
        """Return the nodes of all other clusters."""
        return _decode(self._tx.run(_ELSEWHERE, {"cluster": cluster}))

    def named(self, cluster: str, names: Iterable[str]) -> Sequence[FailoverNode]:
        """Return the stored nodes among these."""
        asked = [self._tx.ask(_ONE, {"cluster": cluster, "node": name}) for name in names]
        return [node for pending in asked for node in _decode(pending.answer())]

    def remove(self, cluster: str, names: Iterable[str]) -> None:
        """Delete these nodes of the cluster."""
        for name in names:
            self._tx.ask(_REMOVE, {"cluster": cluster, "node": name})

    def remove_old(self, before: float) -> int:
        """Delete those that were last written before this time: their controller does not run; return their number."""
        return int(self._tx.run(_OLD, {"before": before}).rowcount)


def _decode(rows: Any) -> Sequence[FailoverNode]:
    return [json_safety.decode_own(row[0], FailoverNode) for row in rows]
