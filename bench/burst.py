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
from ferroscope.core.states import UNDER_WAY
from ferroscope_sim.fleet import Fleet
from ferroscope_sim.inventory import generate

_LOOK_EVERY: Final = 0.05
# The first one with the route of callbacks.
_VERSION: Final = "1.84"
_WAITING: Final = "inspect wait"
_GIVE_UP: Final = 60.0


async def burst(url: str, fleet: Fleet, uuids: dict[str, str]) -> list[float]:
    """Inspect the silent machines of ``fleet``; return the seconds until each of their callbacks was answered."""
    silent = {name: machine.member for name, machine in fleet.machines.items() if not machine.member.outcome.calls_back}
    bodies = [msgspec.Raw(generate(member.number, size=fleet.settings.inventory_size)) for member in silent.values()]
    ours = {uuids[name] for name in silent}
    api = Api(url)
    try:
        for uuid in ours:
            await _accepted(api, "PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
        await _until(api, ours, lambda state: state == _WAITING)
        api.close()  # each ramdisk has a connection of its own
        took = await asyncio.gather(*(_called_back(api, body) for body in bodies))
        await _until(api, ours, lambda state: state not in UNDER_WAY)
        for uuid in ours:
            state = (await api.get(f"/v1/nodes/{uuid}?fields=provision_state"))["provision_state"]
            if state != "manageable":
                raise ApiError(f"the node {uuid} of the burst is {state}")
    finally:
        api.close()
    return took


async def _called_back(api: Api, body: msgspec.Raw) -> float:
    began = time.monotonic()
    await _accepted(api, "POST", "/v1/continue_inspection", body)
    return time.monotonic() - began


async def _accepted(api: Api, method: str, path: str, body: object) -> None:
    answer = await api.call(method, path, body, _VERSION)
    if answer.status != 202:
        raise ApiError(f"{method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")


async def _until(api: Api, ours: set[str], there: Callable[[str], bool]) -> None:
    """Return once all of these nodes are in such a state."""
    deadline = time.monotonic() + _GIVE_UP
    while True:
        states = {node["uuid"]: node["provision_state"] for node in await api.nodes("uuid,provision_state")}
        if all(there(states[uuid]) for uuid in ours):
            return
        if time.monotonic() > deadline:
            raise ApiError(f"the nodes of the burst are {sorted(states[uuid] for uuid in ours)}")
        await asyncio.sleep(_LOOK_EVERY)
