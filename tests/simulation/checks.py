"""The invariants of design.md section 9, checked by books that the simulation keeps itself.

The books are kept from committed rows and from what machines do; nothing is asked of the code under
test. A commit is judged before it takes effect. ``rule`` names: I1, I2, I3, I6, I8, and words for
the promises that the design makes elsewhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from ferroscope.election import Tenure
from ferroscope.ports.bmc import Power
from tests.simulation.database.commits import Changed, Commit
from tests.simulation.kernel import Owner, Task
from tests.simulation.scenario import TIMEOUT

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedProcess
    from tests.simulation.machines import Machine
    from tests.simulation.world import World

# What a worker writes under a claim only.
_UNDER_CLAIM = frozenset({"nodes", "ports", "inspections", "inspection_data", "journal", "bmc_addresses"})
_NEEDS_REQUEST = frozenset({"starting", "processing", "reapplying"})
_THROTTLE = "reboot-throttle"
# By which part of its time a clock may be wrong, so that a holder's trust ends before its lease.
MARGIN = 0.1


class Claimed(msgspec.Struct):
    """A claim that was committed, and who made it."""

    token: str
    request: int
    node: str
    event: str
    inspection: str | None
    attempt: int
    task: Task
    at: float
    trouble: bool = False  # a BMC call of this attempt got no answer
    intent_at: float | None = None


class Checks:
    """Told of everything that happens; calls ``kernel.fail`` where it must not."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self.claims: dict[str, Claimed] = {}
        self.claim_of: dict[str, Claimed] = {}  # by node
        self.claim_by: dict[Task, Claimed] = {}
        self.offices: dict[tuple[Task, str], tuple[int, str]] = {}
        self.requests: dict[str, set[int]] = defaultdict(set)  # by node
        self.results: Counter[tuple[int, str]] = Counter()
        self.entered: Counter[str] = Counter()  # inspections into processing
        self.starting_since: dict[str, float] = {}
        self.started: dict[str, list[tuple[float, float | None]]] = defaultdict(list)  # by node: in starting
        self.attempts: Counter[int] = Counter()
        self.power_ons: dict[str, list[float]] = defaultdict(list)  # by inspection
        self.last_power_on: tuple[float, str] | None = None
        self._outlived = False  # whether the process of the last power-on was dead when it took effect
        self.excused: set[str] = set()  # inspections that may be rebooted again
        self.bmc_failed: Counter[str] = Counter()  # by inspection
        self.digests: dict[str, set[str]] = defaultdict(set)  # callbacks sent, by inspection
        self.accepted: dict[str, set[str]] = defaultdict(set)  # 202 callbacks, by inspection
        self.stored: set[str] = set()  # digests that were committed
        self.silent: set[str] = set()
        self.acknowledged: set[int] = set()
        self.latest_of: dict[Task, Commit] = {}
        self.lost_tail_at: float = -1e9
        self.lost: set[str] = set()  # inspections of which a fail-over lost something
        self.lost_nodes: set[str] = set()
        self.clock_stepped_at = -1e9
        self.term_of: dict[str, Owner] = {}
        self.tenures: dict[str, list[tuple[Tenure, Owner]]] = {}
        self.steps = 0
        self.stepped_at = 0.0
        self.takeovers = 0
        self.refused = 0
        self.aborted: set[str] = set()
        self.abort_on_its_way: set[str] = set()  # nodes

    # Commits.

    def committing(self, commit: Commit) -> None:
        """Judge a commit that is about to take effect, then write it down."""
        task = commit.task
        if task is not None:
            self.latest_of[task] = commit
            self._fences(commit, task)
        for change in commit.changes:
            if change.table == "inspection_data" and change.after is not None and change.key[1] == "plugin_data":
                self._result(change, task)
        for change in commit.changes:
            if change.table == "requests":
                self._request(change, task)
            elif change.table == "leases":
                self._lease(change, task)
        self._two_claims(commit)
        for change in commit.changes:
            if change.table == "nodes":
                self._node(change, task, commit)
            elif change.table == "inspections" and change.after is not None and change.after["digest"]:
                self.stored.add(change.after["digest"])
        self._state_has_request(commit)

    def _fences(self, commit: Commit, task: Task) -> None:
        """I3: nothing is written under a claim or an epoch that is over."""
        if task.name.startswith("worker-"):
            for change in commit.changes:
                row = change.after or change.before
                if change.table not in _UNDER_CLAIM or row is None:
                    continue
                node = row["uuid"] if change.table == "nodes" else row["node"]
                claim = self.claim_of.get(node)
                if claim is None or claim.task is not task:
                    now = "nobody" if claim is None else f"{claim.task} (attempt {claim.attempt})"
                    self._fail(
                        "I3",
                        f"{task} changed {change.table} of node {self._name(node)} without its claim, held by {now}",
                    )
            return
        if task.name.startswith("periodic/") and any(
            change.table not in ("leases", "members") for change in commit.changes
        ):
            self._in_office(task, task.name, "wrote")

    def _in_office(self, task: Task, name: str, what: str) -> None:
        held = self.offices.get((task, name))
        row = self._world.server.peek("leases", name)
        present = None if row is None or row["holder"] is None else (row["epoch"], row["term"])
        if held is None or held != present:
            mine = "none" if held is None else held[0]
            newer = "nobody leads" if present is None else f"epoch {present[0]} has been issued"
            self._fail("I3", f"{task} {what} as {name} in epoch {mine}, but {newer}")

    def _request(self, change: Changed, task: Task | None) -> None:
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
            claim = self.claims.get(before["token"])
            if claim is not None and self.claim_of.get(node) is claim:
                del self.claim_of[node]
            if claim is not None and claim.intent_at is None and claim.event == "inspect" and task is not claim.task:
                self.excused.add(claim.inspection or "")
        if after is None or not after["token"]:
            return
        claim = self.claims.get(after["token"])
        if claim is None or freed:
            claim = self._claimed(after, task)
        elif claim.event != after["event"]:  # turned into what follows, under the same claim
            claim.event, claim.attempt, claim.trouble, claim.intent_at = after["event"], after["attempt"], False, None
        if before is not None and after["progress"] != before["progress"] and "power on" in after["progress"]:
            claim.intent_at = self._kernel.now
            if self._world.scenario.settings.worker.reboot_throttle and claim.event == "inspect" and task is not None:
                self._in_office(task, _THROTTLE, "intended a power-on")

    def _claimed(self, row: dict[str, Any], task: Task | None) -> Claimed:
        assert task is not None
        node = row["node"]
        older = [number for number in self.requests[node] if number < row["id"]]
        for number in older:
            other = self._world.server.peek("requests", number)
            if other is not None and other["due_at"] <= self._world.server.clock() - 1.0 and not other["attempt"]:
                self._fail("order", f"request {row['id']} of {self._name(node)} was claimed before {number}")
        process = self._world.process_of.get(task.owner)
        asked = None if process is None else process.asked_to_stop_at
        if asked is not None and self._kernel.now > asked + 2.0 and not self._world.faults.slow_since(asked):
            self._fail("I8", f"{task} took a new request {self._kernel.now - asked:.1f} s after it was asked to stop")
        claim = Claimed(
            token=row["token"],
            request=row["id"],
            node=node,
            event=row["event"],
            inspection=row["inspection"],
            attempt=row["attempt"],
            task=task,
            at=self._kernel.now,
            intent_at=self._kernel.now if "power on" in row["progress"] else None,
        )
        self.attempts[row["id"]] += 1
        self.claims[row["token"]] = self.claim_of[node] = self.claim_by[task] = claim
        self._kernel.say(
            f"claims {row['event']} of {self._name(node)} (request {row['id']}, attempt {row['attempt']})",
            str(task),
        )
        return claim

    def _two_claims(self, commit: Commit) -> None:
        """At no time are two requests of one node claimed."""
        touched = {change.key: change.after for change in commit.changes if change.table == "requests"}
        for node in {(row or {}).get("node") for row in touched.values()} - {None}:
            claimed = []
            for number in self.requests[node]:
                row = touched[(number,)] if (number,) in touched else self._world.server.peek("requests", number)
                if row is not None and row["token"]:
                    claimed.append(number)
            if len(claimed) > 1:
                self._fail("two claims", f"requests {claimed} of node {self._name(node)} are claimed at once")

    def _lease(self, change: Changed, task: Task | None) -> None:
        before, after = change.before, change.after
        if after is None:
            return
        if before is not None and before["term"] == after["term"]:
            whose = self.term_of.get(after["term"])
            if after["renewed_at"] != before["renewed_at"] and task is not None and task.owner is not whose:
                self._fail(
                    "I3", f"{task} renewed epoch {after['epoch']} of {after['name']}, which is {whose and whose.name}'s"
                )
            return
        if before is not None:
            if after["epoch"] != before["epoch"] + 1:
                self._fail("I3", f"the epoch of {after['name']} went from {before['epoch']} to {after['epoch']}")
            self.takeovers += 1
            if before["holder"] is not None:
                self._nobody_trusts(after)
        if task is not None:
            self.offices[task, after["name"]] = (after["epoch"], after["term"])
            self.term_of[after["term"]] = task.owner
            if after["name"] == _THROTTLE:
                self._world.faults.takes_throttle(task)
            self._kernel.say(f"leads {after['name']} in epoch {after['epoch']}", str(task))

    def _node(self, change: Changed, task: Task | None, commit: Commit) -> None:
        before, after = change.before, change.after
        if before is None or after is None or before["state"] == after["state"]:
            return
        node, old, new = after["uuid"], before["state"], after["state"]
        inspection = after["inspection"]
        self._kernel.say(f"{self._name(node)}: {old} -> {new}", str(task) if task else "world")
        now = self._kernel.now
        if new == "starting":
            self.started[node].append((now, None))
        elif old == "starting" and self.started[node]:
            self.started[node][-1] = (self.started[node][-1][0], now)
        if new == "processing":
            self.entered[inspection] += 1
            if self.entered[inspection] > 1:
                self._fail("I2", f"{self._name(node)} entered processing twice in one inspection")
        machine = self._world.machines[node]
        claim = self.claim_by.get(task) if task is not None else None
        stored = next((c.after for c in commit.changes if c.table == "inspections" and c.key == (inspection,)), None)
        if stored is None or stored["state"] != new:
            self._fail("state", f"{self._name(node)} is {new}, its inspection {stored and stored['state']}")
        if (new == "finished" and old == "processing") or (
            new == "error" and old in ("starting", "waiting", "processing")
        ):
            quiet = claim is not None and (claim.trouble or machine.meddled)
            if machine.power is not Power.OFF and not quiet:
                self._fail("state", f"{self._name(node)} is {new}, but its machine was not powered off")
        if (
            new == "finished"
            and old == "processing"
            and self._world.server.peek("inspection_data", inspection, "plugin_data") is None
        ):
            self._fail("state", f"{self._name(node)} is finished, but nothing of what its hooks did is stored")
        if new == "waiting" and not self.power_ons[inspection] and machine.power is not Power.ON:
            self._fail("state", f"{self._name(node)} is waiting, but its machine was not powered on")

    def _result(self, change: Changed, task: Task | None) -> None:
        """I2: the results of a strict task are committed once, and after its state was saved."""
        claim = self.claim_by.get(task) if task is not None else None
        if claim is None:
            return
        node = self._world.server.peek("nodes", claim.node)
        wanted = {"continue": "processing", "reapply": "reapplying"}.get(claim.event)
        if node is not None and wanted is not None and node["state"] != wanted:
            self._fail(
                "I2",
                f"the results of {claim.event} of {self._name(claim.node)} are committed while its saved state "
                f"is {node['state']}, not {wanted}",
            )
        key = (claim.request, str(change.key[0]))
        self.results[key] += 1
        if claim.event == "continue" and sum(n for (_, of), n in self.results.items() if of == key[1]) > 1:
            self._fail("I2", f"two callbacks of one inspection of {self._name(claim.node)} were processed")
        if self.results[key] > 1:
            self._fail("I2", f"the results of {claim.event} of {self._name(claim.node)} were committed twice")

    def _state_has_request(self, commit: Commit) -> None:
        """A node on the move has a request that moves it: both are written together."""
        nodes = {change.key[0] for change in commit.changes if change.table == "nodes" and change.after}
        nodes |= {
            str((change.after or change.before or {})["node"])
            for change in commit.changes
            if change.table == "requests"
        }
        for node in nodes:
            row = next((c.after for c in commit.changes if c.table == "nodes" and c.key == (node,)), None)
            row = row or self._world.server.peek("nodes", node)
            if row is not None and row["state"] in _NEEDS_REQUEST and not self.requests[node]:
                self._fail("I1", f"{self._name(node)} is {row['state']}, but no request for it is left")

    def forgot(self, commits: list[Commit]) -> None:
        """A fail-over lost these: the books go back with it, and what follows from it is excused."""
        if not commits:
            return
        for commit in commits:
            for change in commit.changes:
                row = change.after or change.before
                assert row is not None
                node = row.get("node") or (row["uuid"] if change.table == "nodes" else None)
                if node is not None:
                    self.lost_nodes.add(node)
                    present = self._world.server.peek("nodes", node)
                    self.lost.update(
                        {str(row.get("inspection")), str(present and present["inspection"])}
                        | ({str(row["uuid"])} if change.table == "inspections" else set())
                    )
                if change.table == "inspection_data" and change.key[1] == "plugin_data" and change.after is not None:
                    for key in [key for key in self.results if key[1] == change.key[0]]:
                        self.results[key] -= 1
                if (
                    change.table == "nodes"
                    and change.after is not None
                    and change.before is not None
                    and change.after["state"] == "processing"
                    and change.before["state"] != "processing"
                ):
                    self.entered[change.after["inspection"]] -= 1
                if change.table == "inspections" and change.after is not None and change.after["digest"]:
                    self.stored.discard(change.after["digest"])
            if commit.sequence in self.acknowledged:
                self._world.count("answers 2xx lost by a fail-over")
                if not self._world.losing_durable:
                    self._fail("I6", f"a commit that was answered 2xx at {commit.at:.3f} was lost by a power failure")
            if commit.durable and not self._world.losing_durable:
                self._fail("I6", "the simulated database lost a durable commit in a power failure")
        if self._world.losing_durable:
            self.lost_tail_at = self._kernel.now
        self._recount()

    def _recount(self) -> None:
        self.requests.clear()
        self.claim_of.clear()
        for row in self._world.server.all("requests"):
            self.requests[row["node"]].add(row["id"])
            if row["token"] and row["token"] in self.claims:
                self.claim_of[row["node"]] = self.claims[row["token"]]
        for node in self._world.server.all("nodes"):
            if node["state"] == "starting":
                self.started[node["uuid"]].append((self._kernel.now, None))

    # Machines.

    def commanded(self, task: Task, machine: Machine, what: str, under: Claimed | None) -> None:
        """A command reaches a BMC, sent under that claim; one whose claim is over is no fault, but counted."""
        if what.startswith("get"):
            return
        claim = self.claim_of.get(machine.uuid)
        machine.meddled = claim is None or claim is not under
        machine.sent_under = under
        if machine.meddled:
            self._world.count("commands that took effect after their claim was over")
            for inspection in {claim.inspection if claim else None, self._inspection(machine.uuid)} - {None}:
                self.excused.add(str(inspection))
        elif what == "power on" and under is not None and under.event == "inspect" and under.intent_at is None:
            self._fail("intent", f"{task} powers {machine.name} on, but has recorded no intent of it")

    def powered_on(self, machine: Machine) -> None:
        """The machine was off and is on."""
        now = self._kernel.now
        claim = machine.sent_under
        if claim is None or claim.event != "inspect" or claim.inspection is None:
            return
        inspection = claim.inspection
        times = self.power_ons[inspection]
        times.append(now)
        if len(times) > 1 and inspection not in self.excused and inspection not in self.lost:
            self._fail("reboot", f"{machine.name} was powered on {len(times)} times in one inspection")
        quantum = self._world.scenario.settings.worker.reboot_throttle
        last = self.last_power_on or (-1e9, "")
        early = quantum > 0 and now - last[0] < quantum * 0.9 - 0.1
        lease = 2 * (quantum + 6.0 + 2 * self._world.scenario.settings.drivers.command_timeout)
        outlived = claim.task.owner.dead
        if early and (outlived or self._outlived):
            self._world.count("power-ons that were still on their way when their process died")
        elif early and now - self.lost_tail_at > lease:
            self._fail(
                "throttle",
                f"{machine.name} was powered on {now - last[0]:.2f} s after {last[1]}, the quantum is {quantum:g} s",
            )
        self.last_power_on = (now, machine.name)
        self._outlived = outlived

    def bmc_trouble(self, task: Task, machine: Machine) -> None:
        claim = self.claim_by.get(task)
        if claim is not None:
            claim.trouble = True
            if claim.inspection:
                self.bmc_failed[claim.inspection] += 1

    def calls_back(self, machine: Machine, digest: str) -> None:
        self.digests[self._inspection(machine.uuid) or ""].add(digest)

    def took_callback(self, machine: Machine, digest: str) -> None:
        """I6: what was answered 202 is stored."""
        inspection = self._inspection(machine.uuid)
        row = None if inspection is None else self._world.server.peek("inspections", inspection)
        if row is not None and row["digest"] == digest:
            self.accepted[row["uuid"]].add(digest)
            return
        queued = any(
            digest in request["payload"] for request in self._world.server.all("requests") if request["payload"] != "{}"
        )
        if not queued and digest not in self.stored and machine.uuid not in self.lost_nodes:
            self._fail("I6", f"the callback {digest[:6]} of {machine.name} was answered 202, but is not stored")

    # Answers.

    def answered(self, task: Task | None, status: int) -> None:
        """An api process has answered: what its 2xx rests on must be there for good."""
        if status >= 500 and status != 503:
            self._fail("I7", f"{task} answered {status}")
        commit = self.latest_of.get(task) if task is not None else None
        if 200 <= status < 300 and commit is not None:
            self.acknowledged.add(commit.sequence)

    def took_start(self, node: str, since: float) -> None:
        """I6: a start that was answered 202 has begun, or was one with another that had."""
        spans = self.started[node]
        if not any(begun <= self._kernel.now and (end is None or end >= since) for begun, end in spans):
            if node not in self.lost_nodes:
                self._fail("I6", f"a start of {self._name(node)} was answered 202, but it was never in starting")

    # Leaders and processes.

    def takes_office(self, tenure: Tenure) -> None:
        """Somebody believes to have won an election."""
        self.tenures.setdefault(tenure.lease.name, []).append((tenure, self._kernel.me().owner))

    def _nobody_trusts(self, row: dict[str, Any]) -> None:
        """A new epoch is issued: whoever had an older one must know by their own clock that it is over."""
        name = row["name"]
        alive = [(tenure, owner) for tenure, owner in self.tenures.get(name, ()) if not owner.dead and not tenure.over]
        self.tenures[name] = alive
        profile = self._world.scenario.settings.lease.numbers()
        longest = 3 * (profile.ttl + 2 * self._world.scenario.settings.worker.reboot_throttle + 20.0)
        if self._world.scenario.clock_spread > MARGIN:
            return  # a clock that is worse than the margin allows for: only fences and guards help
        if self._kernel.now - max(self.lost_tail_at, self.clock_stepped_at) < longest:
            return
        for tenure, owner in alive:
            if tenure.may_act() and tenure.lease.term != row["term"]:
                self._fail(
                    "trust",
                    f"{owner.name} still trusts epoch {tenure.lease.epoch} of {name} when {row['epoch']} is issued",
                )

    def stepped(self, said: str) -> str:
        self.steps += 1
        self.stepped_at = self._kernel.now
        return said

    def exited(self, process: SimulatedProcess) -> None:
        """I8: whoever stops when asked stops in time and holds nothing any more."""
        code = process.exit_code
        if code not in (0, 1, 69, 75):
            self._fail("thread", f"{process.owner.name} exited with {code}: one of its threads failed")
        if process.terminated_at is None or code != 0:
            return
        took = process.stopped_in
        grace = self._world.scenario.settings.worker.graceful_timeout
        troubled = self._world.troubled_since(process.host, process.terminated_at)
        if took > (grace + 5.0 if not troubled else 3 * grace):
            self._fail("I8", f"{process.owner.name} took {took:.1f} s to stop, the grace period is {grace:g} s")
        if troubled:
            return
        server = self._world.server
        member = server.peek("members", process.member)
        claims = [row["id"] for row in server.all("requests") if member and row["holder"] == process.member]
        leases = [row["name"] for row in server.all("leases") if row["holder"] == process.member]
        if claims or leases:
            self._fail("I8", f"{process.owner.name} has stopped, but still holds requests {claims}, leases {leases}")

    # The end.

    def at_rest(self) -> bool:
        """Whether every inspection has ended and nothing is left to do."""
        server = self._world.server
        return not server.all("requests") and all(
            row["state"] in ("none", "finished", "error") for row in server.all("nodes")
        )

    def finally_(self) -> None:
        """I1: everything that was accepted has ended, finished or in error for a reason of its own."""
        server = self._world.server
        scenario = self._world.scenario
        period = scenario.settings.inspector.timeout_period
        silent = self._kernel.now - self.stepped_at
        if scenario.has_timeouts and silent > period + 2 * scenario.settings.lease.numbers().ttl + 3.0:
            self._fail(
                "leader", f"the time-outs have not been looked for since {silent:.1f} s, every {period:g} s was due"
            )
        if scenario.has_gates and not any(one.open_until > self._kernel.now for one in self._world.firewalls):
            self._fail("gate", "no gate is open although nothing has been wrong for a while")
        for node in server.all("nodes"):
            if node["state"] not in ("none", "finished", "error"):
                self._fail("I1", f"{self._name(node['uuid'])} is still {node['state']}: no end in sight")
        for row in server.all("requests"):
            self._fail("I1", f"request {row['id']} ({row['event']} of {self._name(row['node'])}) is still there")
        for row in server.all("inspections"):
            if row["state"] not in ("finished", "error"):
                self._fail("I1", f"an inspection of {self._name(row['node'])} is still {row['state']}")
            elif row["state"] == "error" and row["uuid"] not in self.lost:
                self._judge(row)

    def _judge(self, row: dict[str, Any]) -> None:
        """Whether an error's reason is the inspection's own."""
        reason, uuid = row["reason"], row["uuid"]
        name = self._name(row["node"])
        if reason == "timeout":
            if self._world.scenario.settings.inspector.timeout < TIMEOUT:
                return
            if self.accepted[uuid]:
                self._fail("I1", f"an inspection of {name} timed out although its callback was accepted")
            if not self.power_ons[uuid] and uuid not in self.excused and not self.bmc_failed[uuid]:
                self._fail("I1", f"an inspection of {name} timed out without a power-on")
        elif reason == "aborted":
            if uuid not in self.aborted and row["node"] not in self.abort_on_its_way:
                self._fail("I1", f"an inspection of {name} was aborted, but nobody asked for it")
        elif reason == "conflicting-callback":
            if len(self.digests[uuid]) < 2:
                self._fail("I1", f"an inspection of {name} ended by a conflict with itself")
        elif reason in ("bmc-unreachable", "power-failed"):
            if not self.bmc_failed[uuid]:
                self._fail("I1", f"an inspection of {name} ended by {reason}, but its BMC answered always")
        elif reason == "attempts-exhausted":
            limit = self._world.scenario.settings.worker.max_attempts
            if max(self.attempts.values(), default=0) <= limit:
                self._fail("I1", f"an inspection of {name} ended by {reason} after fewer attempts")
        elif reason == "interrupted":
            if self._world.scenario.settings.worker.interrupted != "error":
                self._fail("I1", f"an inspection of {name} ended by {reason}")
        else:
            self._fail("I1", f"an inspection of {name} ended by {reason}: {row['error']}")

    # Words.

    def _inspection(self, node: str) -> str | None:
        row = self._world.server.peek("nodes", node)
        return None if row is None else row["inspection"]

    def _name(self, node: str) -> str:
        machine = self._world.machines.get(node)
        return machine.name if machine else node

    def _fail(self, rule: str, what: str) -> None:
        self._kernel.fail(rule, what)
