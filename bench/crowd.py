"""Inspects every machine of a fleet at once, as ``inspect --all`` does, and notes when each came to rest and how.

It looks at the states of all nodes from time to time, which costs the service what an operator's ``--watch`` costs it.
What the simulator itself was too busy for is measured too: the lag of its event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from bench.client import Api, ApiError
from bench.quantiles import at
from ferroscope.core.states import UNDER_WAY
from ferroscope_sim.fleet import Fleet
from ferroscope_sim.outcomes import Effect

_STARTS_AT_ONCE: Final = 8
_READS_AT_ONCE: Final = 4
_STARTABLE: Final = ("available", "manageable", "inspect failed")
_BEAT: Final = 0.05
_LOOK_SECONDS: Final = 1.0


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """One inspection of everybody. Seconds are counted from the first start.

    It was watched for ``took``. ``ends`` has those of each healthy machine that finished, in order; ``missed`` says
    what became of the healthy ones that did not, ``bad`` counts the ends of the others. ``processed`` are the seconds
    from each callback's answer to the end of its hooks, in order. ``lag`` is the 99th percentile of the lag of the
    simulator's event loop, in milliseconds.
    """

    healthy: int
    took: float
    started: float
    ends: list[float]
    missed: list[str]
    bad: dict[str, int]
    processed: list[float]
    reboots: list[str]
    lag: float

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

    def __init__(self, api: Api, fleet: Fleet, uuids: dict[str, str]) -> None:
        self._api = api
        self._fleet = fleet
        self._names = {uuid: name for name, uuid in uuids.items()}
        self._healthy = {name for name, machine in fleet.machines.items() if machine.member.outcome.name == "ok"}

    async def run(self, patience: float, others: float) -> Crowd:
        """Inspect everybody, within ``patience`` seconds, and ``others`` more for those that are not healthy."""
        late: list[float] = []
        beat = asyncio.create_task(_beat(late))
        try:
            began = time.monotonic()
            await self._start()
            started = time.monotonic() - began
            ends = await self._watch(began, patience, others)
            took = time.monotonic() - began
        finally:
            beat.cancel()
        return await self._judge(took, started, ends, late)

    async def _start(self) -> None:
        nodes = await self._api.nodes("uuid,provision_state")
        waiting = iter([node["uuid"] for node in nodes if node["provision_state"] in _STARTABLE])

        async def slot() -> None:
            for uuid in waiting:
                answer = await self._api.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
                if answer.status != 202:
                    raise ApiError(f"{self._names[uuid]} cannot be inspected: {answer.status} {answer.body[:300]!r}")

        await asyncio.gather(*(slot() for _ in range(_STARTS_AT_ONCE)))

    async def _watch(self, began: float, patience: float, others: float) -> dict[str, float]:
        """Return when each machine was first seen at rest; those that are still busy in the end are left out."""
        ends: dict[str, float] = {}
        over = patience
        while len(ends) < len(self._names) and time.monotonic() - began <= over:
            busy = {name for name, state in (await self._states()).items() if state in UNDER_WAY}
            now = time.monotonic() - began
            ends |= {name: now for name in self._names.values() if name not in ends and name not in busy}
            if over == patience and self._healthy <= ends.keys():
                over = now + others
            await asyncio.sleep(_LOOK_SECONDS)
        return ends

    async def _states(self) -> dict[str, str]:
        return {
            self._names[node["uuid"]]: node["provision_state"]
            for node in await self._api.nodes("uuid,provision_state")
            if node["uuid"] in self._names
        }

    async def _judge(self, took: float, started: float, ends: dict[str, float], late: Sequence[float]) -> Crowd:
        nodes = {self._names[node["uuid"]]: node for node in await self._api.nodes("uuid,provision_state,last_error")}
        fine = {name for name in self._healthy if nodes[name]["provision_state"] == "manageable" and name in ends}
        missed = sorted(self._healthy - fine)
        return Crowd(
            healthy=len(self._healthy),
            took=took,
            started=started,
            ends=sorted(ends[name] for name in fine),
            missed=[f"{name}: {nodes[name]['provision_state']}: {nodes[name]['last_error']}" for name in missed],
            bad=dict(Counter(node["provision_state"] for name, node in nodes.items() if name not in self._healthy)),
            processed=sorted(await self._processed(sorted(fine))),
            reboots=[name for name in sorted(fine) if self._fleet.machines[name].tally.counters.boots != 1],
            lag=at(sorted(late), 0.99) * 1000,
        )

    async def _processed(self, names: Sequence[str]) -> list[float]:
        """Return the seconds from the answer to each machine's callback to its data's being processed."""
        uuids = {name: uuid for uuid, name in self._names.items()}
        waiting = iter(names)
        found: list[float] = []

        async def slot() -> None:
            for name in waiting:
                newest = (await self._api.get(f"/v1/nodes/{uuids[name]}/timeline?limit=1"))["inspections"][0]
                ended = [step["at"] for step in newest["entries"] if step["step"] == "processed"]
                called = [
                    trace.at
                    for trace in self._fleet.machines[name].tally.traces
                    if trace.effect is Effect.CALLBACKS_ACCEPTED
                ]
                if ended and called:
                    found.append(max(0.0, datetime.fromisoformat(ended[-1]).timestamp() - called[-1]))

        await asyncio.gather(*(slot() for _ in range(_READS_AT_ONCE)))
        return found


async def _beat(late: list[float]) -> None:
    """Note by how much the event loop is late."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            due = loop.time() + _BEAT
            await asyncio.sleep(_BEAT)
            late.append(loop.time() - due)
