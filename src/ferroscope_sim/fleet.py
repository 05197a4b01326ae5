"""A simulated fleet: N machines and their ramdisks in one event loop.

It creates the machines from its settings, boots their ramdisks and keeps the totals. All methods must be called in the
event loop in which it was created; other threads may only read numbers. ``server`` offers the same over TCP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence

from ferroscope.contracts.bmc import Power
from ferroscope_sim.bodies import Bodies
from ferroscope_sim.callbacks import HttpPoster, target_of
from ferroscope_sim.client import FleetStatus, describe, latency_of
from ferroscope_sim.inventory import pxe_mac
from ferroscope_sim.machine import SimMachine
from ferroscope_sim.model import FleetSettings, SimMember, roster, spread
from ferroscope_sim.outcomes import Counters, Effect, OutcomeTally
from ferroscope_sim.ramdisk import RamdiskPlan, RamdiskRun

_LOOK_SECONDS = 0.01


class SimFleet:
    """The machines of ``settings``; ``ValueError`` if those are invalid."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        self.totals = Counters()
        self._loop = asyncio.get_running_loop()
        self._bodies = Bodies(settings)
        self._poster = HttpPoster(
            timeout=settings.request_timeout, connections=settings.connections, scale=settings.time_scale
        )
        self._runs: dict[RamdiskRun, str] = {}
        self._urls: tuple[str, ...] = ()
        self.call_back_to(settings.callback_url)
        members = roster(settings)
        self._bodies.prepare(members)
        self.machines = {member.name: self._machine(member) for member in members}

    def call_back_to(self, urls: str) -> None:
        """Send further callbacks to ``urls``, tried in turn (separated by commas)."""
        split = tuple(url.strip() for url in urls.split(",") if url.strip())
        if not split:
            raise ValueError("a fleet needs a callback URL")
        for url in split:
            target_of(url)
        self._urls = split

    def status(self, names: Collection[str] | None = None, *, log: bool = False) -> FleetStatus:
        """Return the counters of the machines in ``names`` (None: all); unknown names are ignored."""
        machines = self._select(names)
        return FleetStatus(
            time=time.time(),
            callback_url=",".join(self._urls),
            machines=len(self.machines),
            on=self._on(),
            totals=self.totals,
            latency=latency_of(self._poster.latencies),
            nodes={machine.member.name: describe(machine, log=log) for machine in machines},
        )

    def reset(self) -> None:
        """Reset every machine: off, counters at zero, and callbacks in flight are no longer counted."""
        for machine in self.machines.values():
            machine.wipe()
        self._cancel_runs()
        self._poster.latencies.clear()
        for effect in Effect:
            setattr(self.totals, effect, 0)

    async def wait_off(self, names: Collection[str] | None = None, *, timeout: float) -> bool:
        """Wait until these machines (None: all) are off and no callback is in flight; False if that timed out."""
        return await self._wait(lambda: self._quiet(names), timeout)

    async def wait_for(self, effect: Effect, at_least: int, *, timeout: float) -> bool:
        """Wait until the total of ``effect`` has reached ``at_least``; False if that timed out."""
        return await self._wait(lambda: getattr(self.totals, effect) >= at_least, timeout)

    async def close(self) -> None:
        """Power off every machine and close all connections."""
        for machine in self.machines.values():
            machine.wipe()
        tasks = [run.task for run in self._runs if run.task is not None]
        self._cancel_runs()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._poster.close()

    def _machine(self, member: SimMember) -> SimMachine:
        lag = member.outcome.follows_after
        return SimMachine(
            member,
            OutcomeTally(self.totals, clock=time.time),
            later=self._loop.call_later,
            start=self._boot,
            lag=None if lag is None else lag * self.settings.time_scale,
            reset_lag=member.outcome.resets_after * self.settings.time_scale,
        )

    def _boot(self, machine: SimMachine) -> RamdiskRun:
        member = machine.member
        run = RamdiskRun(
            RamdiskPlan(
                boot=self._boot_delay(machine),
                bodies=self._bodies.of(member, machine.tally.counters.pxe_boots),
                delivery=member.outcome.delivery,
                scale=self.settings.time_scale,
                script=self._script(member),
            ),
            self._urls,
            self._poster,
            machine.tally,
            on_end=self._forget_run,
        )
        self._runs[run] = member.name
        return run.start()

    def _script(self, member: SimMember) -> str:
        """Return the URL at which the boot host's script finds the machine's own one, "" for none."""
        url = self.settings.boot_script_url
        return f"{url}?mac={pxe_mac(member.number)}" if url else ""

    def _boot_delay(self, machine: SimMachine) -> float:
        settings, name = self.settings, machine.member.name
        boot = machine.tally.counters.pxe_boots
        delay = spread(settings.boot_delay, settings.boot_jitter, settings.seed, name, "boot", boot)
        return delay * machine.member.outcome.boot_factor

    def _forget_run(self, run: RamdiskRun) -> None:
        self._runs.pop(run, None)

    def _cancel_runs(self) -> None:
        for run in list(self._runs):
            if run.task is not None:
                run.task.cancel()
        self._runs.clear()

    def _select(self, names: Collection[str] | None) -> Sequence[SimMachine]:
        if names is None:
            return list(self.machines.values())
        return [self.machines[name] for name in names if name in self.machines]

    def _on(self) -> int:
        return self.totals.power_ons - self.totals.power_offs

    def _quiet(self, names: Collection[str] | None) -> bool:
        if names is None:
            return self._on() == 0 and not self._runs
        off = all(machine.power is Power.OFF for machine in self._select(names))
        return off and not set(names).intersection(self._runs.values())

    async def _wait(self, reached: Callable[[], bool], timeout: float) -> bool:
        end = self._loop.time() + timeout
        while not reached():
            if self._loop.time() >= end:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True
