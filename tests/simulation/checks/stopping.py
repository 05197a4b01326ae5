"""I8: a process that is asked to stop takes no new request, stops in time, and holds nothing afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.kernel import Task

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedProcess
    from tests.simulation.world import World


class Stopping:
    """A process has the grace period to stop, and longer if a fault delayed it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self._fail = world.kernel.fail

    def takes_request(self, task: Task) -> None:
        process = self._world.process_of.get(task.owner)
        if process is None or process.terminated_at is None:
            return
        asked, now = process.terminated_at, self._kernel.now
        if now > asked + 2.0 and not self._world.faults.slow_since(process, asked):
            self._fail("I8", f"{task} took a new request {now - asked:.1f} s after it was asked to stop")

    def exited(self, process: SimulatedProcess) -> None:
        code = process.exit_code
        if code not in (0, 1, 69, 75):
            self._fail("thread", f"{process.owner.name} exited with {code}: one of its threads failed")
        if process.terminated_at is None or code != 0:
            return
        took = process.stopped_in
        grace = self._world.scenario.settings.worker.graceful_timeout
        troubled = self._world.faults.slow_since(process, process.terminated_at)
        if took > (grace + 5.0 if not troubled else 3 * grace):
            self._fail("I8", f"{process.owner.name} took {took:.1f} s to stop, the grace period is {grace:g} s")
        if troubled:
            return
        server = self._world.server
        member = server.peek("members", process.member)
        stays = member is not None and member["left_at"] is None  # what a member held that has left is free
        claims = [row["id"] for row in server.all("requests") if stays and row["holder"] == process.member]
        leases = [row["name"] for row in server.all("leases") if row["holder"] == process.member]
        if claims or leases:
            self._fail("I8", f"{process.owner.name} has stopped, but still holds requests {claims}, leases {leases}")
