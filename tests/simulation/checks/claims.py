"""Requests and their claims: one of each node, in order, and I3 for workers: nothing is written without a claim."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from ferroscope.contracts.bmc import Power
from tests.simulation.checks.leaders import THROTTLE, Leaders
from tests.simulation.checks.stopping import Stopping
from tests.simulation.database.commits import Changed, Commit
from tests.simulation.database.storage import Row
from tests.simulation.kernel import Task

if TYPE_CHECKING:
    from tests.simulation.world import World

# Intents in the progress of a request.
POWER_ON = json.dumps("power on")
WAS_ON = json.dumps("power off a machine that was on")
# What a worker writes under a claim only.
_UNDER_CLAIM = frozenset({"nodes", "ports", "inspections", "inspection_data", "journal", "bmc_addresses"})


class Claimed(msgspec.Struct):
    """A claim that was committed, and who made it."""

    token: str
    request: int
    node: str
    event: str
    inspection: str | None
    attempt: int
    task: Task
    trouble: bool = False  # a BMC call of this attempt got no answer
    intent_at: float | None = None
    was_on: bool = False  # the start has powered off, or is about to, a machine that was on
    undoing: bool = False  # the start has failed for good, and what it did to the machine is taken back

    @property
    def left(self) -> Power | None:
        """The power in which a start that fails leaves its machine; None: as it was."""
        if self.was_on:
            return Power.ON
        return None if self.intent_at is None else Power.OFF


class Claims:
    """All claims ``by_token``, the last one ``by_task``, and ``by_node`` those that are held."""

    def __init__(self, world: World, leaders: Leaders, stopping: Stopping) -> None:
        self._world = world
        self._kernel = world.kernel
        self._fail = world.kernel.fail
        self._leaders = leaders
        self._stopping = stopping
        self.by_token: dict[str, Claimed] = {}
        self.by_node: dict[str, Claimed] = {}
        self.by_task: dict[Task, Claimed] = {}
        self.requests: dict[str, set[int]] = defaultdict(set)  # by node
        self.failures: Counter[int] = Counter()  # by request: attempts that failed, or whose process died alone
        self.failed_most = 0
        self.excused: set[str] = set()  # inspections that may be rebooted again

    def fence(self, commit: Commit, task: Task) -> None:
        """I3: no worker writes without a claim, which may be part of the same commit, or under one that is over."""
        if not task.name.startswith("worker-"):
            return
        claimed_here = {
            change.after["node"]
            for change in commit.changes
            if change.table == "requests"
            and change.after
            and change.after["token"]
            and not (change.before and change.before["token"])
        }
        for change in commit.changes:
            row = change.after or change.before
            if change.table not in _UNDER_CLAIM or row is None:
                continue
            node = row["uuid"] if change.table == "nodes" else row["node"]
            claim = self.by_node.get(node)
            if node not in claimed_here and (claim is None or claim.task is not task):
                now = "nobody" if claim is None else f"{claim.task} (attempt {claim.attempt})"
                name = self._world.name_of(node)
                self._fail("I3", f"{task} changed {change.table} of node {name} without its claim, held by {now}")

    def request(self, change: Changed, task: Task | None) -> None:
        before, after = change.before, change.after
        row = after or before
        assert row is not None
        node, number = row["node"], row["id"]
        if after is None:
            self.requests[node].discard(number)
        else:
            self.requests[node].add(number)
        freed = before is not None and before["token"] and (after is None or after["token"] != before["token"])
        if freed:
            assert before is not None
            claim = self.by_token.get(before["token"])
            if claim is not None and self.by_node.get(node) is claim:
                del self.by_node[node]
            if after is not None and claim is not None and not after["token"]:
                self._released(claim, before, after, task)
            if claim is not None and claim.intent_at is None and claim.event == "inspect" and task is not claim.task:
                self.excused.add(claim.inspection or "")
        if after is None or not after["token"]:
            return
        claim = self.by_token.get(after["token"])
        if claim is None or freed:
            claim = self._claimed(after, task)
        elif claim.event != after["event"]:  # turned into what follows, under the same claim
            claim.event, claim.attempt, claim.trouble, claim.intent_at = after["event"], after["attempt"], False, None
            self.failures[claim.request] = 0
        claim.was_on = WAS_ON in after["progress"]
        if before is not None and after["progress"] != before["progress"] and POWER_ON in after["progress"]:
            claim.intent_at = self._kernel.now
            if self._world.scenario.settings.worker.reboot_throttle and claim.event == "inspect" and task is not None:
                self._leaders.leads(task, THROTTLE, "intended a power-on")

    def _released(self, claim: Claimed, before: Row, after: Row, task: Task | None) -> None:
        """A request is due again. It may end for that only after as many attempts that it was itself to blame for."""
        own = task is not None and task.owner is claim.task.owner
        if (own and after["attempt"] == before["attempt"] and after["lost"] == before["lost"]) or (
            not own and claim.task.owner.dead
        ):
            self.failures[claim.request] += 1
            self.failed_most = max(self.failed_most, self.failures[claim.request])
        most = self._world.scenario.settings.worker.max_attempts + 1  # the last one is to clean up
        if self._world.scenario.poisoned and self.failures[claim.request] > most:
            name = self._world.name_of(claim.node)
            self._fail("I1", f"request {claim.request} of {name} failed {self.failures[claim.request]} times")

    def _claimed(self, row: dict[str, Any], task: Task | None) -> Claimed:
        assert task is not None
        node = row["node"]
        self._in_order(row)
        self._stopping.takes_request(task)
        claim = Claimed(
            token=row["token"],
            request=row["id"],
            node=node,
            event=row["event"],
            inspection=row["inspection"],
            attempt=row["attempt"],
            task=task,
            intent_at=self._kernel.now if POWER_ON in row["progress"] else None,
        )
        self.by_token[row["token"]] = self.by_node[node] = self.by_task[task] = claim
        self._kernel.say(
            f"claims {row['event']} of {self._world.name_of(node)} (request {row['id']}, attempt {row['attempt']})",
            str(task),
        )
        return claim

    def taken_over(self, token: str, task: Task) -> None:
        """The task carries out what another one of its process has claimed."""
        claim = self.by_token.get(token)
        if claim is not None and claim.task.owner is task.owner:
            claim.task = task
            self.by_task[task] = claim

    def _in_order(self, row: dict[str, Any]) -> None:
        """An older request of the node that was never tried goes first, if it is due; a start may be overtaken.

        A claim is made by the clock at its statement, and seen here when it is committed: a step between them would
        make requests due that were not.
        """
        node, server = row["node"], self._world.server
        if self._kernel.now - self._leaders.clock_stepped_at < 1.0:
            return
        for number in [number for number in self.requests[node] if number < row["id"]]:
            other = server.peek("requests", number)
            if other is not None and other["event"] == "inspect" and row["event"] in ("abort", "delete"):
                continue
            if other is not None and other["due_at"] <= server.clock() - 1.0 and not other["attempt"]:
                name = self._world.name_of(node)
                self._fail("order", f"request {row['id']} of {name} was claimed before {number}")

    def one_of_each_node(self, commit: Commit) -> None:
        """At no time are two requests of one node claimed."""
        touched = {change.key: change.after for change in commit.changes if change.table == "requests"}
        for node in {(row or {}).get("node") for row in touched.values()} - {None}:
            claimed = []
            for number in self.requests[node]:
                row = touched[(number,)] if (number,) in touched else self._world.server.peek("requests", number)
                if row is not None and row["token"]:
                    claimed.append(number)
            if len(claimed) > 1:
                name = self._world.name_of(node)
                self._fail("two claims", f"requests {claimed} of node {name} are claimed at once")

    def recount(self) -> None:
        """Count from the tables, of which a part was lost."""
        self.requests.clear()
        self.by_node.clear()
        for row in self._world.server.all("requests"):
            self.requests[row["node"]].add(row["id"])
            if row["token"] and row["token"] in self.by_token:
                self.by_node[row["node"]] = self.by_token[row["token"]]
