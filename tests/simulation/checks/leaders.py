"""Leaders and their leases: epochs that only grow, I3 for leaders, and trust that ends before a lease does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ferroscope.db.leases import _digest
from ferroscope.leadership import Leadership
from tests.simulation.checks.losses import Losses
from tests.simulation.database.commits import Changed, Commit
from tests.simulation.kernel import Owner, Task

if TYPE_CHECKING:
    from tests.simulation.world import World

THROTTLE = "reboot-throttle"
# By which part of its time a clock may be wrong, so that a holder's trust ends before its lease.
MARGIN = 0.1


# What is written to become a leader, before one leads.
_ELECTION: Final = frozenset({"leases", "members"})


class Leaders:
    """``leases``: epoch and digest of the token of the lease that a task took last, by its name.

    ``stepped_at`` is when a leader last looked for time-outs.
    """

    def __init__(self, world: World, losses: Losses) -> None:
        self._world = world
        self._kernel = world.kernel
        self._fail = world.kernel.fail
        self._losses = losses
        self._token_of: dict[str, Owner] = {}
        self._leaderships: dict[str, list[tuple[Leadership, Owner]]] = {}
        self.leases: dict[tuple[Task, str], tuple[int, str]] = {}
        self.takeovers = 0
        self.stepped_at = 0.0
        self.clock_stepped_at = -1e9  # the database's

    def fence(self, commit: Commit, task: Task) -> None:
        """I3: no periodic task writes in an epoch that is over."""
        if not task.name.startswith(("periodic/", "failover/")):
            return
        # Who makes a name writes down where its epochs begin. Who forgets one does so too, but as a leader.
        makes = any(change.table == "leases" and change.before is None for change in commit.changes)
        election = _ELECTION | {"lease_epochs"} if makes else _ELECTION
        if any(change.table not in election for change in commit.changes):
            self.leads(task, task.name, "wrote")

    def leads(self, task: Task, name: str, what: str) -> None:
        """I3: the task holds this lease."""
        held = self.leases.get((task, name))
        row = self._world.server.peek("leases", name)
        present = None if row is None or row["holder"] is None else (row["epoch"], row["token_digest"])
        if held is None or held != present:
            mine = "none" if held is None else held[0]
            newer = "nobody leads" if present is None else f"epoch {present[0]} has been issued"
            self._fail("I3", f"{task} {what} as {name} in epoch {mine}, but {newer}")

    def lease(self, change: Changed, task: Task | None) -> None:
        before, after = change.before, change.after
        if after is None:
            return
        if before is not None and before["token_digest"] == after["token_digest"]:
            whose = self._token_of.get(after["token_digest"])
            if after["renewed_at"] != before["renewed_at"] and task is not None and task.owner is not whose:
                self._fail(
                    "I3", f"{task} renewed epoch {after['epoch']} of {after['name']}, which is {whose and whose.name}'s"
                )
            return
        if before is not None:
            # Who remembers an epoch that a fail-over has lost does not issue it again.
            known = self._losses.epochs.get(after["name"], 0)
            if not before["epoch"] < after["epoch"] <= max(before["epoch"], known) + 1:
                self._fail("I3", f"the epoch of {after['name']} went from {before['epoch']} to {after['epoch']}")
            self.takeovers += 1
            if before["holder"] is not None:
                self._nobody_trusts(after)
        if task is not None:
            self.leases[task, after["name"]] = (after["epoch"], after["token_digest"])
            self._token_of[after["token_digest"]] = task.owner
            if after["name"] == THROTTLE:
                self._world.faults.takes_throttle(task)
            self._kernel.say(f"leads {after['name']} in epoch {after['epoch']}", str(task))

    def takes_leadership(self, leadership: Leadership) -> None:
        """Somebody believes to have won an election."""
        self._leaderships.setdefault(leadership.claim.name, []).append((leadership, self._kernel.me().owner))

    def _nobody_trusts(self, row: dict[str, Any]) -> None:
        """A new epoch is issued: whoever had an older one must know by their own clock that it is over."""
        name = row["name"]
        alive = [
            (leadership, owner)
            for leadership, owner in self._leaderships.get(name, ())
            if not owner.dead and not leadership.over
        ]
        self._leaderships[name] = alive
        profile = self._world.scenario.settings.lease.numbers()
        longest = 3 * (profile.ttl + 2 * self._world.scenario.settings.worker.reboot_throttle + 20.0)
        if self._world.scenario.clock_spread > MARGIN:
            return  # a clock that is worse than the margin allows for: only fences and guards help
        if self._kernel.now - max(self._losses.tail_at, self.clock_stepped_at) < longest:
            return
        for leadership, owner in alive:
            if leadership.is_valid() and _digest(leadership.claim.token) != row["token_digest"]:
                self._fail(
                    "trust",
                    f"{owner.name} still trusts epoch {leadership.claim.epoch} of {name} when {row['epoch']} is issued",
                )

    def stepped(self, said: str) -> str:
        self.stepped_at = self._kernel.now
        return said
