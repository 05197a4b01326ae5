"""The outside process of ``incumbents``: clients that inspect nodes, the same for all services that are compared.

Each client starts an inspection, looks until the service waits for the machine, sends what its ramdisk would send, on
a connection of its own, and looks until it is over. Run as ``python -m bench.incumbents_client``; it is told what to do
by JSON lines on its standard input and answers each with one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from bench.client import Api, ApiError
from bench.incumbents_plan import BARE_METAL, DIALECTS, Dialect, Plan, Run, pauses, size
from ferroscope_sim.callbacks import HttpPoster
from ferroscope_sim.inventory import generate, pxe_mac
from ferroscope_sim.ramdisk import Answer, NoAnswerError, UnreachableError

_GIVE_UP: Final = 180.0
# A node that is locked, or a database that is, for a moment: the call is repeated.
_REPEATED: Final = frozenset({409, 500, 502, 503, 504})
_TIMES: Final = 20
_PAUSE: Final = 0.25
_ENROLLING: Final = 4
# The newest version that all of them know, and which has inventories.
_VERSION: Final = "1.81"


class WrongError(Exception):
    """An inspection did not end as it should."""


class Clients:
    """``enrol`` first, then ``run`` and ``verify``; ``uuids`` are the nodes by the number of the machine."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dialect = DIALECTS[plan.dialect]
        self._uuids: dict[int, str] = {}
        self._api = self._registry = Api("")
        self._looks = self._repeated = 0

    async def do(self, do: str, **arguments: Any) -> Any:
        """Carry out a command, with connections of its own: servers close those that wait for the next one."""
        self._api, self._registry = Api(self._plan.url), Api(self._plan.registry)
        try:
            return await getattr(self, do)(**arguments)
        finally:
            self._api.close()
            self._registry.close()

    async def enrol(self) -> int:
        """Enrol all machines, with the port of the NIC that boots; return their number."""
        await _each(range(1, self._plan.nodes + 1), _ENROLLING, self._enrol)
        return len(self._uuids)

    async def run(self, clients: int, nodes: int) -> Run:
        """Inspect the first ``nodes`` machines once, ``clients`` at a time."""
        callbacks: list[float] = []
        wrong: dict[str, str] = {}
        self._looks = self._repeated = 0

        async def inspected(number: int) -> None:
            try:
                callbacks.append(await self._inspect(number))
            except (WrongError, ApiError, UnreachableError, NoAnswerError) as error:
                wrong[f"machine {number}"] = str(error)

        began = time.monotonic()
        await _each(range(1, nodes + 1), clients, inspected)
        seconds = time.monotonic() - began
        return Run(
            inspections=nodes,
            seconds=seconds,
            callbacks=callbacks,
            looks=self._looks,
            repeated=self._repeated,
            wrong=wrong,
        )

    async def verify(self) -> dict[str, str]:
        """Return what is wrong with each machine after an inspection."""
        wrong: dict[str, str] = {}

        async def verified(number: int) -> None:
            try:
                found = [fault async for fault in self._faults(number)]
            except (ApiError, UnreachableError, NoAnswerError) as error:
                found = [str(error)]
            if found:
                wrong[f"machine {number}"] = "; ".join(found)

        await _each(self._uuids, _ENROLLING, verified)
        return wrong

    async def _enrol(self, number: int) -> None:
        body = {"name": f"machine-{number}", "driver": "fake-hardware", **self._plan.fields}
        answer = await self._insist(self._registry, "POST", "/v1/nodes", body)
        uuid = self._uuids[number] = msgspec.json.decode(answer.body)["uuid"]
        await self._insist(self._registry, "POST", "/v1/ports", {"node_uuid": uuid, "address": pxe_mac(number)})
        await self._insist(self._registry, "PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
        await self._until(self._registry, DIALECTS[BARE_METAL], uuid, "manageable")

    async def _inspect(self, number: int) -> float:
        """Inspect a machine; return the seconds until its callback was answered."""
        uuid, dialect = self._uuids[number], self._dialect
        body = generate(number, size=size(number))
        await self._insist(self._api, dialect.method, dialect.start.format(uuid), dialect.body)
        await self._until(self._api, dialect, uuid, dialect.waiting)
        took = await self._call_back(body)
        await self._until(self._api, dialect, uuid, dialect.finished)
        return took

    async def _call_back(self, body: bytes) -> float:
        """Post it until it is taken, as a ramdisk does; return the seconds of the last time."""
        for _ in range(_TIMES):
            poster = HttpPoster(timeout=_GIVE_UP, connections=1)
            began = time.monotonic()
            try:
                answer = await poster.post(self._plan.url + self._dialect.callback, body)
            finally:
                poster.close()
            if answer.status in (200, 202):
                return time.monotonic() - began
            if answer.status not in _REPEATED:
                break
            self._repeated += 1
            await asyncio.sleep(_PAUSE)
        raise WrongError(f"the callback got {answer.status}: {answer.body[:200].decode(errors='replace')}")

    async def _until(self, api: Api, dialect: Dialect, uuid: str, wanted: str) -> None:
        """Return when the node is in this state."""
        deadline = time.monotonic() + _GIVE_UP
        for pause in pauses():
            await asyncio.sleep(pause)
            found = (await api.get(dialect.look.format(uuid)))[dialect.field]
            self._looks += 1
            if found == wanted:
                return
            if found == dialect.failed or time.monotonic() > deadline:
                raise WrongError(f"the node {uuid} is {found}, not {wanted}")

    async def _insist(self, api: Api, method: str, path: str, body: object) -> Answer:
        """Call until it is accepted."""
        for _ in range(_TIMES):
            answer = await api.call(method, path, body, _VERSION)
            if answer.status < 300:
                return answer
            if answer.status not in _REPEATED:
                break
            self._repeated += 1
            await asyncio.sleep(_PAUSE)
        raise WrongError(f"{method} {path}: {answer.status} {answer.body[:200].decode(errors='replace')}")

    async def _faults(self, number: int) -> AsyncIterator[str]:
        uuid, dialect = self._uuids[number], self._dialect
        state = (await self._api.get(dialect.look.format(uuid)))[dialect.field]
        if state != dialect.finished:
            yield f"it is {state}"
        sent = msgspec.json.decode(generate(number, size=size(number)))
        if (await self._api.get(dialect.data.format(uuid)))["inventory"] != sent["inventory"]:
            yield "the stored inventory is not the one that was sent"
        power = (await self._registry.get(f"/v1/nodes/{uuid}?fields=power_state"))["power_state"]
        if power != "power off":
            yield f"its power state is {power}"
        ports = (await self._registry.get(f"/v1/ports?node={uuid}"))["ports"]
        if pxe_mac(number) not in [port["address"] for port in ports]:
            yield "the port of the NIC that booted is missing"


async def _each(numbers: Iterable[int], at_once: int, act: Callable[[int], Awaitable[None]]) -> None:
    """Do it with each, so many at a time."""
    waiting = iter(numbers)

    async def slot() -> None:
        for number in waiting:
            await act(number)

    await asyncio.gather(*(slot() for _ in range(at_once)))


def main() -> None:
    """Serve commands until the input ends."""
    clients = Clients(msgspec.json.decode(sys.stdin.readline(), type=Plan))
    _say({})
    for line in sys.stdin:
        _say(asyncio.run(clients.do(**msgspec.json.decode(line))))


def _say(answer: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
