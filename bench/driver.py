"""The operator of the benchmark: starts inspections through the API and keeps N of them in flight.

That a node is done it learns as cheaply as can be: the simulated machine beside it loses its power
at the end of an inspection, and then one look by the API usually shows it ``manageable``.
A slot is free only after that look, so the figures are of whole inspections as a client sees them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from bench.client import Api, ApiError
from ferroscope.core.states import UNDER_WAY
from ferroscope_sim.fleet import Fleet

_LOOK_EVERY = 0.002
_FIRST_LOOK = 0.008  # what follows the power-off is a commit
_GIVE_UP = 60.0


class Flight(msgspec.Struct, frozen=True):
    """One inspection; times are of the monotonic clock, in seconds."""

    node: str
    began: float
    accepted: float
    off: float
    ended: float
    looks: int
    state: str


class Driver:
    """Inspects the machines of ``fleet``; ``uuids`` are their nodes by name."""

    def __init__(self, api: Api, fleet: Fleet, uuids: dict[str, str]) -> None:
        self._api = api
        self._fleet = fleet
        self._uuids = uuids
        self._watched: dict[str, tuple[int, asyncio.Future[None]]] = {}

    async def run(self, names: Sequence[str], concurrency: int) -> list[Flight]:
        """Inspect these machines, ``concurrency`` at a time; return the flights in the order of their ends."""
        waiting = iter(names)
        flights: list[Flight] = []

        async def slot() -> None:
            for name in waiting:
                flights.append(await self._inspect(name))

        watcher = asyncio.create_task(self._watch())
        try:
            await asyncio.gather(*(slot() for _ in range(concurrency)))
        finally:
            watcher.cancel()
        return flights

    async def _inspect(self, name: str) -> Flight:
        uuid = self._uuids[name]
        off = asyncio.get_running_loop().create_future()
        self._watched[name] = (self._offs(name), off)
        began = time.monotonic()
        answer = await self._api.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
        accepted = time.monotonic()
        if answer.status != 202:
            raise ApiError(f"{name} cannot be inspected: {answer.status} {answer.body[:300].decode(errors='replace')}")
        try:
            await asyncio.wait_for(off, _GIVE_UP)
        except TimeoutError:
            return Flight(name, began, accepted, began, time.monotonic(), 0, "not powered off")
        went_off = time.monotonic()
        state, looks = await self._look(uuid)
        return Flight(name, began, accepted, went_off, time.monotonic(), looks, state)

    async def _look(self, uuid: str) -> tuple[str, int]:
        """Return the node's provision state once it is at rest, and how often it was looked at."""
        for looks in range(1, 1000):
            await asyncio.sleep(_FIRST_LOOK * looks)
            state = (await self._api.get(f"/v1/nodes/{uuid}?fields=provision_state"))["provision_state"]
            if state not in UNDER_WAY:
                return state, looks
        return state, looks

    async def _watch(self) -> None:
        """Tell those who wait for a machine to be off that it is."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            for name, (before, future) in list(self._watched.items()):
                if self._offs(name) > before:
                    del self._watched[name]
                    if not future.done():
                        future.set_result(None)

    def _offs(self, name: str) -> int:
        return self._fleet.machines[name].tally.counters.power_offs
