"""I6 and I7: what was answered 2xx is there for good, and nothing is answered 500, or 504 without a reason."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.simulation.checks.losses import Losses
from tests.simulation.checks.states import States
from tests.simulation.database.commits import Changed, Commit
from tests.simulation.kernel import Task

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import World


class Answers:
    """Digests of callbacks, by inspection: those that were ``sent`` and those that were ``accepted``.

    ``latest_of`` is each task's last commit: its answer rests on it.
    """

    def __init__(self, world: World, states: States, losses: Losses) -> None:
        self._world = world
        self._fail = world.kernel.fail
        self._states = states
        self._losses = losses
        self.sent: dict[str, set[str]] = defaultdict(set)
        self.accepted: dict[str, set[str]] = defaultdict(set)
        self.latest_of: dict[Task, Commit] = {}
        self._digests: set[str] = set()  # of all callbacks
        self._stored: set[str] = set()  # digests that were committed
        self._acknowledged: set[int] = set()  # commits

    def stores(self, change: Changed) -> None:
        """An inspection is committed, with the digest of its callback if it has one."""
        if change.after is not None and change.after["digest"]:
            self._stored.add(change.after["digest"])
            self.sent[change.after["uuid"]].add(change.after["digest"])

    def queues(self, change: Changed) -> None:
        """A request is committed; a callback of the inspection before may have been delivered late, to this one."""
        row = change.after
        if row is not None and row["event"] == "continue" and row["payload"] != "{}":
            self.sent[row["inspection"]] |= {digest for digest in self._digests if digest in row["payload"]}

    def take_back(self, change: Changed) -> None:
        """A fail-over has lost this change."""
        if change.table == "inspections" and change.after is not None:
            self._stored.discard(change.after["digest"])

    def answered(self, task: Task | None, status: int) -> None:
        """An api process has answered: what its 2xx rests on must be there for good."""
        unknown = status == 504 and task is not None and task.unanswered  # whether it was stored; documented
        if status >= 500 and status != 503 and not unknown:
            self._fail("I7", f"{task} answered {status}")
        commit = self.latest_of.get(task) if task is not None else None
        if 200 <= status < 300 and commit is not None:
            self._acknowledged.add(commit.sequence)

    def took_start(self, node: str, since: float) -> None:
        """A start that was answered 202 has begun, or was one with another that had."""
        if not self._states.was_starting(node, since) and node not in self._losses.nodes:
            name = self._world.name_of(node)
            self._fail("I6", f"a start of {name} was answered 202, but it was never in starting")

    def calls_back(self, machine: Machine, digest: str) -> None:
        self._digests.add(digest)
        self.sent[self._world.inspection_of(machine.uuid) or ""].add(digest)

    def took_callback(self, machine: Machine, digest: str) -> None:
        """What was answered 202 is stored."""
        server = self._world.server
        inspection = self._world.inspection_of(machine.uuid)
        row = None if inspection is None else server.peek("inspections", inspection)
        if row is not None and row["digest"] == digest:
            self.accepted[row["uuid"]].add(digest)
            return
        queued = any(digest in request["payload"] for request in server.all("requests") if request["payload"] != "{}")
        if not queued and digest not in self._stored and machine.uuid not in self._losses.nodes:
            self._fail("I6", f"the callback {digest[:6]} of {machine.name} was answered 202, but is not stored")

    def lose(self, commit: Commit) -> None:
        """A fail-over has lost this commit; a power failure must not lose one that was answered."""
        if commit.sequence in self._acknowledged:
            self._world.count("answers 2xx lost by a fail-over")
            if not self._world.losing_durable:
                self._fail("I6", f"a commit that was answered 2xx at {commit.at:.3f} was lost by a power failure")
        if commit.durable and not self._world.losing_durable:
            self._fail("I6", "the simulated database lost a durable commit in a power failure")
