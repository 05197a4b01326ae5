"""The operator of the benchmark: starts inspections through the API and keeps N of them in flight.

That a node is done it learns as cheaply as can be: the simulated machine beside it loses its power
at the end of an inspection, and then one look by the API usually shows it ``manageable``.
A slot is free only after that look, so the figures are of whole inspections as a client sees them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bench.client import Api, for_each
from ferroscope_client.core.states import UNDER_WAY
from ferroscope_sim.fleet import SimFleet

_POWER_LOOK_SECONDS: Final = 0.002
_FIRST_LOOK_SECONDS: Final = 0.008  # what follows the power-off is a commit
_MAX_LOOKS: Final = 1000
_GIVE_UP_SECONDS: Final = 60.0


class Driver:
    """Inspects the machines of ``fleet``; ``uuids`` are their nodes by name."""

    def __init__(self, api: Api, fleet: SimFleet, uuids: dict[str, str]) -> None:
        self._api = api
        self._fleet = fleet
        self._uuids = uuids
        self._watched: dict[str, tuple[int, asyncio.Future[None]]] = {}

    async def run(self, names: Sequence[str], concurrency: int) -> dict[str, str]:
        """Inspect these machines, ``concurrency`` at a time; return the state in which each ends."""
        states: dict[str, str] = {}

        async def inspect(name: str) -> None:
            states[name] = await self._inspect(name)

        watcher = asyncio.create_task(self._watch())
        try:
            await for_each(names, concurrency, inspect)
        finally:
            watcher.cancel()
        return states

    async def _inspect(self, name: str) -> str:
        uuid = self._uuids[name]
        off: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watched[name] = (self._count_offs(name), off)
        await self._api.inspect(uuid)
        try:
            await asyncio.wait_for(off, _GIVE_UP_SECONDS)
        except TimeoutError:
            return "not powered off"
        state = ""
        for looks in range(1, _MAX_LOOKS):
            await asyncio.sleep(_FIRST_LOOK_SECONDS * looks)
            state = await self._api.state(uuid)
            if state not in UNDER_WAY:
                break
        return state

    async def _watch(self) -> None:
        """Tell those who wait for a machine to be off that it is."""
        while True:
            await asyncio.sleep(_POWER_LOOK_SECONDS)
            for name, (before, future) in list(self._watched.items()):
                if self._count_offs(name) > before:
                    del self._watched[name]
                    if not future.done():
                        future.set_result(None)

    def _count_offs(self, name: str) -> int:
        return self._fleet.machines[name].tally.counters.power_offs
