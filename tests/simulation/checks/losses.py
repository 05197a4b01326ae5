"""What fail-overs have lost: what follows from it is nobody's fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.database.commits import Changed

if TYPE_CHECKING:
    from tests.simulation.world import World


class Losses:
    """``nodes`` and ``inspections`` of which something was lost; ``tail_at``: when durable commits last were.

    ``epochs``: the highest epoch of each lease whose acquisition was lost.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.nodes: set[str] = set()
        self.inspections: set[str] = set()
        self.tail_at = -1e9
        self.epochs: dict[str, int] = {}

    def lose(self, change: Changed) -> None:
        row = change.after or change.before
        assert row is not None
        if change.table == "leases":
            self.epochs[row["name"]] = max(row["epoch"], self.epochs.get(row["name"], 0))
        node = row.get("node") or (row["uuid"] if change.table == "nodes" else None)
        if node is not None:
            self.nodes.add(node)
            present = self._world.server.peek("nodes", node)
            self.inspections.update(
                {str(row.get("inspection")), str(present and present["inspection"])}
                | ({str(row["uuid"])} if change.table == "inspections" else set())
            )

    def end(self) -> None:
        """All that this fail-over lost has been told."""
        if self._world.losing_durable:
            self.tail_at = self._world.kernel.now
