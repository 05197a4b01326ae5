"""The states of nodes: I2, no strict transition takes effect twice, and what a state says of its machine is so."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ferroscope.contracts.bmc import Power
from tests.simulation.checks.claims import Claims
from tests.simulation.checks.power import PowerControl
from tests.simulation.database.commits import Changed, Commit
from tests.simulation.kernel import Task

if TYPE_CHECKING:
    from tests.simulation.world import World

_NEEDS_REQUEST = frozenset({"starting", "processing", "reapplying"})


class States:
    """Counts results and entries into processing, and keeps the times in which nodes were starting."""

    def __init__(self, world: World, claims: Claims, power: PowerControl) -> None:
        self._world = world
        self._kernel = world.kernel
        self._fail = world.kernel.fail
        self._claims = claims
        self._power = power
        self._results: Counter[tuple[int, str]] = Counter()  # by request and inspection
        self._entered: Counter[str] = Counter()  # inspections into processing
        self._lost: set[str] = set()  # inspections whose saved state a fail-over has lost
        self._starting: dict[str, list[tuple[float, float | None]]] = defaultdict(list)  # by node: from, until

    def results(self, commit: Commit) -> None:
        """I2: the results of a strict task are committed once, and after its state was saved."""
        for change in commit.changes:
            if change.table == "inspection_data" and change.after is not None and change.key[1] == "plugin_data":
                self._result(change, commit.task)

    def _result(self, change: Changed, task: Task | None) -> None:
        claim = self._claims.by_task.get(task) if task is not None else None
        if claim is None:
            return
        node, name = self._world.server.peek("nodes", claim.node), self._world.name_of(claim.node)
        wanted = {"continue": "processing", "reapply": "reapplying"}.get(claim.event)
        # If a fail-over lost the saved state but not the claim, the results are committed together with that state.
        unsaved = node is not None and node["inspection"] in self._lost
        if node is not None and wanted is not None and node["state"] != wanted and not unsaved:
            self._fail(
                "I2",
                f"the results of {claim.event} of {name} are committed while its saved state "
                f"is {node['state']}, not {wanted}",
            )
        key = (claim.request, str(change.key[0]))
        self._results[key] += 1
        if claim.event == "continue" and sum(n for (_, of), n in self._results.items() if of == key[1]) > 1:
            self._fail("I2", f"two callbacks of one inspection of {name} were processed")
        if self._results[key] > 1:
            self._fail("I2", f"the results of {claim.event} of {name} were committed twice")

    def nodes(self, commit: Commit) -> None:
        for change in commit.changes:
            if change.table == "nodes":
                self._node(change, commit)
        self._has_request(commit)

    def _node(self, change: Changed, commit: Commit) -> None:
        before, after, task = change.before, change.after, commit.task
        if before is None or after is None or before["state"] == after["state"]:
            return
        node, old, new = after["uuid"], before["state"], after["state"]
        inspection, name = after["inspection"], self._world.name_of(node)
        self._kernel.say(f"{name}: {old} -> {new}", str(task) if task else "world")
        now = self._kernel.now
        if new == "starting":
            self._starting[node].append((now, None))
        elif old == "starting" and self._starting[node]:
            self._starting[node][-1] = (self._starting[node][-1][0], now)
        if new in ("processing", "reapplying"):
            self._lost.discard(inspection)
        if new == "processing":
            self._entered[inspection] += 1
            if self._entered[inspection] > 1:
                self._fail("I2", f"{name} entered processing twice in one inspection")
        stored = next((c.after for c in commit.changes if c.table == "inspections" and c.key == (inspection,)), None)
        if stored is None or stored["state"] != new:
            self._fail("state", f"{name} is {new}, its inspection {stored and stored['state']}")
        self._means(after, old, task)

    def _means(self, node: dict[str, Any], old: str, task: Task | None) -> None:
        """Whether what the node's new state says has been done."""
        new, inspection, name = node["state"], node["inspection"], self._world.name_of(node["uuid"])
        machine = self._world.machines.get(node["uuid"])
        if machine is None:
            return  # a cluster's, which nobody inspects
        claim = self._claims.by_task.get(task) if task is not None else None
        done = new == "finished" and old == "processing"
        if done or (new == "error" and old in ("starting", "waiting", "processing")):
            poisoned = machine.number < self._world.scenario.poisoned
            quiet = poisoned or (claim is not None and (claim.trouble or machine.meddled))
            wanted = Power.OFF if claim is None or claim.event != "inspect" else claim.left
            if not quiet and wanted not in (None, machine.power):
                self._fail("state", f"{name} is {new}, but its machine is {machine.power}, not {wanted}")
        if done and self._world.server.peek("inspection_data", inspection, "plugin_data") is None:
            self._fail("state", f"{name} is finished, but nothing of what its hooks did is stored")
        if new == "waiting" and not self._power.power_ons[inspection] and machine.power is not Power.ON:
            self._fail("state", f"{name} is waiting, but its machine was not powered on")

    def _has_request(self, commit: Commit) -> None:
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
            if row is not None and row["state"] in _NEEDS_REQUEST and not self._claims.requests[node]:
                self._fail("I1", f"{self._world.name_of(node)} is {row['state']}, but no request for it is left")

    def was_starting(self, node: str, since: float) -> bool:
        """Whether the node has been in starting at some time since then."""
        return any(begun <= self._kernel.now and (end is None or end >= since) for begun, end in self._starting[node])

    def take_back(self, change: Changed) -> None:
        """A fail-over has lost this change."""
        before, after = change.before, change.after
        if after is None:
            return
        if change.table == "inspection_data" and change.key[1] == "plugin_data":
            for key in [key for key in self._results if key[1] == change.key[0]]:
                self._results[key] -= 1
        if change.table == "nodes" and before is not None and before["state"] != after["state"]:
            if after["state"] in ("processing", "reapplying"):
                self._lost.add(after["inspection"])
            if after["state"] == "processing":
                self._entered[after["inspection"]] -= 1

    def recount(self) -> None:
        """Whoever is in starting after a fail-over is so since now."""
        for node in self._world.server.all("nodes"):
            if node["state"] == "starting":
                self._starting[node["uuid"]].append((self._kernel.now, None))
