"""The outside process of ``incumbents``: clients that inspect nodes, the same for all services that are compared.

Each client starts an inspection, looks until the service waits for the machine, sends what its ramdisk would send, on
a connection of its own, and looks until it is over. Run as ``python -m bench.incumbents_client PLAN``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

import msgspec

from bench.client import Api, ApiError, for_each
from bench.load_process import serve
from ferroscope_sim.callbacks import HttpPoster
from ferroscope_sim.inventory import generate, pxe_mac
from ferroscope_sim.ramdisk import ApiUnreachableError, NoAnswerError, RamdiskAnswer

_GIVE_UP_SECONDS: Final = 180.0
# A node that is locked, or a database that is, for a moment: the call is repeated.
_REPEATED: Final = frozenset({409, 500, 502, 503, 504})
_MAX_TRIES: Final = 20
_RETRY_SECONDS: Final = 0.25
_AT_ONCE: Final = 4
# A slow service is not looked at much more often than a quick one: the pauses grow.
_FIRST_LOOK_SECONDS: Final = 0.01
_LAST_LOOK_SECONDS: Final = 0.3
# The newest version that all of them know, and which has inventories.
_VERSION: Final = "1.81"


class Dialect(msgspec.Struct, frozen=True):
    """How an API is asked for an inspection; ``{}`` is the node's UUID."""

    method: str
    start: str
    body: dict[str, str] | None
    look: str
    field: str
    waiting: str
    finished: str
    failed: str
    callback: str
    data: str


# Ironic and this service have the Bare Metal API, ironic-inspector has its own.
BARE_METAL: Final = Dialect(
    "PUT", "/v1/nodes/{}/states/provision", {"target": "inspect"}, "/v1/nodes/{}?fields=provision_state",
    "provision_state", "inspect wait", "manageable", "inspect failed", "/v1/continue_inspection",
    "/v1/nodes/{}/inventory",
)  # fmt: skip
INTROSPECTION: Final = Dialect(
    "POST", "/v1/introspection/{}", None, "/v1/introspection/{}", "state", "waiting", "finished", "error",
    "/v1/continue", "/v1/introspection/{}/data",
)  # fmt: skip


class Plan(msgspec.Struct, frozen=True):
    """``registry`` is the Bare Metal API that has the nodes; ``fields`` are given to each."""

    dialect: Dialect
    url: str
    registry: str
    fields: dict[str, str] = {}


class Run(msgspec.Struct):
    """``callbacks``: the seconds until each was answered; ``looks``: number of calls; ``wrong``: what went wrong."""

    inspections: int
    seconds: float = 0.0
    callbacks: list[float] = []
    looks: int = 0
    wrong: list[str] = []


class WrongError(Exception):
    """An inspection did not end as it should."""


_FAILURES: Final = (WrongError, ApiError, ApiUnreachableError, NoAnswerError)


class Clients:
    """``enrol`` first, then ``run`` and ``verify``; ``uuids`` are the nodes by the number of the machine."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._uuids: dict[int, str] = {}
        self._api = self._registry = Api("")
        self._looks = 0

    def enrol(self, nodes: int) -> None:
        """Enrol all machines, with the port of the NIC that boots."""
        asyncio.run(self._each(range(1, nodes + 1), _AT_ONCE, self._enrol))

    def run(self, clients: int, nodes: int) -> Run:
        """Inspect the first ``nodes`` machines once, ``clients`` at a time."""
        run = Run(nodes)

        async def inspect(number: int) -> None:
            try:
                run.callbacks.append(await self._inspect(number))
            except _FAILURES as error:
                run.wrong.append(f"machine {number}: {error}")

        self._looks, began = 0, time.monotonic()
        asyncio.run(self._each(range(1, nodes + 1), clients, inspect))
        run.seconds, run.looks = time.monotonic() - began, self._looks
        return run

    def verify(self) -> list[str]:
        """Return what is wrong with machines after an inspection."""
        wrong: list[str] = []

        async def check(number: int) -> None:
            try:
                wrong.extend(f"machine {number}: {fault}" for fault in await self._find_faults(number))
            except _FAILURES as error:
                wrong.append(f"machine {number}: {error}")

        asyncio.run(self._each(self._uuids, _AT_ONCE, check))
        return wrong

    async def _each(self, numbers: Any, at_once: int, act: Any) -> None:
        """Do it with connections of its own: servers close those that wait for the next command."""
        self._api, self._registry = Api(self._plan.url), Api(self._plan.registry)
        await for_each(numbers, at_once, act)
        self._api.close()
        self._registry.close()

    async def _enrol(self, number: int) -> None:
        body = {"name": f"machine-{number}", "driver": "fake-hardware", **self._plan.fields}
        answer = await self._insist(self._registry, "POST", "/v1/nodes", body)
        uuid = self._uuids[number] = msgspec.json.decode(answer.body)["uuid"]
        await self._insist(self._registry, "POST", "/v1/ports", {"node_uuid": uuid, "address": pxe_mac(number)})
        await self._insist(self._registry, "PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
        await self._wait_for(self._registry, BARE_METAL, uuid, "manageable")

    async def _inspect(self, number: int) -> float:
        """Inspect a machine; return the seconds until its callback was answered."""
        uuid, dialect = self._uuids[number], self._plan.dialect
        body = _generate(number)
        await self._insist(self._api, dialect.method, dialect.start.format(uuid), dialect.body)
        await self._wait_for(self._api, dialect, uuid, dialect.waiting)
        took = await self._call_back(body)
        await self._wait_for(self._api, dialect, uuid, dialect.finished)
        return took

    async def _call_back(self, body: bytes) -> float:
        """Post it until it is taken, as a ramdisk does; return the seconds of the last time."""
        for _ in range(_MAX_TRIES):
            poster = HttpPoster(timeout=_GIVE_UP_SECONDS, connections=1)
            began = time.monotonic()
            try:
                answer = await poster.post(self._plan.url + self._plan.dialect.callback, body)
            finally:
                poster.close()
            if answer.status in (200, 202):
                return time.monotonic() - began
            if answer.status not in _REPEATED:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        raise WrongError(f"the callback got {answer.status}: {answer.body[:200].decode(errors='replace')}")

    async def _wait_for(self, api: Api, dialect: Dialect, uuid: str, wanted: str) -> None:
        """Return when the node is in this state."""
        deadline, pause = time.monotonic() + _GIVE_UP_SECONDS, _FIRST_LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK_SECONDS)
            state = (await api.get(dialect.look.format(uuid)))[dialect.field]
            self._looks += 1
            if state == wanted:
                return
            if state == dialect.failed or time.monotonic() > deadline:
                raise WrongError(f"the node {uuid} is {state}, not {wanted}")

    async def _insist(self, api: Api, method: str, path: str, body: object) -> RamdiskAnswer:
        """Call until it is accepted."""
        for _ in range(_MAX_TRIES):
            answer = await api.call(method, path, body, _VERSION)
            if answer.status < 300:
                return answer
            if answer.status not in _REPEATED:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        raise WrongError(f"{method} {path}: {answer.status} {answer.body[:200].decode(errors='replace')}")

    async def _find_faults(self, number: int) -> list[str]:
        uuid, dialect = self._uuids[number], self._plan.dialect
        state = (await self._api.get(dialect.look.format(uuid)))[dialect.field]
        inventory = (await self._api.get(dialect.data.format(uuid)))["inventory"]
        power = (await self._registry.get(f"/v1/nodes/{uuid}?fields=power_state"))["power_state"]
        ports = (await self._registry.get(f"/v1/ports?node={uuid}"))["ports"]
        checks = {
            f"it is {state}": state == dialect.finished,
            "the stored inventory is not the one that was sent": inventory
            == msgspec.json.decode(_generate(number))["inventory"],
            f"its power state is {power}": power == "power off",
            "the port of the NIC that booted is missing": pxe_mac(number) in [port["address"] for port in ports],
        }
        return [fault for fault, is_fine in checks.items() if not is_fine]


def _generate(number: int) -> bytes:
    """Return the callback of machine ``number``: 31 to 41 KB."""
    return generate(number, size=31_000 + number * 7_919 % 10_001)


if __name__ == "__main__":
    clients = Clients(msgspec.json.decode(sys.argv[1], type=Plan))
    serve(enrol=clients.enrol, run=clients.run, verify=clients.verify)
