"""Each inspection that has finished is told of once, in the same commit; where the scenario has a target."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.database.commits import Commit

if TYPE_CHECKING:
    from tests.simulation.world import World


class Events:
    """Compares the inspections that a commit ends with the events that it adds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._targets = len(world.scenario.settings.notifications.target)

    def told(self, commit: Commit) -> None:
        if not self._targets:
            return
        finished: Counter[str] = Counter()
        for change in commit.changes:
            before, after = change.before, change.after
            if after is None:
                continue
            if change.table == "inspections" and after["state"] == "finished" != (before or {}).get("state"):
                finished[after["node"]] += self._targets
            if change.table == "outbox" and before is None and after["type"] == "inspection.finished":
                finished[after["node"]] -= 1
        for node, missing in finished.items():
            if missing:
                name = self._world.name_of(node)
                self._world.kernel.fail("event", f"{name} has finished, and {missing} events of that are missing")
