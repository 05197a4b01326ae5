"""Counts in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ferroscope.adapters.memory.rows import Rows
from ferroscope.ports.figures import Backlog, Population


class MemoryFigures:
    """``ports.store.Figures``."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def nodes(self) -> Sequence[Population]:
        counts = Counter((node.state, node.provision_state) for node in self._rows.nodes.values())
        return [
            Population(state=state, provision_state=provision, nodes=count)
            for (state, provision), count in sorted(counts.items())
        ]

    def backlog(self) -> Sequence[Backlog]:
        rows = self._rows.requests.values()
        return [
            Backlog(
                event=event,
                waiting=sum(row.holder is None for row in rows if row.request.event is event),
                claimed=sum(row.holder is not None for row in rows if row.request.event is event),
                oldest=min(row.request.created_at for row in rows if row.request.event is event),
            )
            for event in sorted({row.request.event for row in rows})
        ]
