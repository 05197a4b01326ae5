"""Inspects every machine of a fleet at once, as ``inspect --all`` does, and notes when each came to rest and how.

It looks at the states of all nodes from time to time, which costs the service what an operator's ``--watch`` costs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from bench.client import Api, for_each
from bench.quantiles import at
from ferroscope_client.core.states import UNDER_WAY
from ferroscope_sim.fleet import SimFleet
from ferroscope_sim.outcomes import Effect

_STARTS_AT_ONCE: Final = 8
_READS_AT_ONCE: Final = 4
_STARTABLE: Final = ("available", "manageable", "inspect failed")
_LOOK_SECONDS: Final = 1.0


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """One inspection of everybody. Seconds are counted from the first start.

    It was watched for ``took``. ``ends`` has those of each healthy machine that finished, in order; ``missed`` says
    what became of the healthy ones that did not. ``processed`` are the seconds from each callback's answer to the end
    of its hooks, in order. ``reboots``: machines that were not booted once.
    """

    healthy: int
    took: float
    ends: list[float]
    missed: list[str]
    processed: list[float]
    reboots: list[str]

    @property
    def seconds(self) -> float:
        """Until the last healthy one had finished."""
        return self.ends[-1] if self.ends else 0.0

    @property
    def speed(self) -> float:
        """Healthy machines a second, until nineteen of twenty had finished; the rest is the few slowest BMCs'."""
        enough = round(self.healthy * 0.95)
        return enough / self.ends[enough - 1] if len(self.ends) >= enough else 0.0

    @property
    def processed_p99(self) -> float:
        return at(self.processed, 0.99)


class CrowdDriver:
    """``uuids`` are the nodes of ``fleet`` by name; those whose outcome is not ``ok`` are not healthy."""

    def __init__(self, api: Api, fleet: SimFleet, uuids: dict[str, str]) -> None:
        self._api = api
        self._fleet = fleet
        self._uuids = uuids
        self._names = {uuid: name for name, uuid in uuids.items()}
        self._healthy = {name for name, machine in fleet.machines.items() if machine.member.outcome.name == "ok"}

    async def run(self, patience: float, others: float) -> Crowd:
        """Inspect everybody, within ``patience`` seconds, and ``others`` more for those that are not healthy."""
        began = time.monotonic()
        startable = [name for name, state in (await self._states()).items() if state in _STARTABLE]
        await for_each([self._uuids[name] for name in startable], _STARTS_AT_ONCE, self._api.inspect)
        ends = await self._watch(began, patience, others)
        return await self._judge(time.monotonic() - began, ends)

    async def _watch(self, began: float, patience: float, others: float) -> dict[str, float]:
        """Return when each machine was first seen at rest; those that are still busy in the end are left out."""
        ends: dict[str, float] = {}
        over = patience
        while len(ends) < len(self._names) and time.monotonic() - began <= over:
            busy = {name for name, state in (await self._states()).items() if state in UNDER_WAY}
            now = time.monotonic() - began
            ends |= {name: now for name in self._uuids if name not in ends and name not in busy}
            if over == patience and self._healthy <= ends.keys():
                over = now + others
            await asyncio.sleep(_LOOK_SECONDS)
        return ends

    async def _states(self) -> dict[str, str]:
        nodes = await self._api.nodes("uuid,provision_state")
        return {self._names[node["uuid"]]: node["provision_state"] for node in nodes if node["uuid"] in self._names}

    async def _judge(self, took: float, ends: dict[str, float]) -> Crowd:
        nodes = {self._names[node["uuid"]]: node for node in await self._api.nodes("uuid,provision_state,last_error")}
        fine = {name for name in self._healthy if nodes[name]["provision_state"] == "manageable" and name in ends}
        missed = sorted(self._healthy - fine)
        return Crowd(
            healthy=len(self._healthy),
            took=took,
            ends=sorted(ends[name] for name in fine),
            missed=[f"{name}: {nodes[name]['provision_state']}: {nodes[name]['last_error']}" for name in missed],
            processed=sorted(await self._measure_processing(sorted(fine))),
            reboots=[name for name in sorted(fine) if self._fleet.machines[name].tally.counters.boots != 1],
        )

    async def _measure_processing(self, names: Sequence[str]) -> list[float]:
        """Return the seconds from the answer to each machine's callback to its data's being processed."""
        seconds: list[float] = []

        async def look(name: str) -> None:
            newest = (await self._api.get(f"/v1/nodes/{self._uuids[name]}/timeline?limit=1"))["inspections"][0]
            ended = [step["at"] for step in newest["entries"] if step["step"] == "processed"]
            traces = self._fleet.machines[name].tally.traces
            called = [trace.at for trace in traces if trace.effect is Effect.CALLBACKS_ACCEPTED]
            if ended and called:
                seconds.append(max(0.0, datetime.fromisoformat(ended[-1]).timestamp() - called[-1]))

        await for_each(names, _READS_AT_ONCE, look)
        return seconds
