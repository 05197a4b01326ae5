"""Operators: they start inspections, sometimes twice at once, restart, abort, reapply, and switch machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import World

_RESTING = ("none", "finished", "error")


class Operator:
    """Looks after one node for as long as the scenario is active."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world = world
        self._machine = machine
        self._rng = world.kernel.rng(f"operator {machine.number}")
        self._restarts = world.kernel.rng(f"restarts {machine.number}")
        self._path = f"/v1/nodes/{machine.uuid}/states"

    def work(self) -> None:
        scenario, kernel = self._world.scenario, self._world.kernel
        for _ in range(scenario.rounds):
            kernel.sleep(self._rng.uniform(0.0, scenario.active / (scenario.rounds + 1)))
            if kernel.now > scenario.active:
                return
            if self._rng.random() < scenario.commands:
                self._put("power", self._rng.choice(("power on", "power off", "rebooting")))
                kernel.sleep(self._rng.uniform(0.0, 5.0))
            self._inspect()
            if self._restarts.random() < scenario.restarts:
                self._restart()
            if self._rng.random() < scenario.aborts:
                kernel.sleep(self._rng.choice((0.1, 5.0, 20.0)) * self._rng.random())
                self._abort()
            self._rest()
            if self._rng.random() < scenario.reapplies:
                self._reapply()
                self._rest()

    def _inspect(self) -> None:
        if self._rng.random() < self._world.scenario.double_starts:
            self._world.spawn(f"operator {self._machine.name} (twice)", self._start)
        self._start()

    def _start(self) -> None:
        """Ask until there is an answer that is one."""
        for _ in range(8):
            since = self._world.kernel.now
            status = self._put("provision", "inspect")
            if status == 202:
                self._world.count("starts accepted")
                self._world.checks.answers.took_start(self._machine.uuid, since)
            if status not in (None, 503):
                return
            self._world.kernel.sleep(self._rng.uniform(0.5, 4.0))

    def _restart(self) -> None:
        """Lose patience while the machine is awaited, perhaps also with an abort that has not taken effect yet."""
        world, kernel, ending = self._world, self._world.kernel, self._world.checks.ending
        for _ in range(40):
            row = world.server.peek("nodes", self._machine.uuid)
            if row is not None and row["state"] == "waiting":
                break
            kernel.sleep(0.5)
        kernel.sleep(self._restarts.choice((0.1, 3.0, 12.0)) * self._restarts.random())
        if self._restarts.random() < 0.5:
            self._abort()
        since, inspection = kernel.now, world.inspection_of(self._machine.uuid)
        answer = world.http("POST", f"/v1/introspection/{self._machine.uuid}", b"")
        world.say(f"restarts: {answer.status if answer else 'no answer'}", f"operator {self._machine.name}")
        ending.restarted |= {str(inspection), str(world.inspection_of(self._machine.uuid))}
        if answer is None:
            ending.restart_on_its_way.add(self._machine.uuid)
        elif answer.status == 202:
            world.count("restarts accepted")
            world.checks.answers.took_start(self._machine.uuid, since)

    def _abort(self) -> None:
        before = self._world.server.peek("nodes", self._machine.uuid)
        if before is not None and before["inspection"]:
            self._world.checks.ending.aborted.add(before["inspection"])
        if self._put("provision", "abort") is None:  # it may still be on its way, and meet a later inspection
            self._world.checks.ending.abort_on_its_way.add(self._machine.uuid)
        after = self._world.server.peek("nodes", self._machine.uuid)
        if after is not None and after["inspection"]:
            self._world.checks.ending.aborted.add(after["inspection"])

    def _reapply(self) -> None:
        path = f"/v1/introspection/{self._machine.uuid}/data/unprocessed"
        answer = self._world.http("POST", path, b"")
        self._world.say(
            f"asks for reapply: {answer.status if answer else 'no answer'}", f"operator {self._machine.name}"
        )

    def _put(self, what: str, target: str) -> int | None:
        answer = self._world.http("PUT", f"{self._path}/{what}", msgspec.json.encode({"target": target}))
        status = None if answer is None else answer.status
        self._world.say(f"asks for {target}: {status or 'no answer'}", f"operator {self._machine.name}")
        return status

    def _rest(self) -> None:
        """Wait until the node's inspection is over, or until nobody cares any more."""
        kernel, claims = self._world.kernel, self._world.checks.claims
        while kernel.now < self._world.scenario.active:
            row = self._world.server.peek("nodes", self._machine.uuid)
            if row is not None and row["state"] in _RESTING and not claims.requests[self._machine.uuid]:
                return
            kernel.sleep(self._rng.uniform(0.5, 3.0))
