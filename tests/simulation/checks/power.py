"""Commands to BMCs and what came of them: a machine boots once, and power-ons keep the throttle's quantum."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.simulation.checks.claims import Claimed, Claims
from tests.simulation.checks.losses import Losses
from tests.simulation.kernel import Task

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import World


class PowerControl:
    """``power_ons`` are their times, ``unanswered`` how many BMC calls got no answer: both by inspection."""

    def __init__(self, world: World, claims: Claims, losses: Losses) -> None:
        self._world = world
        self._kernel = world.kernel
        self._fail = world.kernel.fail
        self._claims = claims
        self._losses = losses
        self.power_ons: dict[str, list[float]] = defaultdict(list)
        self.unanswered: Counter[str] = Counter()
        self._last_power_on: tuple[float, str] | None = None
        self._outlived = False  # whether the process of the last power-on was dead when it took effect

    def commanded(self, task: Task, machine: Machine, what: str, under: Claimed | None) -> None:
        """A command reaches a BMC, sent under that claim; one whose claim is over is no fault, but counted."""
        if what.startswith("get"):
            return
        claim = self._claims.by_node.get(machine.uuid)
        machine.meddled = claim is None or claim is not under
        machine.sent_under = under
        if machine.meddled:
            self._world.count("commands that took effect after their claim was over")
            present = self._world.inspection_of(machine.uuid)
            for inspection in {claim.inspection if claim else None, present} - {None}:
                self._claims.excused.add(str(inspection))
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
        excused = inspection in self._claims.excused or inspection in self._losses.inspections
        if len(times) > 1 and not excused:
            self._fail("reboot", f"{machine.name} was powered on {len(times)} times in one inspection")
        self._throttled(machine, claim, now)

    def _throttled(self, machine: Machine, claim: Claimed, now: float) -> None:
        """Between two power-ons is the throttle's quantum."""
        settings = self._world.scenario.settings
        quantum = settings.worker.reboot_throttle
        last = self._last_power_on or (-1e9, "")
        early = quantum > 0 and now - last[0] < quantum * 0.9 - 0.1
        lease = 2 * (quantum + 6.0 + 2 * settings.drivers.command_timeout)
        outlived = claim.task.owner.dead
        if early and (outlived or self._outlived):
            self._world.count("power-ons that were still on their way when their process died")
        elif early and now - self._losses.tail_at > lease:
            self._fail(
                "throttle",
                f"{machine.name} was powered on {now - last[0]:.2f} s after {last[1]}, the quantum is {quantum:g} s",
            )
        self._last_power_on = (now, machine.name)
        self._outlived = outlived

    def no_answer(self, task: Task) -> None:
        """A BMC call of this task got no answer."""
        claim = self._claims.by_task.get(task)
        if claim is not None:
            claim.trouble = True
            if claim.inspection:
                self.unanswered[claim.inspection] += 1
