"""Whether people are told: of a node that has failed and is not failed over, and of a machine that we have left off.

``told``: within ten minutes of the failure, or of what has happened in the story since. ``waits``: a node of which
nothing is wrong but that it has failed is failed over in time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from tests.simulation.kubernetes.cluster import Cluster
    from tests.simulation.kubernetes.machines import Machine

# Seconds.
_LOOK: Final = 5.0
TELL_SECONDS: Final = 600.0
# Until a node is marked, its reason is settled, and a heartbeat has published it.
_SLACK: Final = 150.0
FAIL_OVER_SECONDS: Final = 300.0
_REST: Final = 20.0
_FORBIDDEN: Final = 150.0  # for which it is watched whether a prohibition is kept
# So often may one machine be powered off before people are called.
MAX_POWER_OFFS: Final = 10
# Events that say what is done. All others that warn call for people.
_PROGRESS: Final = frozenset(
    f"Failover{what}"
    for what in ("Failed", "PowerOff", "Proven", "Forcing", "Tainted", "WithoutProof", "WasAlive", "Rebooted")
)


class Telling:
    """Looks every few seconds. Times are those of the simulation.

    ``acted_at``: when something has happened last that may change what is to be said. ``expected``: the nodes that
    have to be failed over, and since when nothing speaks against it. ``wished``: those that an operator has taken out
    of the fail-over, which is shown wherever it was set. ``flapping``: machines that fail after each boot.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kernel = cluster.kernel
        self.acted_at = 0.0
        self.expected: dict[str, float] = {}
        self.wished: set[str] = set()
        self.flapping: set[Machine] = set()
        self._ended = False
        self._settled_since = 1e9

    def expect(self, name: str) -> None:
        """From now on nothing speaks against the fail-over of this node."""
        self.expected[name] = self._kernel.now

    def watch(self) -> None:
        """Look from now on."""
        self._kernel.at(_LOOK, self._look)

    def _look(self) -> None:
        if self._ended:
            return
        self._kernel.at(_LOOK, self._look)
        now = self._kernel.now
        for name, since in self._failed().items():
            if (begun := self.expected.get(name)) is not None and now - max(since, begun) > self._longest:
                self._fail(
                    "waits", f"{name} was not failed over, although nothing speaks against it: {self._says(name)}"
                )
            if now - max(since, self.acted_at) > TELL_SECONDS + _SLACK and not self.is_node_told(name):
                self._fail("told", f"{name} was not failed over, and nobody was told: {self._says(name)}")
        for machine in self._left_off():
            if now - max(machine.off_since, self.acted_at) > TELL_SECONDS + _SLACK and not self.is_told(machine):
                self._fail("told", f"{machine.name} was left off, and nobody was told: {self._problems()}")
        for machine in self.flapping:
            often = len(machine.cut_off_at) > MAX_POWER_OFFS
            if often and not self.is_node_told(machine.node):
                self._fail(
                    "told", f"{machine.name} was powered off {len(machine.cut_off_at)} times, and nobody was told"
                )
        self._settled_since = min(self._settled_since, now) if self._is_calm() else 1e9

    @property
    def _longest(self) -> float:
        """Seconds in which a node has to be failed over."""
        return FAIL_OVER_SECONDS * (2 if self._cluster.api_delay[1] else 1)

    def _fail(self, rule: Any, what: str) -> None:
        if rule not in self._cluster.scenario.blind:
            self._kernel.fail(rule, what)

    def is_settled(self) -> bool:
        """Whether nothing is left that must be failed over or told, and that for a moment."""
        watched = _FORBIDDEN if any(self._cluster.check.forbidden.values()) else 0.0
        return self._kernel.now > max(self._settled_since + _REST, self.acted_at + max(60.0, watched))

    def _is_calm(self) -> bool:
        failed = self._failed()
        told = all(self.is_node_told(one) for one in failed if one not in self.expected)
        return told and not failed.keys() & self.expected.keys() and all(map(self.is_told, self._left_off()))

    def end(self) -> None:
        """The story is over: count what has become of it."""
        self._ended = True
        count = self._cluster.world.count
        for name in self._cluster.not_ready_since:
            over, wished = self.is_failed_over(name), name in self.wished
            count(f"nodes that failed: {'failed over' if over else 'left alone as wished' if wished else 'told'}")
        for _ in self._left_off():
            count("machines left off: told")

    # What is true.

    def _failed(self) -> dict[str, float]:
        """Return the nodes that have failed, and since when, and are not failed over."""
        nodes = self._cluster.not_ready_since
        return {one: since for one, since in nodes.items() if one not in self.wished and not self.is_failed_over(one)}

    def is_failed_over(self, name: str) -> bool:
        """Whether the node's pods are free, or it has none."""
        if not self._cluster.pods_on(name):
            return True
        since = self._cluster.not_ready_since.get(name, self._kernel.now)
        latest = self._record(name)
        clock = self._cluster.world.server.clock() - self._kernel.now
        return any(one["what"] == "evacuated" and one["at"] > since + clock for one in (latest or {}).get("log", ()))

    def _left_off(self) -> list[Machine]:
        return [one for one in self._cluster.machines if one.switched_off_by_us and not one.on and not one.crossed]

    # What is said.

    def _record(self, name: str) -> dict[str, Any] | None:
        return next((one for one in reversed(self._cluster.check.records) if one["node"] == name), None)

    def _says(self, name: str) -> str:
        record = self._record(name)
        said = "it has no record" if record is None else f"{record['phase']}, {record['reason']}: {record['message']}"
        return f"{said}; {self._problems()}"

    def is_node_told(self, name: str) -> bool:
        """Whether people are told of a node that has failed: by its record, an Event, or the service's status."""
        record = self._record(name)
        if record is not None and not record["ended"] and (record.get("escalated") or record.get("left_off")):
            return True
        since = self._cluster.not_ready_since.get(name, 0.0)
        calls = [one for at, one in self._cluster.api.events if at >= since and one["type"] == "Warning"]
        if any(one["involvedObject"]["name"] == name and one["reason"] not in _PROGRESS for one in calls):
            return True
        return self._is_named(name)

    def is_told(self, machine: Machine) -> bool:
        """Whether the service's status names this machine, or the node for which it was powered off."""
        return self._is_named(machine.name, machine.uuid, self._cluster.check.off_for.get(machine, machine.name))

    def _is_named(self, *names: str) -> bool:
        """Whether a problem names one of these, or no node and no machine at all: then it is about the cluster."""
        everything = [one for machine in self._cluster.machines for one in (machine.name, machine.uuid, machine.node)]
        for problem in self._problems():
            present = [one for one in everything if one and re.search(rf"\b{re.escape(one)}\b", problem)]
            if not present or set(names) & set(present) or "more)" in problem:
                return True
        return False

    def _problems(self) -> list[str]:
        """Return what members of this cluster publish as problems."""
        own = {one.member for one in self._cluster.world.running if one.host in self._cluster.hosts}
        rows = [row for row in self._cluster.world.server.all("members") if row["id"] in own]
        problems = [one for row in rows for one in msgspec.json.decode(row["detail"] or "{}").get("problems", ())]
        return [str(one["summary"]) for one in problems if one["code"].startswith("failover")]
