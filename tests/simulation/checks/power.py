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
        self._late = False  # whether the last power-on took effect when its sender was dead or had given up

    def commanded(self, task: Task, machine: Machine, what: str, under: Claimed | None) -> None:
        """A command reaches a BMC, sent under that claim; if the claim is over, that is counted, but no violation."""
        if what.startswith("get"):
            return
        claim = self._claims.by_node.get(machine.uuid)
        machine.meddled = claim is None or claim is not under
        machine.sent_under = under
        if machine.meddled:
            self._meddled_with(machine)
        elif under is not None and under.event == "inspect":
            self._starting(task, machine, what, under)

    def _starting(self, task: Task, machine: Machine, what: str, claim: Claimed) -> None:
        """A start powers a machine off before it intends to power it on; what comes later takes a failed start back."""
        given_up = claim.attempt >= self._world.scenario.settings.worker.max_attempts
        if what == "power off" and claim.intent_at is not None and given_up:
            claim.undoing = True
        elif what == "power on" and claim.intent_at is None:
            if not (given_up and claim.was_on):
                self._fail("intent", f"{task} powers {machine.name} on, but has recorded no intent of it")
            claim.undoing = True

    def _meddled_with(self, machine: Machine) -> None:
        """Excuse the inspections at hand: a worker whose claim is over has changed the machine's power."""
        self._world.count("commands that took effect after their claim was over")
        claim, present = self._claims.by_node.get(machine.uuid), self._world.inspection_of(machine.uuid)
        for inspection in {claim.inspection if claim else None, present} - {None}:
            self._claims.excused.add(str(inspection))

    def _has_left(self, claim: Claimed) -> bool:
        """Whether the process with the claim is dead or stopping, and so could not wait for the machine to follow."""
        process = self._world.process_of.get(claim.task.owner)
        return claim.task.owner.dead or (process is not None and process.terminated_at is not None)

    def powered_on(self, machine: Machine) -> None:
        """The machine was off and is on."""
        now = self._kernel.now
        claim = machine.sent_under
        if claim is not None and self._claims.by_node.get(machine.uuid) is not claim and self._has_left(claim):
            self._meddled_with(machine)  # it took the command in time, and followed it too late
        if claim is None or claim.event != "inspect" or claim.inspection is None:
            return
        if claim.undoing:
            self._world.count("machines that a failed start has left on, as before")
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
        # No fence reaches a BMC: a command that is delivered after its sender died or gave up cannot be held back.
        late = claim.task.owner.dead or machine.late
        if early and (late or self._late):
            self._world.count("power-ons that were delivered after their sender died or gave up")
        elif early and now - self._losses.tail_at > lease:
            self._fail(
                "throttle",
                f"{machine.name} was powered on {now - last[0]:.2f} s after {last[1]}, the quantum is {quantum:g} s",
            )
        self._last_power_on = (now, machine.name)
        self._late = late

    def no_answer(self, task: Task) -> None:
        """A BMC call of this task got no answer."""
        claim = self._claims.by_task.get(task)
        if claim is not None:
            claim.trouble = True
            if claim.inspection:
                self.unanswered[claim.inspection] += 1
