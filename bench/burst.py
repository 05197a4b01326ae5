"""A burst: machines that have all booted call back in the same moment, each on a new connection, as after a power cut.

They are simulated ones that do not call back by themselves, so that nothing else happens meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from bench.client import Api, ApiError
from ferroscope_client.core.states import UNDER_WAY
from ferroscope_sim.fleet import SimFleet
from ferroscope_sim.inventory import generate

_LOOK_SECONDS: Final = 0.05
# The first one with the route of callbacks.
_VERSION: Final = "1.84"
_GIVE_UP_SECONDS: Final = 60.0


async def burst(url: str, fleet: SimFleet, uuids: dict[str, str]) -> list[float]:
    """Inspect the silent machines of ``fleet``; return the seconds until each of their callbacks was answered."""
    silent = {name: machine.member for name, machine in fleet.machines.items() if not machine.member.outcome.calls_back}
    bodies = [msgspec.Raw(generate(member.number, size=fleet.settings.inventory_size)) for member in silent.values()]
    ours = {uuids[name] for name in silent}
    api = Api(url)
    try:
        for uuid in ours:
            await api.inspect(uuid)
        await _wait_for(api, ours, lambda state: state == "inspect wait")
        api.close()  # each ramdisk has a connection of its own
        seconds = await asyncio.gather(*(_call_back(api, body) for body in bodies))
        await _wait_for(api, ours, lambda state: state not in UNDER_WAY)
        await _wait_for(api, ours, lambda state: state == "manageable", seconds=0.0)
    finally:
        api.close()
    return seconds


async def _call_back(api: Api, body: msgspec.Raw) -> float:
    began = time.monotonic()
    await api.ask("POST", "/v1/continue_inspection", body, _VERSION)
    return time.monotonic() - began


async def _wait_for(
    api: Api, ours: set[str], there: Callable[[str], bool], *, seconds: float = _GIVE_UP_SECONDS
) -> None:
    """Return once all of these nodes are in such a state."""
    deadline = time.monotonic() + seconds
    while True:
        states = {node["uuid"]: node["provision_state"] for node in await api.nodes("uuid,provision_state")}
        if all(there(states[uuid]) for uuid in ours):
            return
        if time.monotonic() > deadline:
            raise ApiError(f"the nodes of the burst are {sorted(states[uuid] for uuid in ours)}")
        await asyncio.sleep(_LOOK_SECONDS)
