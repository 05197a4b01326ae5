"""The invariants of design.md section 9, checked by books that the simulation keeps itself.

The books are kept from committed rows and from what machines do; nothing is asked of the code under
test. A commit is judged before it takes effect. ``kernel.Rule`` names what may be violated; I4 is judged where
the filters are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checks.answers import Answers
from tests.simulation.checks.claims import Claims
from tests.simulation.checks.ending import Ending
from tests.simulation.checks.events import Events
from tests.simulation.checks.leaders import Leaders
from tests.simulation.checks.losses import Losses
from tests.simulation.checks.power import PowerControl
from tests.simulation.checks.states import States
from tests.simulation.checks.stopping import Stopping
from tests.simulation.database.commits import Commit

if TYPE_CHECKING:
    from tests.simulation.world import World


class Checks:
    """All books. Each is told of what it watches over, and calls ``kernel.fail`` where it must not happen."""

    def __init__(self, world: World) -> None:
        self.losses = Losses(world)
        self.stopping = Stopping(world)
        self.leaders = Leaders(world, self.losses)
        self.claims = Claims(world, self.leaders, self.stopping)
        self.power = PowerControl(world, self.claims, self.losses)
        self.states = States(world, self.claims, self.power)
        self.answers = Answers(world, self.states, self.losses)
        self.events = Events(world)
        self.ending = Ending(world, self.leaders, self.claims, self.power, self.answers, self.losses)

    def committing(self, commit: Commit) -> None:
        """Judge a commit that is about to take effect, then write it down."""
        task = commit.task
        if task is not None:
            self.answers.latest_of[task] = commit
            self.claims.fence(commit, task)
            self.leaders.fence(commit, task)
        self.states.results(commit)
        self.events.told(commit)
        for change in commit.changes:
            if change.table == "requests":
                self.claims.request(change, task)
                self.answers.queues(change)
            elif change.table == "leases":
                self.leaders.lease(change, task)
            elif change.table == "inspections":
                self.answers.stores(change)
        self.claims.one_of_each_node(commit)
        self.states.nodes(commit)

    def forgot(self, commits: list[Commit]) -> None:
        """A fail-over lost these: the books go back with it, and what follows from it is excused."""
        if not commits:
            return
        for commit in commits:
            for change in commit.changes:
                self.ending.lose(change)
                self.losses.lose(change)
                self.states.take_back(change)
                self.answers.take_back(change)
            self.answers.lose(commit)
        self.losses.end()
        self.claims.recount()
        self.states.recount()
