"""The load process: a simulated fleet and its operator in one event loop.

Run as ``python -m bench.field``; it is told what to do by JSON lines on its standard input and
answers each with one. One process and one loop for both keep the cost of measuring low, and it is known.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from bench.burst import burst
from bench.client import Api
from bench.crowd import Crowd, CrowdDriver
from bench.driver import Driver, Flight
from bench.quantiles import Spread, slice_rates, spread
from bench.verify import verify
from ferroscope_sim.client import FleetClient
from ferroscope_sim.enroll import enroll
from ferroscope_sim.fleet import Fleet
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import serve
from ferroscope_sim.server import Addresses

# One BMC's answer in a hundred takes 3.2 times the median, one in a thousand 4.7 times.
_SIGMA: Final = 0.5
_VERIFIED: Final = 600.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the field is, told in its first line. ``size``: bytes of an inventory; ``boot``: seconds.

    ``bmc`` is the median of the BMCs' answers, which are log-normal; ``dead`` and ``flapping`` are shares of the nodes
    whose BMCs fail from ``spoil`` on, and ``special`` further machines by name.
    """

    url: str
    nodes: int
    first: int = 1
    size: int = 40_000
    boot: float = 0.02
    jitter: float = 0.02
    bmc: float = 0.0
    dead: float = 0.0
    flapping: float = 0.0
    special: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Some inspections; distributions in milliseconds.

    ``callbacks`` is what the ramdisks saw, ``starts`` what the operator saw of the PUT, ``whole``
    from that PUT to ``manageable``. ``slices`` are inspections per second in tenths of the run.
    """

    inspections: int
    seconds: float
    slices: list[float]
    callbacks: Spread
    starts: Spread
    whole: Spread
    looks: float
    unfinished: list[str]


class Field:
    """The fleet and its operator."""

    def __init__(self, plan: Plan, fleet: Fleet, places: Addresses) -> None:
        self._plan = plan
        self._fleet = fleet
        self._places = places
        self._api = Api(plan.url)
        self._uuids: dict[str, str] = {}

    async def enrol(self) -> dict[str, Any]:
        """Enrol the fleet through the API; answer with seconds, and what failed."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        members = roster(self._fleet.settings)
        done = await asyncio.to_thread(
            enroll, members, api_url=self._plan.url, sim_address=self._places.bmcs, wait=_VERIFIED
        )
        seconds = loop.time() - began
        await self.find()
        return {"seconds": seconds, "failed": done.failed}

    async def find(self) -> dict[str, Any]:
        """Learn the UUIDs of the fleet's nodes, which somebody enrolled."""
        nodes = await self._api.nodes("uuid,name")
        self._uuids = {node["name"]: node["uuid"] for node in nodes if node["name"] in self._fleet.machines}
        return {"found": len(self._uuids)}

    async def run(self, concurrency: int) -> Run:
        """Inspect every machine once."""
        self._fleet.reset()
        began = asyncio.get_running_loop().time()
        names = [name for name, machine in self._fleet.machines.items() if machine.member.outcome.calls_back]
        flights = await Driver(self._api, self._fleet, self._uuids).run(names, concurrency)
        return self._summary(began, flights)

    async def burst(self) -> list[float]:
        """Let the machines that do not call back by themselves do so at once; return the seconds of each callback."""
        self._fleet.reset()
        return await burst(self._plan.url, self._fleet, self._uuids)

    async def spoil(self) -> dict[str, Any]:
        """Let the BMCs be what they are from now on: slow, dead, flapping."""

        def told() -> None:
            with FleetClient(self._places.control) as client:
                client.faults(on=True)

        await asyncio.to_thread(told)
        return {}

    async def crowd(self, patience: float, others: float) -> Crowd:
        """Inspect every machine once, all of them at once."""
        self._fleet.reset()
        return await CrowdDriver(self._api, self._fleet, self._uuids).run(patience, others)

    async def verify(self) -> list[str]:
        """Return what is wrong after a run."""
        return await verify(self._api, self._fleet, self._uuids)

    async def uuids(self) -> list[str]:
        return list(self._uuids.values())

    def _summary(self, began: float, flights: list[Flight]) -> Run:
        # The clock of the loop is the monotonic one, that of the flights.
        latency = self._fleet.status((), log=False).latency
        return Run(
            inspections=len(flights),
            seconds=max(flight.ended for flight in flights) - began,
            slices=slice_rates(began, [flight.ended for flight in flights]),
            callbacks=Spread(latency.count, latency.p50 * 1000, latency.p99 * 1000, latency.max * 1000),
            starts=spread([flight.accepted - flight.began for flight in flights]),
            whole=spread([flight.ended - flight.began for flight in flights]),
            looks=sum(flight.looks for flight in flights) / len(flights),
            unfinished=[f"{flight.node}: {flight.state}" for flight in flights if flight.state != "manageable"],
        )


async def main() -> None:
    """Serve commands until the input ends."""
    read = _lines()
    plan = msgspec.json.decode(await read(), type=Plan)
    stop = asyncio.Event()
    ready: asyncio.Future[tuple[Fleet, Addresses]] = asyncio.get_running_loop().create_future()
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
    fleet, places = await ready
    field = Field(plan, fleet, places)
    _say({"address": places.control})
    while line := await read():
        command = msgspec.json.decode(line)
        _say(await getattr(field, command.pop("do"))(**command))
    stop.set()
    await serving


def _lines() -> Callable[[], Awaitable[str]]:
    loop = asyncio.get_running_loop()
    return lambda: loop.run_in_executor(None, sys.stdin.readline)


def _say(answer: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main())
