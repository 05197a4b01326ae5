"""I1: everything that was accepted has ended, finished or in error for a reason of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.checks.answers import Answers
from tests.simulation.checks.claims import Claims
from tests.simulation.checks.leaders import Leaders
from tests.simulation.checks.losses import Losses
from tests.simulation.checks.power import PowerControl
from tests.simulation.database.commits import Changed
from tests.simulation.scenario import INTRUDER, TIMEOUT

if TYPE_CHECKING:
    from tests.simulation.world import World


class Ending:
    """``aborted`` are inspections that somebody asked to abort; with a node ``abort_on_its_way`` it may be any.

    ``restarted`` and ``restart_on_its_way`` are the same for inspections that a newer one has replaced.
    """

    def __init__(
        self, world: World, leaders: Leaders, claims: Claims, power: PowerControl, answers: Answers, losses: Losses
    ) -> None:
        self._world = world
        self._fail = world.kernel.fail
        self._leaders = leaders
        self._claims = claims
        self._power = power
        self._answers = answers
        self._losses = losses
        self.aborted: set[str] = set()
        self.abort_on_its_way: set[str] = set()
        self.restarted: set[str] = set()
        self.restart_on_its_way: set[str] = set()

    def at_rest(self) -> bool:
        """Whether every inspection has ended and nothing is left to do."""
        server = self._world.server
        if self._world.clusters:
            return True  # nobody carries out inspections there
        return not server.all("requests") and all(
            row["state"] in ("none", "finished", "error") for row in server.all("nodes")
        )

    def lose(self, change: Changed) -> None:
        """A crash has undone this change: no end may be among them, except where a replica lags behind."""
        before, after = change.before, change.after
        if change.table != "inspections" or before is None or after is None or self._world.losing_durable:
            return
        if after["state"] in ("finished", "error") and before["state"] != after["state"]:
            self._fail("I6", f"the end of an inspection of {self._world.name_of(after['node'])} was lost in a crash")

    def judge(self) -> None:
        """Nothing more will happen: look whether all has come to a good end."""
        self._leases()
        if self._world.clusters:
            return
        server, name_of = self._world.server, self._world.name_of
        for node in server.all("nodes"):
            if node["state"] not in ("none", "finished", "error"):
                self._fail("I1", f"{name_of(node['uuid'])} is still {node['state']}: no end in sight")
        for row in server.all("requests"):
            self._fail("I1", f"request {row['id']} ({row['event']} of {name_of(row['node'])}) is still there")
        for row in server.all("inspections"):
            if row["state"] not in ("finished", "error"):
                self._fail("I1", f"an inspection of {name_of(row['node'])} is still {row['state']}")
            elif row["state"] == "error" and row["uuid"] not in self._losses.inspections:
                self._error(row)

    def _leases(self) -> None:
        """Somebody leads: time-outs are looked for, and a PXE filter is open."""
        scenario, now = self._world.scenario, self._world.kernel.now
        period = scenario.settings.inspector.timeout_period
        silent = now - self._leaders.stepped_at
        if scenario.has_timeouts and silent > period + 2 * scenario.settings.lease.numbers().ttl + 3.0:
            self._fail(
                "leader", f"the time-outs have not been looked for since {silent:.1f} s, every {period:g} s was due"
            )
        if scenario.has_pxe_filters and not any(one.open_until > now for one in self._world.firewalls):
            self._fail("filter", "no filter is open although nothing has been wrong for a while")

    def _error(self, row: dict[str, Any]) -> None:
        """Whether an error's reason is the inspection's own."""
        reason, uuid = row["reason"], row["uuid"]
        settings, name = self._world.scenario.settings, self._world.name_of(row["node"])
        intruded = reason == "callback-refused" and INTRUDER in row["error"]  # a time-out that names the last refusal
        if reason in ("timeout", "ramdisk-silent", "start-timeout", "processing-timeout") or intruded:
            if settings.inspector.timeout < TIMEOUT:
                return
            if self._answers.accepted[uuid]:
                self._fail("I1", f"an inspection of {name} timed out although its callback was accepted")
            tried = self._power.power_ons[uuid] or self._power.unanswered[uuid]
            if not tried and uuid not in self._claims.excused:
                self._fail("I1", f"an inspection of {name} timed out without a power-on")
        elif reason == "aborted":
            if uuid not in self.aborted and row["node"] not in self.abort_on_its_way:
                self._fail("I1", f"an inspection of {name} was aborted, but nobody asked for it")
        elif reason == "restarted":
            self._replaced(row)
        elif reason == "conflicting-callback":
            if len(self._answers.sent[uuid]) < 2:
                self._fail("I1", f"an inspection of {name} ended by a conflict with itself")
        elif reason in ("bmc-unreachable", "power-failed"):
            if not self._power.unanswered[uuid]:
                self._fail("I1", f"an inspection of {name} ended by {reason}, but its BMC answered always")
        elif reason == "attempts-exhausted":
            if self._claims.failed_most < settings.worker.max_attempts:
                self._fail("I1", f"an inspection of {name} ended by {reason}, but {row['error']!r} is not so")
        elif reason == "interrupted":
            if settings.worker.interrupted != "error":
                self._fail("I1", f"an inspection of {name} ended by {reason}")
        else:
            self._fail("I1", f"an inspection of {name} ended by {reason}: {row['error']}")

    def _replaced(self, row: dict[str, Any]) -> None:
        """An inspection ended because another one replaced it: somebody asked for that, and no callback was lost."""
        name, node = self._world.name_of(row["node"]), self._world.server.peek("nodes", row["node"])
        if row["uuid"] not in self.restarted and row["node"] not in self.restart_on_its_way:
            self._fail("I1", f"an inspection of {name} was replaced, but nobody asked for it")
        if node is not None and node["inspection"] == row["uuid"]:
            self._fail("I1", f"an inspection of {name} was replaced, but there is no newer one")
        if self._answers.accepted[row["uuid"]]:
            self._fail("I6", f"an inspection of {name} was replaced although its callback was accepted")
