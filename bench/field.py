"""The load process: a simulated fleet and its operator in one event loop.

Run as ``python -m bench.field PLAN``. One process and one loop for both keep the cost of measuring low, and it is
known.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import msgspec
import structlog

from bench.burst import burst
from bench.client import Api
from bench.crowd import Crowd, CrowdDriver
from bench.driver import Driver
from bench.load_process import serve_async
from bench.quantiles import Spread
from bench.verify import verify
from ferroscope_sim.client import FleetClient
from ferroscope_sim.enroll import enroll
from ferroscope_sim.fleet import SimFleet
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import serve
from ferroscope_sim.server import BmcAddresses

# One BMC's answer in a hundred takes 3.2 times the median, one in a thousand 4.7 times.
_SIGMA: Final = 0.5
_VERIFIED_SECONDS: Final = 600.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the field is. ``size``: bytes of an inventory; ``boot`` and ``jitter``: seconds of booting.

    ``bmc`` is the median of the BMCs' answers, which are log-normal; ``dead`` and ``flapping`` are shares of the nodes
    whose BMCs fail from ``spoil`` on, and ``special`` further machines by name.
    """

    url: str = ""
    nodes: int = 200
    first: int = 1
    size: int = 40_000
    boot: float = 0.02
    jitter: float = 0.02
    bmc: float = 0.0
    dead: float = 0.0
    flapping: float = 0.0
    special: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Some inspections; ``callbacks``: what the ramdisks saw, in milliseconds."""

    inspections: int
    seconds: float
    callbacks: Spread
    unfinished: list[str]


class Field:
    """The fleet and its operator."""

    def __init__(self, plan: Plan, fleet: SimFleet, places: BmcAddresses) -> None:
        self._plan = plan
        self._fleet = fleet
        self._places = places
        self._api = Api(plan.url)
        self._uuids: dict[str, str] = {}

    async def enrol(self) -> dict[str, str]:
        """Enrol the fleet through the API; return why nodes could not be enrolled, by name."""
        members = roster(self._fleet.settings)
        done = await asyncio.to_thread(
            enroll, members, api_url=self._plan.url, sim_address=self._places.bmcs, wait=_VERIFIED_SECONDS
        )
        nodes = await self._api.nodes("uuid,name")
        self._uuids = {node["name"]: node["uuid"] for node in nodes if node["name"] in self._fleet.machines}
        return done.failed

    async def run(self, concurrency: int) -> Run:
        """Inspect every machine once."""
        self._fleet.reset()
        began = time.monotonic()
        names = [name for name, machine in self._fleet.machines.items() if machine.member.outcome.calls_back]
        states = await Driver(self._api, self._fleet, self._uuids).run(names, concurrency)
        seconds = time.monotonic() - began
        latency = self._fleet.status((), log=False).latency
        return Run(
            inspections=len(states),
            seconds=seconds,
            callbacks=Spread(latency.count, latency.p50 * 1000, latency.p99 * 1000, latency.max * 1000),
            unfinished=[f"{name}: {state}" for name, state in states.items() if state != "manageable"],
        )

    async def burst(self) -> list[float]:
        """Let the machines that do not call back by themselves do so at once; return the seconds of each callback."""
        self._fleet.reset()
        return await burst(self._plan.url, self._fleet, self._uuids)

    async def spoil(self) -> None:
        """Let the BMCs be what they are from now on: slow, dead, flapping."""

        def tell() -> None:
            with FleetClient(self._places.control) as client:
                client.faults(on=True)

        await asyncio.to_thread(tell)

    async def crowd(self, patience: float, others: float) -> Crowd:
        """Inspect every machine once, all of them at once."""
        self._fleet.reset()
        return await CrowdDriver(self._api, self._fleet, self._uuids).run(patience, others)

    async def verify(self) -> list[str]:
        """Return what is wrong after a run."""
        return await verify(self._api, self._fleet, self._uuids)

    async def uuids(self) -> list[str]:
        return list(self._uuids.values())


async def main(plan: Plan) -> None:
    """Run the fleet; carry out commands until the input ends."""
    stop = asyncio.Event()
    ready: asyncio.Future[tuple[SimFleet, BmcAddresses]] = asyncio.get_running_loop().create_future()
    settings = FleetSettings(
        nodes=plan.nodes,
        first=plan.first,
        callback_url=f"{plan.url}/v1/continue_inspection",
        inventory_size=plan.size,
        boot_delay=plan.boot,
        boot_jitter=plan.jitter,
        bmc_delay=plan.bmc,
        bmc_sigma=_SIGMA if plan.bmc else 0.0,
        bmc_faults=False,
        dead=plan.dead,
        flapping=plan.flapping,
        special=plan.special,
        connections=256,
    )
    serving = asyncio.create_task(serve(settings, stop, lambda fleet, places: ready.set_result((fleet, places))))
    serving.add_done_callback(
        lambda done: None if ready.done() else ready.set_exception(done.exception() or EOFError())
    )
    field = Field(plan, *await ready)
    verbs = (field.enrol, field.run, field.burst, field.spoil, field.crowd, field.verify, field.uuids)
    await serve_async(**{verb.__name__: verb for verb in verbs})
    stop.set()
    await serving


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
